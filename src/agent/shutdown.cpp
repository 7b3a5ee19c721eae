#include "shutdown.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <utility>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/host/service.hpp"
#include "corbd/keeper/keeper.hpp"

namespace corbd::agent {
namespace {

constexpr std::chrono::seconds kLeaveWithin{2};
constexpr std::chrono::milliseconds kAdminLeavesWithin{100};
// This must fit into the pod's terminationGracePeriodSeconds.
constexpr std::chrono::seconds kCommandsEndWithin{90};
// Used when the next agent takes over.
constexpr std::chrono::seconds kClientsEndWithin{2};
constexpr std::chrono::milliseconds kSignalArrivesWithin{10};
constexpr std::chrono::milliseconds kLooksForCallers{20};
const failpoint::Places kGivingPlaces({"handover.given"});

}  // namespace

Shutdown::Shutdown(executor control, Clock& clock, const Parts& parts)
    : control_(std::move(control)), clock_(clock), parts_(parts) {}

task<result<lifecycle::Event>> Shutdown::carry_out(lifecycle::HandingOverAction action) {
  using Do = lifecycle::HandingOver;
  result<> done;
  switch (action.what) {
    case Do::release_listeners:
      release_listeners();
      break;
    case Do::await_callers:
      co_await await_callers(action.within);
      break;
    case Do::quiesce:
      done = co_await parts_.shell.quiesce();
      break;
    case Do::ask_next: {
      const bool ready = co_await parts_.giver.next_answers(action.within);
      if (!ready) done = Error{errc::unavailable, "the next agent has ended"};
      break;
    }
    case Do::hand_over_lock:
      done = co_await parts_.giver.hand_over_lock(parts_.lock);
      break;
    case Do::serve_on:
      done = co_await serve_on();
      break;
    case Do::stop_new_work:
      co_await stop_new_work();
      break;
    case Do::end_callers:
      co_await end_callers(action.within);
      break;
    case Do::unregister:
      co_await unregister();
      break;
    case Do::tell_successor:
      co_await tell_successor();
      break;
    case Do::note_reserve:
      co_await note_reserve();
      break;
    case Do::hand_over_listeners:
      done = hand_over_listeners();
      break;
    case Do::stop_volumes:
      co_await stop_volumes(action.within);
      break;
    case Do::hand_over_links:
      done = co_await hand_over_links();
      break;
    case Do::hear_last_signals:
      co_await hear_last_signals();
      break;
  }
  if (!done) failure_ = done.error();
  if (!done) co_return done.error();
  co_return lifecycle::Done{};
}

task<result<lifecycle::Event>> Shutdown::carry_out(lifecycle::LeavingAction action) {
  using Do = lifecycle::Leaving;
  switch (action.what) {
    case Do::stop_new_work:
      log::info("agent.leaving");
      co_await stop_new_work();
      break;
    case Do::stop_volumes:
      co_await stop_volumes(action.within);
      break;
    case Do::end_callers:
      co_await end_callers(action.within);
      break;
    case Do::close_clients:
      co_await close_clients();
      break;
    case Do::unregister:
      co_await unregister();
      break;
  }
  co_return lifecycle::Done{};
}

/// From here on no next agent is heard, no metrics are served, and nothing is healed.
task<> Shutdown::stop_new_work() {
  parts_.giver.stop();
  co_await end_commands();
  co_await parts_.web.stop({clock_.now()});
  co_await parts_.health.stop();
  co_await parts_.healer.stop();
  until_ = {clock_.now() + kLeaveWithin};
}

/// A process cannot end inside a command to the kernel's nbd driver: its thread would keep the lock of the state
/// directory, and the sockets, which nobody would serve. A resize may wait for the very requests that are served here.
task<> Shutdown::end_commands() {
  if (co_await parts_.devices.end_commands({clock_.now()}) == Waited::ready) co_return;
  log::warning("agent.waits", {{"cause", "a command to the kernel's nbd driver is under way"},
                               {"at_most_s", kCommandsEndWithin.count()},
                               {"effect", "devices are served meanwhile"}});
  if (co_await parts_.devices.end_commands({clock_.now() + kCommandsEndWithin}) == Waited::ready) co_return;
  log::error("agent.exits_during_command",
             {{"effect", "the next agent starts only after the kernel has finished the command"},
              {"hint", "`dmesg` shows what nbd waits for"}});
}

/// Callers that come from now on wait for the next agent. kubelet sees no change, and keeps the driver registered.
void Shutdown::release_listeners() {
  // The next agent will have them, or nobody: leave them to its keeper alone.
  parts_.listeners.drop_all(parts_.csi);
  if (!parts_.giver.next_listens()) return;
  callers_ = parts_.csi.release();
  if (!parts_.registrar) return;
  registered_ = parts_.registrar->now().state == csi::Registered::State::registered;
  registration_ = parts_.registrar->release();
}

/// The steps of the callers' volumes go on meanwhile.
task<> Shutdown::await_callers(duration within) {
  const auto until = clock_.now() + within;
  while (parts_.csi.in_flight() > 0 && clock_.now() < until)
    static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kLooksForCallers));
}

