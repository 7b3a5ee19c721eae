// The steps for a device that rbd-nbd made.
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

/// After its link has ended, rbd-nbd still closes its image before it ends.
constexpr std::chrono::seconds kEndsWithin{60};

}  // namespace

task<result<>> Steps::look_at_other(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  auto serving = co_await ports_.daemons.serving(*index, live.id, soon());
  if (!serving) co_return serving.error();
  live.facts.served_by_other = *serving;
  const bool did = std::exchange(live.served_by_other, *serving);
  if (*serving) {
    // rbd-nbd lives on, so this is another one, with a link of its own.
    if (live.other_died && clock_.now() - *live.other_died > kEndsWithin) live.other_died.reset();
    if (!live.other_died) live.unserved_since.reset();
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
