#include "corbd/orchestrator/startup_taint.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"

namespace corbd::orchestrator {
namespace {

/// Between two tries. The node is of no use to pods meanwhile.
constexpr Backoff kPauses{std::chrono::milliseconds(500), std::chrono::milliseconds(10'000)};

}  // namespace

std::string startup_taint(const std::string& driver) { return driver + "/agent-not-ready"; }

std::string taint_stays_because(const TaintView& view) {
  if (!view.registered) return "kubelet has not registered this driver yet";
  if (!view.all_served && view.since_started < kTaintWaitsForVolumes)
    return "volumes of this node wait for healing (see: corbd volumes)";
  return {};
}

StartupTaint::StartupTaint(executor control, Clock& clock, const result<kube::Api*>& api, const kube::OwnNode& own,
                           const volume::Volumes& volumes, Config config)
    : control_(control),
      clock_(clock),
      api_(api ? *api : nullptr),
      own_(own),
      volumes_(volumes),
      config_(std::move(config)),
      key_(startup_taint(config_.driver)),
      gate_(control, clock) {}

void StartupTaint::start() {
  started_ = clock_.now();
  note_node();
}

bool StartupTaint::is_there() const {
  const auto node = own_.now();
  return node && std::ranges::find(node->taints, key_) != node->taints.end();
}

bool StartupTaint::all_served() const {
  return std::ranges::none_of(volumes_.status(), [](const volume::Status& one) { return one.unserved; });
}

void StartupTaint::note_node() {
  if (api_ == nullptr || at_it_ || stopping_.cancelled()) return;
  if (!is_there()) return why_.clear();
  if (!config_.remove)
    return tell("this agent was not told to remove it (--remove-startup-taint, the chart's nodeplugin.startupTaint)");
  at_it_ = true;
  gate_.spawn(run(*this));
}

task<> StartupTaint::run(StartupTaint& self) {
  for (std::uint32_t tries = 0; self.is_there() && !self.stopping_.cancelled(); ++tries) {
    auto stays = co_await self.try_to_remove();
    self.tell(stays ? std::move(*stays) : stays.error().text);
    const auto at = self.clock_.now() + kPauses.after(tries, uniform());
    static_cast<void>(co_await sleep_until(self.control_, self.clock_, at, &self.stopping_));
  }
  self.at_it_ = false;
  self.why_.clear();
}

/// Reads the Node afresh, because the patch names places in its list of taints.
task<result<std::string>> StartupTaint::try_to_remove() {
  auto* const scope = &stopping_;
  const auto csi_node =
      co_await api_->get(kube::kCSINodes, config_.node, {clock_.now() + config_.answer_within, scope});
  if (!csi_node && csi_node.error().error.code != errc::not_found) co_return csi_node.error().error;
  auto stays = taint_stays_because({.registered = csi_node && kube::lists_driver(*csi_node, config_.driver),
                                    .all_served = all_served(),
                                    .since_started = clock_.now() - started_});
  if (!stays.empty()) co_return stays;
  const auto node = co_await api_->get(kube::kNodes, config_.node, {clock_.now() + config_.answer_within, scope});
  if (!node) co_return node.error().error;
  auto operations = kube::without_taint(*node, key_);
  // The watch lags behind.
  if (operations.empty()) co_return std::string();
  const auto patched = co_await api_->json_patch(kube::kNodes, config_.node, std::move(operations),
                                                 {clock_.now() + config_.answer_within, scope});
  if (!patched) co_return patched.error().error;
  log::info("startup_taint.removed", {{"taint", key_}, {"node", config_.node}});
  co_return std::string();
}

void StartupTaint::tell(std::string why) {
  if (why == why_) return;
  why_ = std::move(why);
  if (!why_.empty() && !stopping_.cancelled())
    log::warning("startup_taint.stays", {{"taint", key_}, {"node", config_.node}, {"cause", why_}});
}

task<> StartupTaint::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

}  // namespace corbd::orchestrator
