// The steps for an image that other clients have.
#include "corbd/core/log.hpp"
#include "holders.hpp"
#include "steps.hpp"

namespace corbd::volume {

task<result<>> Steps::look_at_holders(Volume& live) {
  auto to = access(live);
  if (!to) co_return to.error();
  const auto who = live.facts.ownership;
  if (!who) co_return Error{errc::internal, "holders were asked for before the owner was known"};
  live.facts.holders = co_await find_holders(ports_, *to, *live.image, *who, live.id, soon());
  co_return result<>();
}

task<result<>> Steps::evict(Volume& live, const step::Evict& step) {
  auto to = access(live);
  if (!to) co_return to.error();
  auto done = co_await volume::evict(ports_, *to, step.holders, soon());
  if (!done) co_return done;
  // It took a while, and somebody may have opened the image since.
  live.facts.ownership.reset();
  live.facts.holders.reset();
  for (const auto& holder : step.holders) {
    live.facts.evicted.insert(holder.address);
    const std::string who = plan::text(holder);
    log::warning("volume.taken_over", {{"volume", live.id}, {"from", who}});
    notify_(live, {"VolumeTakenOver", true,
                   "The image was taken from " + who + ", and that client was cut off from the cluster for good."});
  }
  co_return result<>();
}

}  // namespace corbd::volume
