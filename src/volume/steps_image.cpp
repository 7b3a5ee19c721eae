// The steps for the image: fence its dead clients; open, lock and close it; or put a tombstone in its place.
#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {

bool Steps::is_gone(const Volume& volume, const Error& error) {
  return volume.record->device.has_value() && error.code == errc::not_found;
}

task<result<>> Steps::fence(Volume& volume) {
  auto to = access(volume);
  if (!to) co_return to.error();
  auto fenced = co_await ports_.clusters.fence_dead(*to, soon());
  if (!fenced && fenced.error().code == errc::node_fenced) {
    volume.facts.node_fenced = fenced.error();
    co_return result<>();
  }
  if (!fenced) co_return fenced;
  volume.facts.fenced = true;
  log::info("cluster.fenced", {{"volume", volume.id}, {"cluster", volume.record->source.cluster_id}});
  co_return result<>();
}

task<result<>> Steps::open_image(Volume& volume) {
  auto to = access(volume);
  if (!to) co_return to.error();
  image::OpenOptions options;
  options.read_only = volume.record->read_only || !traits(volume.record->kind).served;
  const auto opening = ++volume.opening;
  const auto alive = std::weak_ptr<char>(volume.alive);
  options.on_resized = [this, &volume, alive, opening] {
    if (!alive.expired() && volume.connected && volume.opening == opening)
      report_failure_(volume, "the size of its image changed");
  };
  options.on_lost = [this, &volume, alive, opening](const std::string& why) {
    if (alive.expired() || volume.opening != opening) return;
    volume.lock_held = volume.writer_marked = false;
    volume.image_lost = true;
    if (volume.link)
      volume.link->hold();
    else
      report_failure_(volume, why);
  };
  auto opened = co_await ports_.clusters.open(*to, volume.record->key, options, soon());
  if (!opened && is_gone(volume, opened.error())) {
    volume.facts.gone = true;
    co_return result<>();
  }
  if (!opened) {
    const Source& source = volume.record->source;
    co_return with_context("image " + image::Name{source.pool, source.ns, source.image}.text(), opened.error());
  }
  volume.image = std::move(*opened);
  volume.lock_held = volume.writer_marked = false;
  volume.facts.ownership.reset();
  log::info("image.opened", {{"volume", volume.id}, {"image", volume.record->key.text()}});
  co_await key_worked(volume);
  co_return result<>();
}

task<result<>> Steps::open_tombstone(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  volume.image = make_tombstone(volume.record->key, volume.record->size, volume.record->read_only);
  volume.tombstone = true;
  log::error(
      "volume.failed",
      {{"volume", volume.id},
       {"device", device::path(*index)},
       {"hint", "every request gets an I/O error from now on: end the volume's pods, unstage it, and stage it again"}});
  co_return result<>();
}

task<result<>> Steps::take_lock(Volume& volume) {
  const auto ownership = volume.facts.ownership;
  volume.facts.ownership.reset();
  if (ownership && ownership->lock == image::Ownership::Lock::our_dead) {
    auto broken = co_await volume.image->break_dead_lock(ownership->owner, break_mark(ownership->version), soon());
    if (!broken) co_return broken;
    if (auto stopped = failpoint::hit("step.lock.broken"); !stopped) co_return stopped;
  }
  auto locked = co_await volume.image->acquire_lock(soon());
  // Somebody may have come since the look. The planner looks again.
  if (!locked && locked.error().code == errc::in_use && !volume.image->exclusive_lock()) co_return result<>();
  if (!locked) co_return locked;
  volume.modified = ownership ? ownership->modified : std::nullopt;
  // Nobody has a proof of what is new. The stamp tells others who had the image that it is theirs no more.
  const auto devices = find_devices(volume, ports_);
  if (!volume.record->device || (devices && devices->empty())) {
    const auto stamped = co_await volume.image->stamp(soon());
    if (!stamped) co_return stamped.error();
    volume.modified = *stamped;
  }
  (volume.image->exclusive_lock() ? volume.lock_held : volume.writer_marked) = true;
  log::info(volume.lock_held ? "image.locked" : "image.marked",
            {{"volume", volume.id}, {"was", ownership ? ownership->owner : ""}});
  co_return result<>();
}

void Steps::forget_image(Volume& volume) {
  ++volume.opening;
  volume.image.reset();
  volume.closing = volume.tombstone = volume.lock_held = volume.writer_marked = volume.image_lost = false;
  volume.modified.reset();
  // Facts of the node's paths, of the attachment and of other clients stay. Facts of the image go.
  Facts kept;
  kept.cleared = std::move(volume.facts.cleared);
  kept.stash = std::move(volume.facts.stash);
  kept.attachment = std::move(volume.facts.attachment);
  kept.holders = std::move(volume.facts.holders);
  kept.evicted = std::move(volume.facts.evicted);
  kept.node_fenced = std::move(volume.facts.node_fenced);
  volume.facts = std::move(kept);
}

task<result<>> Steps::close_image(Volume& volume) {
  // A volume that is given up gets its tombstone at once, even if the cluster holds up the close.
  if (volume.record && volume.record->failed && !volume.tombstone) {
    close_later_(nullptr, std::move(volume.image));
    forget_image(volume);
    co_return result<>();
  }
  // Its client may be refused no more. Then the close would give back the lock, which proves that the image is ours.
  if (volume.image_lost && !volume.closing)
    if (auto to = access(volume)) static_cast<void>(co_await ports_.clusters.fence_dead(*to, soon()));
  volume.closing = true;
  auto closed = co_await volume.image->close(soon());
  if (!closed) co_return closed;
  forget_image(volume);
  co_return result<>();
}

}  // namespace corbd::volume
