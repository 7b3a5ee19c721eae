#include "corbd/kube/own_node.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <utility>

namespace corbd::kube {
namespace {

/// All nodes of a cluster may start at once.
constexpr std::chrono::seconds kSpread{5};

}  // namespace

result<Access> find_access(const std::string& kubeconfig, const Environment& environment) {
  return kubeconfig.empty() ? in_cluster(environment) : read_kubeconfig(kubeconfig);
}

void ask(const Access& access, const std::function<task<>(Api&, Clock&)>& questions) {
  asio::io_context io(1);
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  Api api(io.get_executor(), *clock, pool, pool, access);
  std::exception_ptr failed;
  asio::co_spawn(io, questions(api, *clock), [&](std::exception_ptr error) {
    failed = error;
    io.stop();
  });
  io.run();
  if (failed) std::rethrow_exception(failed);
}

OwnNode::OwnNode(executor control, Clock& clock, result<Api*> api, std::string name)
    : name_(std::move(name)), no_access_(api ? Error() : api.error()) {
  auto changed = [this](const std::string&) {
    if (labels_changed_) labels_changed_();
    if (changed_) changed_();
  };
  if (api) node_ = std::make_unique<Informer>(control, clock, **api, kNodes, Which{name_}, changed, kSpread);
}

void OwnNode::start() {
  if (node_ && !std::exchange(started_, true)) node_->start();
}

task<> OwnNode::stop(Until until) {
  if (node_) co_await node_->stop(until);
}

result<> OwnNode::exists() const {
  if (!node_ || !node_->known() || node_->object()) return {};
  return Error{errc::not_found,
               "the API server knows no node '" + name_ + "': set --nodeid to the node's name in Kubernetes"};
}

result<std::map<std::string, std::string>> OwnNode::labels() const {
  const std::string what = "the labels of node " + name_;
  if (!node_) return with_context(what, no_access_);
  if (!node_->known())
    return Error{errc::unavailable,
                 what + " are not known yet" + (node_->failure() ? ": " + node_->failure()->error.text : "")};
  if (auto there = exists(); !there) return there.error();
  return node_of(*node_->object()).labels;
}

std::optional<Node> OwnNode::now() const {
  if (!node_ || node_->object() == nullptr) return std::nullopt;
  return node_of(*node_->object());
}

}  // namespace corbd::kube
