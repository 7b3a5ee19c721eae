#include "image_steps.hpp"

#include <cerrno>
#include <utility>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "snapshots.hpp"

namespace corbd::volume {
namespace {

/// Whether the image behind the device is gone, even if another one has its name now. This is a fact for the planner,
/// not a failure.
bool is_gone(const Volume& volume, const Error& error) {
  return volume.record->device.index.has_value() && error.code == errc::not_found;
}

}  // namespace

task<result<>> ImageSteps::fence(Volume& volume) {
  auto to = co_await find_access(volume);
  if (!to) co_return to.error();
  auto fenced = co_await ports_.clusters.fence_dead(*to, deadline());
  if (!fenced && fenced.error().code == errc::node_fenced) {
    volume.facts.node_fenced = fenced.error();
    co_return result<>();
  }
  if (!fenced) co_return fenced;
  volume.facts.fenced = true;
  log::info("cluster.fenced", {{"volume", volume.id}, {"cluster", volume.record->source.cluster_id}});
  co_return result<>();
}

task<result<>> ImageSteps::look(Volume& volume, Fact fact) {
  Facts& facts = volume.facts;
  if (fact == Fact::header) co_return co_await look_at_header(volume);
  if (fact == Fact::ownership) co_return co_await look_at_ownership(volume);
  if (fact == Fact::image_size) {
    auto asked = co_await volume.server.image()->refresh(deadline());
    facts.image_size_asked = asked.has_value();
    co_return asked;
  }
  if (fact == Fact::has_data) {
    auto found = co_await volume.server.image()->has_data(long_deadline());
    if (!found) co_return found.error();
    facts.has_data = *found;
    co_return result<>();
  }
  if (fact == Fact::io_limits) {
    co_await look_at_io_limits(volume);
    co_return result<>();
  }
  auto found = co_await volume.server.image()->metadata(kFormatMarker, deadline());
  if (!found) co_return found.error();
  facts.format_marker = found->value_or("");
  co_return result<>();
}

task<result<>> ImageSteps::look_at_header(Volume& volume) {
  auto to = co_await find_access(volume);
  if (!to) co_return to.error();
  auto found = co_await ports_.clusters.header(*to, volume.record->key, deadline());
  if (!found && !is_gone(volume, found.error())) co_return found.error();
  if (found)
    volume.facts.header = *found;
  else
    volume.facts.gone = true;
  co_return result<>();
}

task<result<>> ImageSteps::look_at_ownership(Volume& volume) {
  auto found = co_await volume.server.image()->ownership(deadline());
  if (!found) co_return found.error();
  // The kernel client behind the volume's own device is not a foreign watcher.
  if (!traits(volume.record->device.kind).served)
    if (const auto device = device_of(volume)) std::erase(found->foreign_watchers, device->client);
  volume.facts.ownership = std::move(*found);
  co_return result<>();
}

task<result<OwnImage>> ImageSteps::open_as_asked(Volume& volume, image::Access to, Until until) {
  image::OpenOptions options;
  options.read_only = volume.record->use.read_only || !traits(volume.record->device.kind).served;
  // rbd-nbd ends first, and its clean end removes the feature.
  options.despite_dirty_cache = volume.record->adopting && volume.facts.served_by_other == true;
  const auto lost = std::make_shared<bool>(false);
  // The volume may be served by another image, which was opened before or is opened after this one. It may be gone when
  // an image that it gave away closes in the background.
  const auto serves = [&volume, still = std::weak_ptr<bool>(lost)] {
    const auto now = still.lock();
    if (!now) return false;
    const OwnImage* open = volume.server.own();
    return open != nullptr && open->access_lost == now;
  };
  options.on_resized = [this, &volume, serves] {
    if (serves() && volume.server.connected()) health_.report_failure(volume, "the size of its image changed");
  };
  options.on_lost = [this, &volume, still = std::weak_ptr<bool>(lost), serves](const std::string& why) {
    if (const auto now = still.lock()) *now = true;
    if (!serves()) return;
    volume.server.own()->right = WriteRight::none;
    if (volume.server.link() != nullptr)
      volume.server.link()->hold();
    else
      health_.report_failure(volume, why);
  };
  auto opened = co_await ports_.clusters.open(std::move(to), volume.record->key, options, until);
  if (!opened) co_return opened.error();
  co_return OwnImage{std::move(*opened), volume.credentials.asks_with(), lost, clock_.now()};
}

task<> ImageSteps::watch_snapshots(Volume& volume) {
  volume.quiesces = false;
  if (!can_quiesce(*volume.record)) co_return;
  // A cluster that does not tell it delays no healing, and takes no freeze from a volume that asks for it.
  const auto told = co_await volume.server.image()->metadata(std::string(kQuiesceMode), soon());
  const OwnImage* const own = volume.server.own();
  if (own == nullptr || !quiesces(*volume.record, config_, told ? *told : std::nullopt)) co_return;
  const auto here = [still = std::weak_ptr<bool>(own->access_lost)] { return !still.expired(); };
  image::QuiesceHandlers handlers;
  handlers.asked = [this, here, id = volume.id](image::QuiesceHandlers::Answer answer) {
    if (here()) return snapshots_.asked(id, std::move(answer));
    // It is about to close, and may wait long for that.
    answer(-ESHUTDOWN);
  };
  handlers.ended = [this, here, id = volume.id] {
    if (here()) snapshots_.ended(id);
  };
  const auto begun = co_await own->image->watch_quiesce(std::move(handlers), deadline());
  volume.quiesces = begun.has_value();
  if (!begun)
    log::warning("snapshot.not_watched",
                 {{"volume", volume.id},
                  {"error", begun.error().text},
                  {"effect", "its filesystem is not frozen for snapshots until the image is opened again"}});
}

task<result<>> ImageSteps::open(Volume& volume) {
  auto to = co_await find_access(volume);
  if (!to) co_return to.error();
  auto next = std::exchange(volume.client_change.next, std::nullopt);
  const bool usable = next && next->opened_as == volume.credentials.asks_with() && !*next->access_lost;
  result<OwnImage> opened = Error{};
  if (usable)
    opened = std::move(*next);
  else
    opened = co_await open_as_asked(volume, *to, deadline());
  if (!opened && is_gone(volume, opened.error())) {
    volume.facts.gone = true;
    co_return result<>();
  }
  // No answer says nothing about the pool.
  if (!opened && opened.error().code == errc::timed_out)
    if (const auto full = co_await ports_.clusters.why_full(*to, volume.record->key.pool_id, soon()); full && *full)
      opened = Error{errc::pool_full, **full};
  if (!opened) {
    const Source& source = volume.record->source;
    Error error = with_context("image " + image::Name{source.pool, source.ns, source.image}.text(), opened.error());
    if (!volume.record->adopting || error.code != errc::unsafe_config) co_return error;
    volume.facts.unsafe_config = std::move(error);
    co_return result<>();
  }
  volume.server.set(std::move(*opened));
  co_await watch_snapshots(volume);
  volume.facts.ownership.reset();
  log::info("image.opened", {{"volume", volume.id}, {"image", volume.record->key.text()}});
  if (const auto cluster = ports_.directory.find(volume.record->source.cluster_id);
      cluster && !cluster->reads_unknown.empty())
    log::warning("image.without_read_policy",
                 {{"volume", volume.id},
                  {"cause", cluster->reads_unknown},
                  {"effect",
                   "reads go to the primary OSD until the image is opened again: by the next stage, start or "
                   "handover"}});
  volume.credentials.worked();
  if (const auto why = ports_.clusters.cannot_fence(*to); why && !volume.record->use.read_only)
    health_.notify(volume.id, {"FencingNotAllowed", true, *why + "."});
  co_return result<>();
}

task<result<>> ImageSteps::open_tombstone(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  volume.server.set(
      Tombstone{make_tombstone(volume.record->key, volume.record->device.size, volume.record->use.read_only)});
  log::error(
      "volume.failed",
      {{"volume", volume.id},
       {"device", device::path(*index)},
       {"hint", "every request gets an I/O error from now on: end the volume's pods, unstage it, and stage it again"}});
  co_return result<>();
}

task<result<bool>> ImageSteps::take_lock(Volume& volume) {
  const std::string client = volume.server.image()->client();
  // The steady clock of a suspended machine stands still.
  const auto began = clock_.now();
  const auto began_wall = clock_.wall();
  const auto took_before = std::exchange(volume.server.own()->lock_took, duration::max());
  // That client may be cut off before this call ends, and its lock stay.
  if (volume.server.image()->exclusive_lock()) {
    volume.history.lockers.insert(client);
    volume.history.late_lockers.insert(client);
  }
  auto locked = co_await volume.server.image()->acquire_lock(deadline());
  OwnImage& open = *volume.server.own();
  const bool changed = !locked && locked.error().code == (open.image->exclusive_lock() ? errc::unproven : errc::in_use);
  // A call that failed is over, too. One that its caller left may have its effect at any time, also before this one.
  const bool left = !locked && (locked.error().code == errc::timed_out || locked.error().code == errc::cancelled);
  if (locked)
    open.lock_took = open.image->lock_took();
  else if (!left && !changed && took_before != duration::max())
    open.lock_took = std::max<duration>(clock_.now() - began, clock_.wall() - began_wall);
  const bool late = open.lock_took > plan::kProofLasts;
  if (!late && !*open.access_lost) volume.history.late_lockers.erase(client);
  if (late) volume.facts.attachment.reset();
  if (!locked && !changed) co_return locked.error();
  co_return locked.has_value();
}

task<result<>> ImageSteps::lock(Volume& volume) {
  const auto ownership = volume.facts.ownership;
  volume.facts.ownership.reset();
  if (ownership && ownership->lock == image::Ownership::Lock::our_dead) {
    auto broken =
        co_await volume.server.image()->break_dead_lock(ownership->owner, break_time(ownership->version), deadline());
    if (!broken) co_return broken;
    if (auto stopped = failpoint::hit("step.lock.broken"); !stopped) co_return stopped;
  }
  const auto taken = co_await take_lock(volume);
  if (!taken) co_return taken.error();
  // The planner looks again.
  if (!*taken) co_return result<>();
  OwnImage& open = *volume.server.own();
  open.modified = ownership ? ownership->modified : std::nullopt;
  // A new device has no earlier owner to prove. The stamp tells other nodes that had the image that it is no longer
  // theirs.
  const auto devices = find_devices(volume, ports_);
  if (!volume.record->device.index || (devices && devices->empty())) {
    const auto stamped = co_await volume.server.image()->stamp(deadline());
    if (!stamped) co_return stamped.error();
    open.modified = *stamped;
  }
  if (*open.access_lost) co_return result<>();
  open.right = open.image->exclusive_lock() ? WriteRight::exclusive_lock : WriteRight::writers_mark;
  log::info(open.right == WriteRight::exclusive_lock ? "image.locked" : "image.marked",
            {{"volume", volume.id}, {"previous_owner", ownership ? ownership->owner : ""}});
  co_return result<>();
}

void ImageSteps::forget_facts(Volume& volume) {
  Facts kept;
  kept.cleared = std::move(volume.facts.cleared);
  kept.stash = std::move(volume.facts.stash);
  kept.attachment = std::move(volume.facts.attachment);
  kept.holders = std::move(volume.facts.holders);
  kept.evicted = std::move(volume.facts.evicted);
  kept.node_fenced = std::move(volume.facts.node_fenced);
  kept.damage = std::move(volume.facts.damage);
  volume.facts = std::move(kept);
}

void ImageSteps::close_in_background(Volume& volume, std::unique_ptr<device::Link> link) {
  const OwnImage* const open = volume.server.own();
  std::optional<image::Access> given_up;
  if (volume.record && volume.record->failed && open != nullptr)
    if (auto as = access_of(ports_, *volume.record, open->opened_as)) given_up = std::move(*as);
  close_in_background_(std::move(link), volume.server.take_image(), std::move(given_up));
  forget_facts(volume);
}

task<result<>> ImageSteps::close(Volume& volume) {
  OwnImage* const open = volume.server.own();
  // A volume that is given up gets its tombstone at once, even if the cluster holds up the close.
  if (volume.record && volume.record->failed && open != nullptr) {
    close_in_background(volume, nullptr);
    co_return result<>();
  }
  // The blocklist entry of its client may have ended. Then the close would release the lock, which proves that the
  // image is ours.
  const bool gone = open != nullptr && open->image->client_given_up();
  if (open != nullptr && *open->access_lost && (gone || !open->closing))
    if (auto to = access(volume)) static_cast<void>(co_await ports_.clusters.fence_dead(*to, deadline()));
  if (open != nullptr) open->closing = true;
  auto closed = co_await volume.server.image()->close(gone ? soon() : deadline());
  if (!closed && gone) {
    close_in_background(volume, nullptr);
    co_return result<>();
  }
  if (!closed) co_return closed;
  const bool kept = open != nullptr && open->lock_kept == LockKept::yes;
  auto image = volume.server.take_image();
  if (kept) volume.client_change.previous = std::move(image);
  forget_facts(volume);
  co_return result<>();
}

task<result<>> ImageSteps::set_format_marker(Volume& volume) {
  auto set = co_await volume.server.image()->set_metadata(kFormatMarker, volume.record->format->marker, deadline());
  if (set) volume.facts.format_marker = volume.record->format->marker;
  if (!traits(volume.record->device.kind).served)
    volume.facts.ownership.reset();  // the marker raised the header's version
  co_return set;
}

task<result<>> ImageSteps::remove_format_marker(Volume& volume) {
  auto removed = co_await volume.server.image()->remove_metadata(kFormatMarker, deadline());
  if (removed) volume.facts.format_marker = "";
  co_return removed;
}

}  // namespace corbd::volume
