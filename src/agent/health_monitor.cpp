#include "health_monitor.hpp"

#include "corbd/core/log.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/host/system.hpp"
#include "corbd/rpc/calls.hpp"

namespace corbd::agent {
namespace {

using std::chrono::seconds;

// This is the pod's terminationGracePeriodSeconds.
constexpr std::chrono::seconds kLeavesWithin{240};
constexpr seconds kAskBusEvery{60}, kAskApiEvery{30}, kAnnounceEvery{10};
/// A pod becomes ready up to this much later than its agent. Our own socket is asked at the same pace, however often
/// somebody asks about it.
constexpr seconds kBeatEvery{2};
/// At this pace a whole fleet costs a working API server next to nothing.
constexpr std::chrono::minutes kAnswerIsFresh{5};
constexpr std::chrono::milliseconds kBusPatience{500};

task<result<>> ask_bus(BlockingPool& names, Until until) {
  const auto stopping = co_await names.run([] { return host::system_stopping(kBusPatience); }, until,
                                           "asking whether the node shuts down");
  if (!stopping) co_return stopping.error();
  co_return result<>();
}

ops::Registration registration_of(const std::optional<csi::Registrar>& registrar) {
  using To = ops::Registration::State;
  using From = csi::Registered::State;
  if (!registrar) return {To::unasked, "a sidecar may, and kubelet's log tells"};
  const auto& now = registrar->now();
  return {now.state == From::registered  ? To::registered
          : now.state == From::refused   ? To::refused
          : now.state == From::elsewhere ? To::elsewhere
                                         : To::waits,
          now.text};
}

}  // namespace

HealthMonitor::HealthMonitor(executor control, Clock& clock, const Needs& needs)
    : clock_(clock),
      needs_(needs),
      lag_(clock),
      state_dir_(control, clock, needs.files, needs.state_dir),
      // Under another init a bus that answers is still useful: another login manager may be on it.
      system_bus_(
          control, clock, "the system bus", kAskBusEvery,
          [&names = needs.names](Until until) { return ask_bus(names, until); }, host::other_init()) {
  if (needs.api)
    api_server_.emplace(control, clock, "the API server", kAskApiEvery,
                        [api = *needs.api](Until until) { return api->look(kAnswerIsFresh, until); });
}

void HealthMonitor::start() {
  beat();
  lag_.start();
  state_dir_.start();
  system_bus_.start();
  if (api_server_) api_server_->start();
}

task<> HealthMonitor::stop() {
  clock_.cancel(announces_);
  clock_.cancel(beats_);
  if (needs_.pod_file >= 0) handover::note_last_pulse(needs_.pod_file, kLeavesWithin);
  lag_.stop();
  co_await state_dir_.stop();
  co_await system_bus_.stop();
  if (api_server_) co_await api_server_->stop();
}

ops::Outsider HealthMonitor::api_server() const {
  if (api_server_) return api_server_->now();
  const Error& why = needs_.api.error();
  const bool none = why.code == errc::failed_precondition;
  return {none ? ops::Outsider::State::unused : ops::Outsider::State::silent, why.text};
}

void HealthMonitor::start_serving(std::function<void(const volume::Notice&)> tell) {
  tell_ = std::move(tell);
  // The socket has been served for a moment already.
  csi_ = rpc::answers(needs_.endpoint);
  look_again();
}

void HealthMonitor::look_again() {
  const auto now = facts();
  for (const auto& notice : announcements_.step(now, clock_.now())) tell_(notice);
  // An Event needs a Node.
  if (!now.own_node && !told_of_node_) log::warning("node.unknown", {{"error", now.own_node.error().text}});
  told_of_node_ = !now.own_node;
  announces_ = clock_.schedule(clock_.now() + kAnnounceEvery, [this] { look_again(); });
}

void HealthMonitor::beat() {
  csi_ = rpc::answers(needs_.endpoint);
  if (needs_.pod_file >= 0) note_pulse();
  beats_ = clock_.schedule(clock_.now() + kBeatEvery, [this] { beat(); });
}

void HealthMonitor::note_pulse() const {
  std::string why;
  // Before that, another agent may answer on the same sockets.
  if (!tell_)
    why = "this pod's agent does not serve yet: it takes over, or waits for the agent that serves";
  else
    for (const auto& reason : ops::judge(facts()).not_ready()) why += (why.empty() ? "" : "; ") + reason;
  handover::note_pulse(needs_.pod_file, why);
}

std::optional<ops::KeeperFacts> HealthMonitor::keeper() const {
  if (needs_.keeper == nullptr) return std::nullopt;
  const auto& deaths = needs_.keeper->deaths();
  // Do not use clock_ here: the rooms may have another clock.
  return ops::KeeperFacts{needs_.keeper->deaf(), deaths.count, deaths.signal,
                          std::chrono::steady_clock::now() - deaths.last, deaths.pause};
}

ops::NodeFacts HealthMonitor::facts() const {
  ops::NodeFacts facts;
  facts.loop_lag = lag_.now();
  if (needs_.cordon.now()) facts.cordoned = needs_.cordon.now()->text();
  facts.csi = csi_;
  facts.drivers = needs_.devices.ready();
  facts.state_dir = state_dir_.state();
  facts.registration = registration_of(needs_.registrar);
  facts.api_server = api_server();
  facts.system_bus = system_bus_.now();
  facts.own_node = needs_.node.exists();
  facts.metrics = needs_.metrics();
  facts.keeper = keeper();
  return facts;
}

}  // namespace corbd::agent
