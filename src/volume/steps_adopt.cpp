// The steps for a device that rbd-nbd made.
#include "corbd/core/log.hpp"
#include "corbd/volume/condition.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

/// After its link has ended, rbd-nbd still closes its image before it ends.
constexpr std::chrono::seconds kEndsWithin{60};
/// What serves the device answers. Nobody waits long for what only its death will need.
constexpr std::chrono::seconds kForNote{3};

}  // namespace

/// Only tells: nobody but an operator can know that this process has nothing to write any more.
void Steps::watch_silence(Volume& live) {
  const auto devices = find_devices(live, ports_);
  if (!live.record || !devices || devices->size() != 1) return;
  live.other_silence.look(devices->front().completed, devices->front().waiting, clock_.now());
  const Status status = status_of(live, &devices->front(), {});
  const bool silent = status.other_silent >= kServerSilent;
  if (std::exchange(live.silence_told, silent) || !silent) return;
  const Condition condition = condition_of(status);
  log::warning("device.server_silent",
               {{"volume", live.id}, {"device", device::path(devices->front())}, {"why", condition.message}});
  notify_(live, {condition.reason, true, condition.message});
}

/// Which client that process is. Nothing is known where the cluster does not tell, or the process may be another one.
task<> Steps::look_at_uncached(Volume& live, std::uint32_t index, std::string process) {
  if (live.key.empty() || (process == live.uncached_process && !live.record->uncached.empty())) co_return;
  auto to = access(live);
  if (!to) co_return;
  const auto until = soon().at_most(clock_.now() + kForNote);
  if (const auto fenced = co_await ports_.clusters.fence_dead(*to, until); !fenced) co_return;
  image::OpenOptions options;
  options.read_only = options.refuse_cache_metadata = true;
  const auto opened = co_await ports_.clusters.open(*to, live.record->key, options, until);
  if (!opened) {
    log::info("device.cache_not_known", {{"volume", live.id}, {"error", opened.error().text}});
    co_return;
  }
  auto who = co_await (*opened)->ownership(until);
  if (!who) co_return;
  const auto still = co_await ports_.daemons.serving(index, live.id, until);
  if (!still || still->uncached != process) co_return;
  live.uncached_process = process;
  live.facts.uncached = std::move(*who);
}

task<result<>> Steps::look_at_other(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  // First, because the look for the process may wait for that process.
  watch_silence(live);
  auto serving = co_await ports_.daemons.serving(*index, live.id, soon());
  if (!serving) co_return serving.error();
  live.facts.served_by_other = serving->serving();
  live.facts.uncached.reset();
  const bool did = std::exchange(live.served_by_other, serving->serving());
  live.other_pids = serving->pids;
  if (serving->serving()) {
    // rbd-nbd lives on, so this is another one, with a link of its own.
    if (live.other_died && clock_.now() - *live.other_died > kEndsWithin) live.other_died.reset();
    if (!live.other_died) live.unserved_since.reset();
    if (!serving->uncached.empty() && !live.other_died && live.record && live.record->adopting)
      co_await look_at_uncached(live, *index, serving->uncached);
    co_return result<>();
  }
  if (!live.unserved_since) live.unserved_since = clock_.now();
  if (did)
    log::info("device.left", {{"volume", live.id}, {"device", device::path(*index)}, {"why", "rbd-nbd has ended"}});
  co_return result<>();
}

task<result<>> Steps::dismiss(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  log::warning("device.taking_over",
               {{"volume", live.id}, {"device", device::path(*index)}, {"effect", "rbd-nbd is asked to end"}});
  auto gone = co_await ports_.daemons.dismiss(*index, live.id, soon());
  if (!gone) co_return gone;
  live.served_by_other = false;
  live.other_pids.clear();
  if (!live.unserved_since) live.unserved_since = clock_.now();
  live.facts.ownership.reset();
  live.facts.served_by_other.reset();
  live.facts.dismissed = true;
  co_return result<>();
}

task<result<>> Steps::inherit(Volume& live, std::string address) {
  auto to = access(live);
  if (!to) co_return to.error();
  auto done = co_await ports_.clusters.inherit(*to, address, soon());
  if (!done) co_return done;
  log::warning("client.inherited",
               {{"volume", live.id},
                {"address", address},
                {"effect", "this dead client of the node is in no record; it is fenced like one of this agent's own"}});
  live.facts.ownership.reset();
  live.facts.fenced.reset();
  co_return result<>();
}

}  // namespace corbd::volume
