#include "other_clients.hpp"

#include <map>

#include "corbd/core/log.hpp"
#include "corbd/image/features.hpp"
#include "holders.hpp"

namespace corbd::volume {
namespace {

/// A client that is cut off writes nothing back, and the image is served to nobody before that is done or given up.
Error dirty_cache(const image::Key& key) {
  auto refused = image::refuse({image::kDirtyCache, 0}, false, "image " + key.text());
  refused->text +=
      ". No client was cut off: a living one could not store those writes any more. To give them up, cut it off with "
      "`corbd take VOLUME --also-dirty --yes-really` and then invalidate the cache";
  return *std::move(refused);
}

/// Returns why the take is refused; nothing: it is not.
std::optional<Error> refusal_to_take(const Holding& found, const ImageAt& at) {
  if (found.holders.empty())
    return Error{errc::failed_precondition,
                 "no other client has image " + found.key.text() + ": there is no client to take it from"};
  for (const auto& holder : found.holders)
    if (holder.node.state == plan::HolderNode::State::ready && !holder.blocked && !at.also_ready)
      return Error{errc::failed_precondition,
                   text(holder) + " is on a node that is ready: end its pods there. No client was cut off"};
  if (found.dirty_cache && !at.also_dirty) return dirty_cache(found.key);
  return std::nullopt;
}

}  // namespace

task<result<OtherClients::Place>> OtherClients::find(ImageAt at, Until until) {
  if (!at.volume_id.empty()) {
    const Volume* const known = volumes_.find(at.volume_id);
    if (known == nullptr || !known->record)
      co_return Error{errc::not_found, "volume " + at.volume_id +
                                           " has no record on this node: name its image and a Ceph user instead, or "
                                           "ask on the node where it is to be staged"};
    const auto to = access_of(ports_, *known->record, known->credentials.known());
    if (!to) co_return to.error();
    co_return Place{*to, known->record->key, known->record->device.index.has_value()};
  }
  const auto cluster = ports_.directory.find(at.cluster_id);
  if (!cluster) co_return cluster.error();
  const image::Access to{at.cluster_id, cluster->monitors, at.user, at.key};
  const auto found = co_await ports_.clusters.resolve(to, at.name, until);
  if (!found) co_return found.error();
  co_return Place{to, found->key, false};
}

/// A reader of an image has no watch, so this look keeps nobody out.
task<result<Holding>> OtherClients::look(const Place& place, const std::string& volume_id, Until until) {
  if (auto fenced = co_await ports_.clusters.fence_dead(place.to, until); !fenced) co_return fenced.error();
  image::OpenOptions options;
  options.read_only = options.despite_dirty_cache = true;
  auto image = co_await ports_.clusters.open(place.to, place.key, std::move(options), until);
  if (!image) co_return image.error();
  auto who = co_await (*image)->ownership(until);
  if (who) forget_own_kernel(ports_, place.key, *who);
  Holding found{place.key, (*image)->exclusive_lock(), {}};
  if (who) found.dirty_cache = (who->features.bits & image::kDirtyCache) != 0;
  if (who) found.holders = co_await find_holders(ports_, place.to, **image, *who, volume_id, until);
  static_cast<void>(co_await (*image)->close(until));
  if (!who) co_return who.error();
  co_return found;
}

task<result<Holding>> OtherClients::holders(ImageAt at, Until until) {
  const auto place = co_await find(at, until);
  if (!place) co_return place.error();
  co_return co_await look(*place, at.volume_id, until);
}

task<result<Holding>> OtherClients::take_image(ImageAt at, Until until) {
  const auto place = co_await find(at, until);
  if (!place) co_return place.error();
  if (place->has_device)
    co_return Error{errc::failed_precondition, "volume " + at.volume_id +
                                                   " has a device on this node: whether the image is its own, only "
                                                   "`corbd heal` finds out"};
  auto found = co_await look(*place, at.volume_id, until);
  if (!found) co_return found;
  if (const auto refused = refusal_to_take(*found, at)) co_return *refused;
  if (auto done = co_await evict(ports_, place->to, found->holders, until); !done) co_return done.error();
  for (auto& holder : found->holders) {
    holder.blocked = true;
    log::warning("volume.taken_by_hand",
                 {{"image", place->key.text()}, {"volume", at.volume_id}, {"client", text(holder)}});
    if (at.volume_id.empty()) continue;
    health_.notify(at.volume_id, {"VolumeTakenByHand", true,
                                  "An operator took the image from " + text(holder) +
                                      ", and the cluster refuses that client from now on."});
  }
  co_return found;
}

task<Users> OtherClients::users(std::string cluster_id, Until until) {
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
    auto to = access_of(ports_, *volume->record, volume->credentials.known());
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
