#include "adopt_steps.hpp"

#include "corbd/core/log.hpp"
#include "corbd/volume/condition.hpp"

namespace corbd::volume {
namespace {

/// After its link has ended, rbd-nbd still closes its image before it ends.
constexpr std::chrono::seconds kEndsWithin{60};
/// The device is served, so nobody waits long for a note that only its server's death will need.
constexpr std::chrono::seconds kForNote{3};

}  // namespace

/// Only warns: nobody but an operator can know that this process has nothing left to write.
void AdoptSteps::watch_silence(Volume& volume) {
  const auto devices = find_devices(volume, ports_);
  if (!volume.record || !devices || devices->size() != 1) return;
  volume.other.silence.look(devices->front().completed, devices->front().waiting, clock_.now());
  const Status status = status_of(volume, &devices->front(), {});
  const bool silent = status.other_silent >= kServerSilent;
  if (std::exchange(volume.other.silence_told, silent) || !silent) return;
  const Condition condition = condition_of(status);
  log::warning("device.server_silent",
               {{"volume", volume.id}, {"device", device::path(devices->front())}, {"cause", condition.message}});
  health_.notify(volume.id, {condition.reason, true, condition.message});
}

/// Opens the image to read only, which leaves no trace in the cluster.
task<result<image::Ownership>> AdoptSteps::read_beside(const Volume& volume, image::Access to,
                                                       image::OpenOptions options, Until until) {
  options.read_only = true;
  if (const auto fenced = co_await ports_.clusters.fence_dead(to, until); !fenced) co_return fenced.error();
  const auto opened = co_await ports_.clusters.open(to, volume.record->key, options, until);
  if (!opened) co_return opened.error();
  co_return co_await (*opened)->ownership(until);
}

/// Finds that process's client. Nothing is known if the cluster does not show it, or the process may be another one.
task<> AdoptSteps::look_at_uncached(Volume& volume, std::uint32_t index, std::string process) {
  if (volume.credentials.known().empty() ||
      (process == volume.other.uncached_process && !volume.record->adopting->uncached.empty()))
    co_return;
  auto to = access(volume);
  if (!to) co_return;
  const auto until = deadline().at_most(clock_.now() + kForNote);
  image::OpenOptions options;
  options.refuse_cache_metadata = true;
  auto who = co_await read_beside(volume, *to, options, until);
  if (!who) {
    log::info("device.cache_not_known", {{"volume", volume.id}, {"error", who.error().text}});
    co_return;
  }
  const auto still = co_await ports_.daemons.serving(index, volume.id, until);
  if (!still || still->uncached != process) co_return;
  volume.other.uncached_process = process;
  volume.facts.uncached = std::move(*who);
}

task<result<>> AdoptSteps::look(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  // Do this first, because the search for the process may wait for that process.
  watch_silence(volume);
  auto serving = co_await ports_.daemons.serving(*index, volume.id, deadline());
  if (!serving) co_return serving.error();
  volume.facts.served_by_other = serving->serving();
  volume.facts.uncached.reset();
  const bool did = std::exchange(volume.other.serves, serving->serving());
  volume.other.pids = serving->pids;
  if (serving->serving()) {
    // rbd-nbd lives on, so this is another one, with a link of its own.
    if (volume.other.died && clock_.now() - *volume.other.died > kEndsWithin) volume.other.died.reset();
    if (!volume.other.died) volume.history.unserved_since.reset();
    if (!serving->uncached.empty() && !volume.other.died && volume.record && volume.record->adopting)
      co_await look_at_uncached(volume, *index, serving->uncached);
    co_return result<>();
  }
  if (!volume.history.unserved_since) volume.history.unserved_since = clock_.now();
  if (did)
    log::info("device.left", {{"volume", volume.id}, {"device", device::path(*index)}, {"cause", "rbd-nbd has ended"}});
  co_return result<>();
}

task<result<>> AdoptSteps::look_beside(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  auto to = co_await find_access(volume);
  if (!to) co_return to.error();
  const auto pids = volume.other.pids;
  const auto until = deadline().at_most(clock_.now() + kForNote);
  auto who = co_await read_beside(volume, *to, {}, until);
  if (!who) co_return who.error();
  const auto still = co_await ports_.daemons.serving(*index, volume.id, until);
  if (!still) co_return still.error();
  if (!still->serving() || still->pids != pids)
    co_return Error{errc::unavailable, "rbd-nbd, which served volume " + volume.id + ", has ended meanwhile"};
  volume.facts.beside = std::move(*who);
  co_return result<>();
}

task<result<>> AdoptSteps::dismiss(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  log::warning("device.taking_over",
               {{"volume", volume.id}, {"device", device::path(*index)}, {"effect", "rbd-nbd is asked to end"}});
  auto gone = co_await ports_.daemons.dismiss(*index, volume.id, deadline());
  if (!gone) co_return gone;
  volume.other.serves = false;
  volume.other.pids.clear();
  if (!volume.history.unserved_since) volume.history.unserved_since = clock_.now();
  volume.facts.ownership.reset();
  volume.facts.served_by_other.reset();
  volume.facts.dismissed = true;
  co_return result<>();
}

task<result<>> AdoptSteps::inherit(Volume& volume, std::string address) {
  auto to = access(volume);
  if (!to) co_return to.error();
  auto done = co_await ports_.clusters.inherit(*to, address, deadline());
  if (!done) co_return done;
  log::warning("client.inherited",
               {{"volume", volume.id},
                {"address", address},
                {"effect", "this dead client of the node is in no record; it is fenced like one of this agent's own"}});
  volume.facts.ownership.reset();
  volume.facts.fenced.reset();
  co_return result<>();
}

}  // namespace corbd::volume