/// The next agent has ended, or was not ready any more. The agent that asks next finds everything as it was.
task<result<>> Shutdown::serve_on() {
  parts_.giver.leave();
  parts_.shell.resume();
  log::warning("handover.undone", {{"cause", failure_ ? failure_->text : ""}, {"effect", "this agent serves on"}});
  failure_.reset();
  auto note = [&folder = parts_.options.state_dir, &held = parts_.lock] { return note_lock_holder(folder, held); };
  static_cast<void>(co_await parts_.files.run(std::move(note), {}, "noting who has the lock"));
  if (auto adopted = parts_.csi.adopt(std::move(callers_)); !adopted) co_return adopted;
  callers_.clear();
  parts_.listeners.keep_all(parts_.csi);
  if (registration_) co_return parts_.registrar->adopt(std::move(registration_));
  co_return result<>();
}

task<> Shutdown::end_callers(duration calls_within) {
  co_await parts_.csi.stop(until_.at_most(clock_.now() + calls_within));
  co_await parts_.admin.stop(until_.at_most(clock_.now() + kAdminLeavesWithin));
  co_await parts_.node.stop(until_);
  co_await parts_.kubernetes.stop(until_);
}

/// kubelet unstages no volume of a driver that it does not know. It forgets this driver only if the driver does not
/// come back.
task<> Shutdown::unregister() {
  if (parts_.registrar) co_await parts_.registrar->stop({clock_.now()});
}

/// Tell systemd while devices are still served, because its answer may take time.
task<> Shutdown::tell_successor() {
  auto job = [next = parts_.giver.next_process()]() -> result<> {
    host::tell_successor(next);
    return {};
  };
  static_cast<void>(co_await parts_.files.run(std::move(job), {}, "telling systemd who serves next"));
}

task<> Shutdown::note_reserve() {
  auto job = [folder = parts_.options.runtime_dir, pod = parts_.options.pod] {
    return handover::note_pod_in_reserve(folder, pod);
  };
  if (const auto noted = co_await parts_.files.run(std::move(job), {}, "noting that this pod is in reserve"); !noted)
    log::warning("handover.reserve_not_noted",
                 {{"error", noted.error().text}, {"effect", "this pod will ask for the devices again"}});
}

result<> Shutdown::hand_over_listeners() {
  result<> given;
  for (auto& socket : callers_)
    if (given) given = parts_.giver.hand_over_listener(std::move(socket), false);
  callers_.clear();
  // kubelet's call may have been under way when the socket was released.
  if (registration_) registered_ |= parts_.registrar->now().state == csi::Registered::State::registered;
  if (given && registration_) given = parts_.giver.hand_over_listener(std::move(registration_), registered_);
  registration_.reset();
  return given;
}

task<result<>> Shutdown::hand_over_links() {
  links_ = co_await parts_.shell.hand_over([this](device::LinkSocket one) { return hand_over(std::move(one)); });
  // A dead next agent leaves locks that it did not take. Nobody ends their watches, and nobody answers them, so the
  // next start fences these clients as after a crash.
  if (parts_.giver.has_next())
    if (auto closed = co_await parts_.clusters.shutdown({clock_.now() + kClientsEndWithin}, {clock_.now()}); !closed)
      log::warning("clusters.not_closed", {{"error", closed.error().text}});
  co_return parts_.giver.end();
}

task<volume::Taken> Shutdown::hand_over(device::LinkSocket one) {
  const auto given = co_await parts_.giver.hand_over(one);
  // This agent is its only owner, so it ends like every link that is not resumed (Devices::end_links).
  if (one.socket) parts_.devices.of(one.kind).take(one.device, one.volume_id, std::move(one.socket));
  static_cast<void>(failpoint::hit("handover.given"));
  if (!given) log::warning("volume.handover_failed", {{"volume", one.volume_id}, {"error", given.error().text}});
  if (!given) co_return volume::Taken::refused;
  co_return *given ? volume::Taken::served : volume::Taken::later;
}

/// Answers the requests that were read, and keeps the locks: they are the next start's proof of ownership
/// (docs/healing.md#leaving). The images stay open for that, and the process ends without the destructors that would
/// close them.
task<> Shutdown::stop_volumes(duration within) {
  callers_.clear();
  registration_.reset();
  co_await parts_.shell.stop({clock_.now() + within});
}

/// Without a volume no image is open. The clients then end cleanly, and the next start has nothing to fence.
task<> Shutdown::close_clients() {
  if (!parts_.shell.status().empty()) co_return;
  if (auto closed = co_await parts_.clusters.shutdown(until_); !closed)
    log::warning("clusters.not_closed", {{"error", closed.error().text}});
}

/// Handles signals that came while the devices were handed over. A later signal ends the process.
task<> Shutdown::hear_last_signals() {
  if (failure_)
    log::error("agent.not_handed_over",
               {{"error", failure_->text}, {"links", links_}, {"effect", "the next start heals every device"}});
  else
    log::info("agent.handed_over", {{"links", links_}});
  log::drain(kLogEndsWithin);
  ::signal(SIGTERM, SIG_DFL);
  static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kSignalArrivesWithin));
}

}  // namespace corbd::agent
