// A stage of an image that other clients have: waiting for them, and saying who they are.
#include <algorithm>
#include <map>

#include "corbd/core/log.hpp"
#include "holders.hpp"
#include "shell_impl.hpp"

namespace corbd::volume {
namespace {

// Between two tries.
constexpr duration kHolderPause = std::chrono::milliseconds(500), kLongestHolderPause = std::chrono::seconds(5);
// Between two looks whether the wait is over.
constexpr duration kLookUp = std::chrono::milliseconds(300);

/// What ended before anybody looked whose image it is does not end the time for which it is lost: an unpublish that had
/// nothing to do, or an unstage that waits for a helper. kubelet may repeat them more often than a volume is given up.
bool says_nothing(const Volume& volume, const Operation& operation) {
  if (volume.facts.ownership || volume.facts.attachment) return false;
  if (operation.outcome) return std::holds_alternative<Unpublished>(operation.wish);
  return operation.outcome.error().code == errc::unavailable && !std::holds_alternative<Healed>(operation.wish);
}

}  // namespace

/// A stage of an image that somebody else has is tried again until shortly before its caller leaves: kubelet's next try
/// comes late, and Nomad's third is its last. The image is closed meanwhile, because our watch must keep nobody out.
/// Whoever else wants something of the volume ends the wait.
task<> Shell::Impl::outlast_holders(Volume& volume, Operation& operation, Until until) {
  for (duration pause = kHolderPause;; pause = std::min(2 * pause, kLongestHolderPause)) {
    operation.outcome = co_await fulfil(volume, operation.wish);
    note_outcome(volume, operation);
    const auto& facts = volume.facts;
    const bool waits = std::holds_alternative<Staged>(operation.wish) && !operation.outcome &&
                       operation.outcome.error().code == errc::in_use && (facts.holders || !facts.evicted.empty());
    const auto now = clock_.now();
    if (!waits || until.deadline == time_point::max() || now >= until.deadline) co_return;
    const auto next = std::min(now + pause, until.deadline);
    while (clock_.now() < next) {
      if (leaving_ || cordoned_ || volume.operations.size() > 1) co_return;
      co_await sleep_until(control_, clock_, std::min(next, clock_.now() + kLookUp));
    }
  }
}

/// The pod that waits shows kubelet's Event; those that write already would show nothing.
void Shell::Impl::tell_read_only(const Volume& volume, const Operation& operation) const {
  if (operation.outcome || !std::holds_alternative<Published>(operation.wish)) return;
  const auto now = status(volume.id);
  if (!now || !now->turned_read_only) return;
  for (auto* listener : listeners_)
    listener->notify(volume.id, {"FilesystemReadOnly", true,
                                 "The filesystem turned read-only after an error, and another pod may not have it. End "
                                 "its pods on this node, so that it is unstaged; its next stage runs fsck."});
}

void Shell::Impl::note_outcome(Volume& volume, const Operation& operation) {
  if (volume.lost_since && volume.record && says_nothing(volume, operation)) return;
  volume.last_error.reset();
  if (!operation.outcome) volume.last_error = operation.outcome.error();
  const bool in_use = volume.last_error && volume.last_error->code == errc::in_use;
  if (!in_use) {
    volume.in_use_since.reset();
    volume.in_use_by.clear();
  } else if (!volume.in_use_since) {
    volume.in_use_since = clock_.now();
  }
  if (in_use && volume.facts.holders) {
    std::set<std::string> who;
    for (const auto& holder : *volume.facts.holders) who.insert(holder.address);
    if (std::exchange(volume.in_use_by, who) != who) {
      log::warning("volume.in_use", {{"volume", volume.id}, {"why", volume.last_error->text}});
      for (auto* listener : listeners_) listener->notify(volume.id, {"VolumeInUse", true, volume.last_error->text});
    }
  }
  tell_read_only(volume, operation);
  const bool lost = volume.last_error && volume.last_error->code == errc::lost;
  if (!lost) volume.lost_since.reset();
  if (lost && !volume.lost_since) volume.lost_since = clock_.now();
  // The cluster's key may have changed. The next try shows which of the two is right.
  if (volume.offered && !volume.tries_offered && volume.last_error &&
      volume.last_error->code == errc::unauthenticated) {
    std::swap(volume.key, *volume.offered);
    volume.key_saved = false;
  }
  note_health(volume, volume.last_error ? volume.last_error->text : std::string(name(operation.wish)) + " done");
}

task<result<Holding>> Shell::Impl::holders(ImageAt at, bool take, Until until) {
  if (!at.volume_id.empty()) {
    const auto known = volumes_.find(at.volume_id);
    if (known == volumes_.end() || !known->second->record)
      co_return Error{errc::not_found, "volume " + at.volume_id +
                                           " has no record on this node: name its image and a Ceph user instead, or "
                                           "ask on the node where it is to be staged"};
    const Volume& volume = *known->second;
    if (take && volume.record->device)
      co_return Error{errc::failed_precondition, "volume " + at.volume_id +
                                                     " has a device on this node: whether the image is its own, only "
                                                     "`corbd heal` finds out"};
    const auto to = access_of(ports_, *volume.record, volume.key);
    if (!to) co_return to.error();
    co_return co_await look_at_holders(*to, image::Key(volume.record->key), at, take, until);
  }
  const auto cluster = ports_.directory.find(at.cluster_id);
  if (!cluster) co_return cluster.error();
  const image::Access to{at.cluster_id, cluster->monitors, at.user, at.key};
  const auto found = co_await ports_.clusters.resolve(to, at.name, until);
  if (!found) co_return found.error();
  co_return co_await look_at_holders(to, found->key, at, take, until);
}

/// A reader of an image has no watch, so this look keeps nobody out.
task<result<Holding>> Shell::Impl::look_at_holders(const image::Access& to, const image::Key& key, const ImageAt& at,
                                                   bool take, Until until) {
  if (auto fenced = co_await ports_.clusters.fence_dead(to, until); !fenced) co_return fenced.error();
  image::OpenOptions options;
  options.read_only = true;
  auto image = co_await ports_.clusters.open(to, key, std::move(options), until);
  if (!image) co_return image.error();
  auto who = co_await (*image)->ownership(until);
  if (who) forget_own_kernel(ports_, key, *who);
  Holding found{key, (*image)->exclusive_lock(), {}};
  if (who) found.holders = co_await find_holders(ports_, to, **image, *who, at.volume_id, until);
  static_cast<void>(co_await (*image)->close(until));
  if (!who) co_return who.error();
  if (!take) co_return found;
  if (found.holders.empty())
    co_return Error{errc::failed_precondition,
                    "no other client has image " + key.text() + ": there is nobody to take it from"};
  for (const auto& holder : found.holders)
    if (holder.node.state == plan::HolderNode::State::ready && !holder.blocked && !at.also_ready)
      co_return Error{errc::failed_precondition,
                      text(holder) + " is on a node that lives: end its pods there. Nobody was cut off"};
  if (auto done = co_await evict(ports_, to, found.holders, until); !done) co_return done.error();
  for (auto& holder : found.holders) {
    holder.blocked = true;
    log::warning("volume.taken_by_hand", {{"image", key.text()}, {"volume", at.volume_id}, {"from", text(holder)}});
    if (at.volume_id.empty()) continue;
    for (auto* listener : listeners_)
      listener->notify(at.volume_id, {"VolumeTakenByHand", true,
                                      "An operator took the image from " + text(holder) +
                                          ", and the cluster refuses that client from now on."});
  }
  co_return found;
}

task<Users> Shell::Impl::users(std::string cluster_id, Until until) {
  struct Pool {
    image::Access access;
    std::string text;
  };
  std::map<std::pair<std::int64_t, std::string>, Pool> pools;
  Users seen;
  for (const auto& [id, volume] : volumes_) {
    if (!volume->record || volume->record->source.cluster_id != cluster_id) continue;
    const auto& key = volume->record->key;
    if (pools.contains({key.pool_id, key.ns})) continue;
    auto to = access_of(ports_, *volume->record, volume->key);
    if (!to) continue;
    pools.emplace(std::pair(key.pool_id, key.ns), Pool{std::move(*to), volume->record->source.pool});
  }
  if (pools.empty())
    seen.not_looked.push_back("this node has no volume of cluster " + cluster_id + ", so it could look at no pool");
  for (const auto& [place, pool] : pools) {
    auto found = co_await ports_.clusters.users(pool.access, place.first, place.second, until);
    const std::string missing = found ? found->incomplete : found.error().text;
    if (!missing.empty()) seen.not_looked.push_back("pool " + pool.text + ": " + missing);
    if (found) seen.users.insert(seen.users.end(), found->users.begin(), found->users.end());
  }
  co_return seen;
}

}  // namespace corbd::volume
