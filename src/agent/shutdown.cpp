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
// Sessions and operations come first. Neither calls under way nor mere readers may take their time.
constexpr std::chrono::milliseconds kVolumesLeaveWithin{1600}, kCallsLeaveWithin{200}, kAdminLeavesWithin{100};
// Within the pod's terminationGracePeriodSeconds.
constexpr std::chrono::seconds kCommandsEndWithin{90};
// When the next agent takes over.
constexpr std::chrono::seconds kClientsEndWithin{2}, kNextAnswersWithin{5};
constexpr std::chrono::milliseconds kSignalArrivesWithin{10};
const failpoint::Places kGivingPlaces({"handover.given"});

}  // namespace

Shutdown::Shutdown(executor control, Clock& clock, const Parts& parts)
    : control_(std::move(control)), clock_(clock), parts_(parts) {}

/// A process cannot end inside a command to the kernel's nbd driver: its thread would keep the lock of the state
/// directory, and the sockets, which nobody serves then. A resize may wait for the very requests that are served
/// here.
task<> Shutdown::end_commands() {
  if (co_await parts_.devices.end_commands({clock_.now()}) == Waited::ready) co_return;
  log::warning("agent.waits", {{"why", "a command to the kernel's nbd driver is under way"},
                               {"at_most_s", kCommandsEndWithin.count()},
                               {"effect", "devices are served meanwhile"}});
  if (co_await parts_.devices.end_commands({clock_.now() + kCommandsEndWithin}) == Waited::ready) co_return;
  log::error("agent.leaves_in_command", {{"effect", "the next agent starts when the kernel has ended it"},
                                         {"hint", "`dmesg` tells what nbd waits for"}});
}

/// No next agent is heard, nobody reads metrics, and nothing is healed any more.
task<> Shutdown::begin_nothing() {
  parts_.giver.stop();
  co_await end_commands();
  co_await parts_.web.stop({clock_.now()});
  co_await parts_.health.stop();
  co_await parts_.healer.stop();
}

task<> Shutdown::end_callers(Until until, duration calls_within) {
  co_await parts_.csi.stop(until.at_most(clock_.now() + calls_within));
  co_await parts_.admin.stop(until.at_most(clock_.now() + kAdminLeavesWithin));
  co_await parts_.node.stop(until);
  co_await parts_.kubernetes.stop(until);
}

/// The end goes the other way: no reader of the metrics, no new healing, no step of a volume, then whoever still
/// waits for an answer, and the registration last.
///
/// Answers what was read, and keeps the locks: they are the next start's proof of ownership (docs/healing.md#leaving).
/// So the images stay open, and the process ends without the destructors that would close them.
task<> Shutdown::leave() {
  log::info("agent.leaving");
  co_await begin_nothing();
  const Until until{clock_.now() + kLeaveWithin};
  co_await parts_.shell.stop(until.at_most(clock_.now() + kVolumesLeaveWithin));
  co_await end_callers(until, kCallsLeaveWithin);
  // Without a volume no image is open. The clients then end well, and the next start has nobody to fence.
  if (parts_.shell.status().empty())
    if (auto closed = co_await parts_.clusters.shutdown(until); !closed)
      log::warning("clusters.not_closed", {{"error", closed.error().text}});
  // Do this last: kubelet unstages no volume of a driver that it does not know. It forgets this driver only if the
  // driver does not come back.
  if (parts_.registrar) co_await parts_.registrar->stop({clock_.now()});
  log::info("agent.left");
  log::drain(kLogEndsWithin);
  ::_exit(0);
}

