// The steps of a device that rbd-nbd made.
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

/// From the end of its link to the end of rbd-nbd, which closes its image meanwhile.
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
    // Not the end of that link: another rbd-nbd was attached.
    if (live.other_died && clock_.now() - *live.other_died > kEndsWithin) live.other_died.reset();
    if (!live.other_died) live.unserved_since.reset();
    co_return result<>();
  }
  if (!live.unserved_since) live.unserved_since = clock_.now();
  if (did)
    log::warning("device.left",
                 {{"volume", live.id},
                  {"device", device::path(*index)},
                  {"hint", "rbd-nbd is dead; what its cache had acknowledged and not stored yet is lost"}});
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
  log::warning(
      "client.inherited",
      {{"volume", live.id},
       {"address", address},
       {"effect", "a dead client of this node, of which no record tells, is fenced as one of this agent's own"}});
  live.facts.ownership.reset();
  live.facts.fenced.reset();
  co_return result<>();
}

}  // namespace corbd::volume
