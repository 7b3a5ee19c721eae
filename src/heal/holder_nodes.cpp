#include "corbd/heal/holder_nodes.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::heal {
namespace {

using plan::HolderNode;
using State = HolderNode::State;

// An image has the notes of the nodes that use it, and ceph-csi's controller removes old ones.
constexpr std::size_t kMostNoted = 8;

bool has(const kube::Node& node, const std::string& host) {
  return std::ranges::find(node.addresses, host) != node.addresses.end();
}

}  // namespace

HolderNode judge_node(std::string name, const kube::answer<kube::Node>& node) {
  HolderNode judged;
  judged.name = std::move(name);
  if (!node) {
    const auto& error = node.error().error;
    judged.state = error.code == errc::not_found ? State::gone : State::unknown;
    if (judged.state == State::unknown) judged.why = error.text;
    return judged;
  }
  judged.since = node->ready_since;
  if (node->out_of_service)
    judged.state = State::out_of_service;
  else if (node->ready)
    judged.state = *node->ready ? State::ready : State::not_ready;
  else
    judged.why = "the Node's status does not say whether it is ready";
  return judged;
}

task<HolderNode> HolderNodes::find(std::string volume_id, std::string host, plan::Noted noted, CancelScope& leaving) {
  const Until until{clock_.now() + config_.answer_within, &leaving};
  HolderNode found;
  if (!api_) {
    if (noted.at_address.size() == 1) found.name = noted.at_address.front();
    found.why = "this agent has no API server";
    co_return found;
  }
  auto name = co_await name_of(host, std::move(noted), until);
  auto node = name.empty() ? kube::answer<kube::Node>(kube::Node{}) : co_await get(name, until);
  const auto is_gone = [&] { return !name.empty() && !node && node.error().error.code == errc::not_found; };
  // The address of a node that is gone may be another one's by now.
  if (is_gone()) {
    auto another = co_await listed_name(host, config_.list_again, until);
    if (!another.empty()) {
      name = std::move(another);
      node = co_await get(name, until);
    }
  }
  if (node && has(*node, host)) seen_.emplace(name, host);
  if (name.empty())
    found.why = "no node, or more than one, has the address " + host;
  else if (node && !has(*node, host))
    found.why = "the image's metadata names node " + name + ", which has other addresses than " + host;
  else if (is_gone() && !seen_.contains({name, host}))
    // Another cluster of Kubernetes may use the image too, or have used that name.
    found.why = "there is no node " + name + ", and this agent never saw one with the address " + host;
  if (!found.why.empty()) co_return found;
  found = judge_node(name, node);
  if (!volume_id.empty()) co_await ask_attachment(found, std::move(volume_id), until);
  co_return found;
}

task<kube::answer<kube::Node>> HolderNodes::get(std::string name, Until until) {
  const auto object = co_await (*api_)->get(kube::kNodes, std::move(name), until);
  if (!object) co_return object.error();
  co_return kube::node_of(*object);
}

/// The image's metadata first: the answer then costs one object, however many nodes there are.
task<std::string> HolderNodes::name_of(std::string host, plan::Noted noted, Until until) {
  if (noted.at_address.size() == 1) co_return noted.at_address.front();
  auto candidates = noted.at_address;
  candidates.insert(candidates.end(), noted.others.begin(), noted.others.end());
  for (std::size_t i = 0; i < std::min(candidates.size(), kMostNoted); ++i) {
    const auto node = co_await get(candidates[i], until);
    if (node && has(*node, host)) co_return candidates[i];
  }
  co_return co_await listed_name(std::move(host), config_.list_every, until);
}

task<std::string> HolderNodes::listed_name(std::string host, std::chrono::seconds no_older, Until until) {
  if (!listed_ || clock_.now() - *listed_ >= no_older) {
    // From the server's cache, which costs it least.
    const auto all = co_await (*api_)->list(kube::kNodes, "", "0", until);
    if (!all) {
      log::warning("holders.no_nodes", {{"error", all.error().error.text}});
      co_return "";
    }
    listed_ = clock_.now();
    names_.clear();
    for (const auto& item : all->items)
      for (const auto& address : kube::node_of(item).addresses)
        if (!names_.emplace(address, kube::name_of(item)).second) names_[address].clear();
  }
  const auto known = names_.find(host);
  co_return known == names_.end() ? "" : known->second;
}

task<> HolderNodes::ask_attachment(HolderNode& node, std::string volume_id, Until until) {
  const auto object = co_await (*api_)->get(kube::kVolumeAttachments,
                                            kube::volume_attachment_name(volume_id, config_.driver, node.name), until);
  if (!object) {
    if (object.error().error.code == errc::not_found) node.attached = false;
    co_return;
  }
  const auto attachment = kube::volume_attachment_of(*object);
  node.attached = true;
  if (attachment.created) node.attached_since = utc_text(*attachment.created);
}

}  // namespace corbd::heal