/// A planned restart: the next agent waits. Callers end first, while devices are served. Then each device stands
/// still until the next agent serves it, a few at a time.
task<> Shutdown::hand_over() {
  hands_over_ = co_await parts_.giver.begins(kNextAnswersWithin);
  if (!hands_over_) co_return;
  log::info("agent.hands_over");
  co_await begin_nothing();
  auto listeners = release_listeners();
  co_await end_callers({clock_.now() + kLeaveWithin}, kLeaveWithin);
  if (parts_.registrar) co_await parts_.registrar->stop({clock_.now()});
  auto given =
      co_await parts_.shell.quiesce() ? result<>() : Error{errc::state_write, "a record is still being written"};
  if (given && !co_await parts_.giver.next_answers(kNextAnswersWithin))
    given = Error{errc::unavailable, "the next agent has ended"};
  if (given) {
    co_await tell_successor();
    co_await note_reserve();
    given = co_await parts_.giver.begin(parts_.lock);
  }
  std::size_t links = 0;
  for (auto& one : listeners)
    if (given) given = parts_.giver.give_listener(std::move(one.socket), one.registered);
  listeners.clear();
  if (given) {
    links = co_await parts_.shell.give([this](device::LinkSocket one) { return give(std::move(one)); });
    // If the next agent has died, nobody ends the watches of the locks that it did not take, and nobody answers them.
    // So the next start fences these clients, as after a crash.
    if (parts_.giver.has_next())
      if (auto closed = co_await parts_.clusters.shutdown({clock_.now() + kClientsEndWithin}, {clock_.now()}); !closed)
        log::warning("clusters.not_closed", {{"error", closed.error().text}});
    given = parts_.giver.end();
  } else {
    co_await parts_.shell.stop({clock_.now() + kVolumesLeaveWithin});
  }
  if (given)
    log::info("agent.handed_over", {{"links", links}});
  else
    log::error("agent.not_handed_over",
               {{"error", given.error().text}, {"given", links}, {"effect", "the next start heals every device"}});
  log::drain(kLogEndsWithin);
  const bool to_end = co_await ends_by_signal();
  if (given && !to_end && stays_in_reserve()) go_into_reserve();
  ::_exit(given ? 0 : 1);
}

/// Callers that come from now on wait for the next agent. kubelet sees no change, and keeps the driver registered.
std::vector<Shutdown::Listening> Shutdown::release_listeners() {
  std::vector<Listening> all;
  if (!parts_.giver.next_listens()) return all;
  for (Fd& socket : parts_.csi.release()) all.push_back({std::move(socket)});
  if (!parts_.registrar) return all;
  const bool registered = parts_.registrar->now().state == csi::Registered::State::registered;
  if (Fd socket = parts_.registrar->release()) all.push_back({std::move(socket), registered});
  return all;
}

/// With nothing of what it was. A keeper does that for its agent.
void Shutdown::go_into_reserve() const {
  if (parts_.options.keeper) ::_exit(keeper::kBeginsAnew);
  begin_anew();
}

task<volume::Taken> Shutdown::give(device::LinkSocket one) {
  const auto given = co_await parts_.giver.give(one);
  // Nobody else has it. It ends as all links that nobody goes on with (Devices::end_links).
  if (one.socket) parts_.devices.take(one.device, one.volume_id, std::move(one.socket));
  static_cast<void>(failpoint::hit("handover.given"));
  if (!given) log::warning("volume.not_given", {{"volume", one.volume_id}, {"error", given.error().text}});
  if (!given) co_return volume::Taken::refused;
  co_return *given ? volume::Taken::served : volume::Taken::later;
}

/// While devices are served: systemd may take its time.
task<> Shutdown::tell_successor() {
  auto job = [next = parts_.giver.next_process()]() -> result<> {
    host::tell_successor(next);
    return {};
  };
  static_cast<void>(co_await parts_.files.run(std::move(job), {}, "telling systemd who serves next"));
}

/// Whether a signal came while the devices were given. One that comes later ends the process.
task<bool> Shutdown::ends_by_signal() {
  ::signal(SIGTERM, SIG_DFL);
  static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kSignalArrivesWithin));
  co_return parts_.told_to_end;
}

task<> Shutdown::note_reserve() {
  if (parts_.told_to_end || !stays_in_reserve()) co_return;
  auto job = [folder = parts_.options.runtime_dir, pod = parts_.options.pod] {
    return handover::note_pod_in_reserve(folder, pod);
  };
  if (const auto noted = co_await parts_.files.run(std::move(job), {}, "noting that this pod is in reserve"); !noted)
    log::warning("handover.reserve_not_noted",
                 {{"error", noted.error().text}, {"effect", "this pod will ask for the devices again"}});
}

}  // namespace corbd::agent
