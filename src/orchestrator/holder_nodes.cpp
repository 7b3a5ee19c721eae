#include "corbd/orchestrator/holder_nodes.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::orchestrator {
namespace {

using plan::HolderNode;
using State = HolderNode::State;

// An image has notes of the nodes that use it. ceph-csi's controller removes old ones.
constexpr std::size_t kMostNoted = 8;
constexpr std::size_t kNodesInPage = 100;

bool has(const kube::Node& node, const std::string& host) {
  return std::ranges::find(node.addresses, host) != node.addresses.end();
}

bool is_dead(const HolderNode& node) { return node.state == State::gone || node.state == State::out_of_service; }
bool lives(const HolderNode& node) { return node.state == State::ready || node.state == State::not_ready; }

HolderNode unknown(std::string name, std::string why) {
  HolderNode node;
  node.name = std::move(name);
  node.why = std::move(why);
  return node;
}

class ApiNodes final : public NodeReader {
 public:
  ApiNodes(kube::Api& api, std::string driver) : api_(api), driver_(std::move(driver)) {}

  task<kube::answer<kube::Node>> node(std::string name, Until until) override {
    const auto object = co_await api_.get(kube::kNodes, std::move(name), until);
    if (!object) co_return object.error();
    co_return kube::node_of(*object);
  }

  task<kube::answer<std::vector<kube::Node>>> nodes(Until until) override {
    std::vector<kube::Node> found;
    auto keep = [&found](const boost::json::object& item) {
      auto node = kube::node_of(item);
      kube::Node kept;
      kept.name = std::move(node.name);
      kept.addresses = std::move(node.addresses);
      found.push_back(std::move(kept));
    };
    // Pass no version. With resourceVersion=0 the server answers from its cache: all nodes at once, of 14 KB each, and
    // perhaps old. An old list could prove a client dead although a living node has its address by now.
    const auto all = co_await api_.each(kube::kNodes, "", "", kNodesInPage, keep, until);
    if (!all) co_return all.error();
    co_return found;
  }

  task<kube::answer<kube::VolumeAttachment>> attachment(std::string volume_id, std::string node, Until until) override {
    const auto object =
        co_await api_.get(kube::kVolumeAttachments, kube::volume_attachment_name(volume_id, driver_, node), until);
    if (!object) co_return object.error();
    co_return kube::volume_attachment_of(*object);
  }

 private:
  kube::Api& api_;
  const std::string driver_;
};

}  // namespace

std::unique_ptr<NodeReader> read_nodes(const result<kube::Api*>& api, std::string driver) {
  return api ? std::make_unique<ApiNodes>(**api, std::move(driver)) : nullptr;
}

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

task<HolderNode> HolderNodes::find(plan::HolderQuery query, CancelScope& leaving) {
  const Until until{clock_.now() + config_.answer_within, &leaving};
  if (!nodes_)
    co_return unknown(query.noted.at_address.size() == 1 ? query.noted.at_address.front() : "",
                      "this agent has no API server");
  const auto name = co_await name_of(query, until);
  if (!name) co_return unknown("", name.error().text);
  if (name->empty()) co_return unknown("", "no node, or more than one, has the address " + query.host);
  auto found = co_await look_at(query, *name, until);
  if (is_dead(found))
    found = co_await proven(query, std::move(found), until);
  else if (Sighting* seen = sighting(query.address); seen != nullptr && lives(found))
    seen->lists_before_death.reset();
  if (!found.name.empty() && !query.volume_id.empty())
    co_await ask_attachment(found, std::move(query.volume_id), until);
  co_return found;
}

task<HolderNode> HolderNodes::look_at(const plan::HolderQuery& query, std::string name, Until until) {
  const auto node = co_await nodes_->node(name, until);
  if (node && !has(*node, query.host))
    co_return unknown("", "the image's metadata names node " + name + ", which has other addresses than " + query.host);
  auto judged = judge_node(name, node);
  if (node && note(query.address, *node).moved && judged.state == State::out_of_service)
    co_return unknown(name, "another Node object had the address " + query.host + " since that client was seen first");
  const auto* seen = sighting(query.address);
  // Another Kubernetes cluster may use the image too, or have used that name. And the present owner of the address need
  // not be the client that was seen there.
  if (judged.state == State::gone && (seen == nullptr || seen->moved || seen->node != name))
    co_return unknown("", "there is no node " + name + ", and this agent never saw that client on it");
  co_return judged;
}

