// The steps for the image: fence its dead clients; open, lock and close it; or put a tombstone in its place.
#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {

bool Steps::is_gone(const Volume& live, const Error& error) {
  return live.record->device.has_value() && error.code == errc::not_found;
}

task<result<>> Steps::fence(Volume& live) {
  auto to = access(live);
  if (!to) co_return to.error();
  auto fenced = co_await ports_.clusters.fence_dead(*to, soon());
  if (!fenced && fenced.error().code == errc::node_fenced) {
    live.facts.node_fenced = fenced.error();
    co_return result<>();
  }
  if (!fenced) co_return fenced;
  live.facts.fenced = true;
  log::info("cluster.fenced", {{"volume", live.id}, {"cluster", live.record->source.cluster_id}});
  co_return result<>();
}

task<result<>> Steps::open_image(Volume& live) {
  auto to = access(live);
  if (!to) co_return to.error();
  image::OpenOptions options;
  options.read_only = live.record->read_only || !traits(live.record->kind).served;
  const auto opening = ++live.opening;
  const auto alive = std::weak_ptr<char>(live.alive);
  options.on_resized = [this, &live, alive, opening] {
    if (!alive.expired() && live.connected && live.opening == opening)
      report_failure_(live, "the size of its image changed");
  };
  options.on_lost = [this, &live, alive, opening](const std::string& why) {
    if (alive.expired() || live.opening != opening) return;
    live.lock_held = live.writer_marked = false;
    live.image_lost = true;
    if (live.link)
      live.link->hold();
    else
      report_failure_(live, why);
  };
  auto opened = co_await ports_.clusters.open(*to, live.record->key, options, soon());
  if (!opened && is_gone(live, opened.error())) {
    live.facts.gone = true;
    co_return result<>();
  }
  if (!opened) {
    const Source& source = live.record->source;
    co_return with_context("image " + image::Name{source.pool, source.ns, source.image}.text(), opened.error());
  }
  live.image = std::move(*opened);
  live.lock_held = live.writer_marked = false;
  live.facts.ownership.reset();
  log::info("image.opened", {{"volume", live.id}, {"image", live.record->key.text()}});
  co_await key_worked(live);
  co_return result<>();
}

task<result<>> Steps::open_tombstone(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  live.image = make_tombstone(live.record->key, live.record->size, live.record->read_only);
  live.tombstone = true;
  log::error(
      "volume.failed",
      {{"volume", live.id},
       {"device", device::path(*index)},
       {"hint", "every request gets an I/O error from now on: end the volume's pods, unstage it, and stage it again"}});
  co_return result<>();
}

task<result<>> Steps::take_lock(Volume& live) {
  const auto ownership = live.facts.ownership;
  live.facts.ownership.reset();
  if (ownership && ownership->lock == image::Ownership::Lock::our_dead) {
    auto broken = co_await live.image->break_dead_lock(ownership->owner, break_mark(ownership->version), soon());
    if (!broken) co_return broken;
    if (auto stopped = failpoint::hit("step.lock.broken"); !stopped) co_return stopped;
  }
  auto locked = co_await live.image->acquire_lock(soon());
  // Somebody may have come since the look. The planner looks again.
  if (!locked && locked.error().code == errc::in_use && !live.image->exclusive_lock()) co_return result<>();
  if (!locked) co_return locked;
  live.modified = ownership ? ownership->modified : std::nullopt;
  // Nobody has a proof of what is new. The stamp tells others who had the image that it is theirs no more.
  const auto devices = find_devices(live, ports_);
  if (!live.record->device || (devices && devices->empty())) {
    const auto stamped = co_await live.image->stamp(soon());
    if (!stamped) co_return stamped.error();
    live.modified = *stamped;
  }
  (live.image->exclusive_lock() ? live.lock_held : live.writer_marked) = true;
  log::info(live.lock_held ? "image.locked" : "image.marked",
            {{"volume", live.id}, {"was", ownership ? ownership->owner : ""}});
  co_return result<>();
}

void Steps::forget_image(Volume& live) {
  ++live.opening;
  live.image.reset();
  live.closing = live.tombstone = live.lock_held = live.writer_marked = live.image_lost = false;
  live.modified.reset();
  // Facts of the node's paths, of the attachment and of other clients stay. Facts of the image go.
  Facts kept;
  kept.cleared = std::move(live.facts.cleared);
  kept.stash = std::move(live.facts.stash);
  kept.attachment = std::move(live.facts.attachment);
  kept.holders = std::move(live.facts.holders);
  kept.evicted = std::move(live.facts.evicted);
  kept.node_fenced = std::move(live.facts.node_fenced);
  live.facts = std::move(kept);
}

task<result<>> Steps::close_image(Volume& live) {
  // A volume that is given up gets its tombstone at once, even if the cluster holds up the close.
  if (live.record && live.record->failed && !live.tombstone) {
    bury_(nullptr, std::move(live.image));
    forget_image(live);
    co_return result<>();
  }
  // Its client may be refused no more. Then the close would give back the lock, which proves that the image is ours.
  if (live.image_lost && !live.closing)
    if (auto to = access(live)) static_cast<void>(co_await ports_.clusters.fence_dead(*to, soon()));
  live.closing = true;
  auto closed = co_await live.image->close(soon());
  if (!closed) co_return closed;
  forget_image(live);
  co_return result<>();
}

}  // namespace corbd::volume
