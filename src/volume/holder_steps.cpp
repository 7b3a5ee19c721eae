#include "holder_steps.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "holders.hpp"

namespace corbd::volume {
namespace {

/// Whether a client that had no watch, and is not blocklisted, has one again.
bool is_one_back(const std::vector<plan::Holder>& holders, const std::vector<std::string>& before,
                 const std::vector<std::string>& now) {
  const auto in = [](const std::vector<std::string>& all, const std::string& address) {
    return std::ranges::find(all, address) != all.end();
  };
  return std::ranges::any_of(holders, [&](const plan::Holder& holder) {
    return !holder.blocked && !in(before, holder.address) && in(now, holder.address);
  });
}

}  // namespace

task<result<>> HolderSteps::look(Volume& volume) {
  auto to = access(volume);
  if (!to) co_return to.error();
  const auto who = volume.facts.ownership;
  if (!who) co_return Error{errc::internal, "holders were asked for before the owner was known"};
  volume.facts.holders = co_await find_holders(ports_, *to, *volume.server.image(), *who, volume.id, deadline());
  co_return result<>();
}

task<result<>> HolderSteps::evict(Volume& volume, const step::Evict& step) {
  auto to = access(volume);
  if (!to) co_return to.error();
  // It took a while to learn whose they are. A living client that renews its watch has none for a moment.
  const auto before = std::exchange(volume.facts.ownership, std::nullopt);
  const auto now = co_await volume.server.image()->ownership(deadline());
  if (!now) co_return now.error();
  if (before && is_one_back(step.holders, before->foreign_watchers, now->foreign_watchers)) co_return result<>();
  auto done = co_await volume::evict(ports_, *to, step.holders, deadline());
  if (!done) co_return done;
  // This took a while, too, and a client may have opened the image since.
  volume.facts.holders.reset();
  for (const auto& holder : step.holders) {
    volume.facts.evicted.insert(holder.address);
    const std::string who = plan::text(holder);
    log::warning("volume.taken_over", {{"volume", volume.id}, {"client", who}});
    health_.notify(volume.id,
                   {"VolumeTakenOver", true,
                    "The image was taken from " + who + ", and the cluster refuses that client from now on."});
  }
  if (auto stopped = failpoint::hit("step.evict.fenced"); !stopped) co_return stopped;
  if (now->lock != image::Ownership::Lock::other || !volume.facts.evicted.contains(now->owner)) co_return result<>();
  auto broken = co_await volume.server.image()->break_dead_lock(now->owner, 0, deadline());
  // Another client has it since: the planner looks again.
  if (!broken && broken.error().code == errc::unproven) co_return result<>();
  co_return broken;
}

}  // namespace corbd::volume