/// Checks that no living node has the dead node's address, before its image is taken.
task<HolderNode> HolderNodes::proven(const plan::HolderQuery& query, HolderNode dead, Until until) {
  Sighting& seen = *sighting(query.address);
  if (!seen.lists_before_death) seen.lists_before_death = lists_;
  const Wanted newest{config_.list_again, seen.lists_before}, enough{config_.list_every, *seen.lists_before_death};
  const Until waits = has_list(enough) ? until.at_most(clock_.now() + config_.newest_within) : until;
  auto others = co_await names_at(query.host, newest, waits);
  if (!others && others.error().code == errc::timed_out && has_list(enough)) others = names_in_list(query.host);
  if (!others)
    co_return unknown(dead.name, "whether another node has the address " + query.host + ": " + others.error().text);
  if (std::ranges::all_of(*others, [&](const auto& name) { return name == dead.name; })) co_return dead;
  if (others->size() > 1 || dead.state != State::gone)
    co_return unknown(dead.name, "other nodes have the address " + query.host + " too");
  auto other = co_await look_at(query, others->front(), until);
  // This node has the client's address only since the other one is gone.
  if (is_dead(other)) co_return unknown(other.name, "it has the address " + query.host + " of node " + dead.name);
  co_return other;
}

/// Reads the image's metadata first: the answer then costs one object, however many nodes there are.
task<result<std::string>> HolderNodes::name_of(const plan::HolderQuery& query, Until until) {
  const auto& noted = query.noted;
  if (noted.at_address.size() == 1) co_return noted.at_address.front();
  auto candidates = noted.at_address;
  candidates.insert(candidates.end(), noted.others.begin(), noted.others.end());
  for (std::size_t i = 0; i < std::min(candidates.size(), kMostNoted); ++i) {
    const auto node = co_await nodes_->node(candidates[i], until);
    if (node && has(*node, query.host)) co_return candidates[i];
  }
  const auto named = co_await names_at(query.host, {config_.list_every}, until);
  if (!named) co_return named.error();
  co_return named->size() == 1 ? named->front() : std::string();
}

bool HolderNodes::has_list(const Wanted& wanted) const {
  if (!list_) return false;
  const bool failed = !list_->by_address;
  return clock_.now() - list_->read < (failed ? config_.list_again : wanted.younger) &&
         (failed || list_->number > wanted.after);
}

/// Reads the list in a task of its own, because a list of thousands of nodes may take longer than one find() has.
task<> HolderNodes::read_list() {
  const auto part = std::chrono::duration<double, std::milli>(config_.spread) * random_();
  const auto at = clock_.now() + std::chrono::duration_cast<duration>(part);
  static_cast<void>(co_await sleep_until(control_, clock_, at, &stopping_));
  const std::uint64_t number = ++lists_;
  const auto begun = clock_.now();
  const auto all = co_await nodes_->nodes({begun + config_.list_within, &stopping_});
  list_ = List{all ? begun : clock_.now(), number, std::map<std::string, Names>()};
  if (all)
    for (const auto& node : *all)
      for (const auto& address : node.addresses) (*list_->by_address)[address].push_back(node.name);
  else
    list_->by_address = all.error();
  if (!all && !stopping_.cancelled()) log::warning("holders.no_nodes", {{"error", all.error().error.text}});
  std::exchange(reading_, nullptr)->set();
}

/// An error proves nothing about any node.
task<result<HolderNodes::Names>> HolderNodes::names_at(std::string host, Wanted wanted, Until until) {
  while (!has_list(wanted)) {
    if (gate_.closed()) co_return wait_error(Waited::cancelled, "listing nodes");
    const bool begins = !reading_;
    if (begins) reading_ = std::make_shared<Event>(control_, clock_);
    const auto reading = reading_;
    if (begins) gate_.spawn(read_list());
    const auto waited = co_await reading->wait(until);
    if (waited == Waited::deadline)
      co_return Error{errc::timed_out, "the list of all nodes is still being read: a later look will have it"};
    if (waited == Waited::cancelled) co_return wait_error(waited, "listing nodes");
  }
  co_return names_in_list(host);
}

result<HolderNodes::Names> HolderNodes::names_in_list(const std::string& host) const {
  if (!list_->by_address) return with_context("listing nodes", list_->by_address.error().error);
  const auto place = list_->by_address->find(host);
  return place == list_->by_address->end() ? Names() : place->second;
}

const HolderNodes::Sighting& HolderNodes::note(const std::string& client, const kube::Node& node) {
  const auto now = clock_.now();
  std::erase_if(seen_, [&](const auto& entry) { return now - entry.second.last > config_.remembered_for; });
  auto& seen = seen_.try_emplace(client, Sighting{node.name, node.uid, now, lists_}).first->second;
  seen.last = now;
  seen.moved |= seen.node != node.name || seen.uid != node.uid;
  return seen;
}

HolderNodes::Sighting* HolderNodes::sighting(const std::string& client) {
  const auto place = seen_.find(client);
  const bool counts = place != seen_.end() && clock_.now() - place->second.last <= config_.remembered_for;
  return counts ? &place->second : nullptr;
}

task<> HolderNodes::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

task<> HolderNodes::ask_attachment(HolderNode& node, std::string volume_id, Until until) {
  const auto attachment = co_await nodes_->attachment(std::move(volume_id), node.name, until);
  if (!attachment) {
    if (attachment.error().error.code == errc::not_found) node.attached = false;
    co_return;
  }
  node.attached = true;
  if (attachment->created) node.attached_since = utc_text(*attachment->created);
}

}  // namespace corbd::orchestrator
