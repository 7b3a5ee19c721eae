#include "steps.hpp"

#include <algorithm>
#include <utility>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

/// Facts that this node knows itself.
bool of_node(Fact fact) {
  switch (fact) {
    case Fact::probe:
    case Fact::filesystem:
    case Fact::unused:
    case Fact::stash:
    case Fact::luks:
    case Fact::keys:
    case Fact::served_by_other:
      return true;
    default:
      return false;
  }
}

bool needs_image(Fact fact) {
  switch (fact) {
    case Fact::ownership:
    case Fact::image_size:
    case Fact::has_data:
    case Fact::format_marker:
    case Fact::encryption:
    case Fact::keys:
      return true;
    default:
      return false;
  }
}

/// Whether the step speaks to the cluster: what it did not get in time, the cluster did not answer.
bool asks_cluster(const Step& step) {
  switch (step.kind) {
    case Step::Kind::look:
      return !of_node(step.fact);
    case Step::Kind::fence:
    case Step::Kind::stop_session:
    case Step::Kind::close_image:
    case Step::Kind::open_image:
    case Step::Kind::lock:
    case Step::Kind::inherit:
    case Step::Kind::map_krbd:
    case Step::Kind::mark:
    case Step::Kind::luks_note:
    case Step::Kind::note:
    case Step::Kind::unmark:
      return true;
    default:
      return false;
  }
}

/// The very image of a device is gone, whatever has its name now: a fact to decide on, no failure.
bool is_gone(const Live& live, const Error& error) {
  return live.record->device.has_value() && error.code == errc::not_found;
}

}  // namespace

Until Steps::soon() const { return {clock_.now() + config_.step_limit}; }
Until Steps::later() const { return {clock_.now() + config_.long_step_limit}; }
Until Steps::while_served(Live& live, Until until) const {
  until.scope = &live.link_scopes.back();
  return until;
}

task<result<>> Steps::run(Live& live, const Step& step, const Wish& wish) {
  const std::string point = "step." + std::string(name(step.kind));
  if (auto stopped = failpoint::hit(point + ".before"); !stopped) co_return stopped;
  auto outcome = co_await dispatch(live, step, wish);
  if (!outcome) {
    Error error = outcome.error();
    // Its client is cut off for good, and without a link nothing else closes it: the next try opens it on another one.
    if (error.code == errc::fenced && live.image && !live.link) static_cast<void>(co_await close_image(live));
    // Whoever wanted it is still there: it was the link that ended.
    if (error.code == errc::cancelled && live.link_scopes.size() > 1) error.code = errc::unavailable;
    if (asks_cluster(step) && (error.code == errc::unavailable || error.code == errc::timed_out))
      error.code = errc::unreachable;
    co_return error;
  }
  log::debug("step.done", {{"volume", live.id}, {"step", name(step.kind)}});
  co_return failpoint::hit(point + ".after");
}

task<result<>> Steps::dispatch(Live& live, const Step& step, const Wish& wish) {
  switch (step.kind) {
    case Step::Kind::look:
      co_return co_await look(live, step, wish);
    case Step::Kind::write_record:
      co_return co_await write_record(live, step);
    case Step::Kind::fence:
      co_return co_await fence(live);
    case Step::Kind::open_image:
      co_return co_await open_image(live);
    case Step::Kind::open_tombstone:
      co_return co_await open_tombstone(live);
    case Step::Kind::dismiss:
      co_return co_await dismiss(live);
    case Step::Kind::inherit:
      co_return co_await inherit(live, step.path);
    case Step::Kind::write_stash:
      co_return co_await write_stash(live, step);
    case Step::Kind::drop_stash:
      co_return co_await drop_stash(live, step.path);
    case Step::Kind::note:
      co_return co_await note(live, *step.note_text, wish);
    case Step::Kind::lock:
      co_return co_await take_lock(live);
    case Step::Kind::start_session:
      co_return co_await start_session(live);
    case Step::Kind::kernel_connect:
      co_return co_await kernel_connect(live);
    case Step::Kind::kernel_reconfigure:
      co_return co_await kernel_reconfigure(live);
    case Step::Kind::kernel_resize:
      co_return co_await kernel_resize(live);
    case Step::Kind::mark:
      co_return co_await mark(live);
    case Step::Kind::unmark:
      co_return co_await unmark(live);
    case Step::Kind::mkfs:
      co_return co_await make_filesystem(live, wish);
    case Step::Kind::fsck:
      co_return co_await check_filesystem(live);
    case Step::Kind::grow:
      co_return co_await grow(live, step.path, wish);
    case Step::Kind::trim:
      co_return co_await trim(live, step.path);
    case Step::Kind::bind:
      co_return co_await bind(live, step.path, wish);
    case Step::Kind::map_krbd:
      co_return co_await map_krbd(live);
    case Step::Kind::unmap_krbd:
      co_return co_await unmap_krbd(live);
    case Step::Kind::disconnect:
      co_return co_await disconnect(live);
    case Step::Kind::stop_session:
      co_return co_await stop_session(live);
    case Step::Kind::close_image:
      co_return co_await close_image(live);
    case Step::Kind::drop_record:
      co_return co_await drop_record(live, wish);
    case Step::Kind::umount:
    case Step::Kind::unbind:
      co_return co_await unmount(live, step);
    case Step::Kind::tune: {
      const auto index = device_index(live);
      if (!index) co_return index.error();
      // Without the busy file, and not in line behind the volumes of its cluster: these may wait for the healing.
      auto tuned = co_await ports_.filesystems.tune("nbd" + std::to_string(*index),
                                                    HelperOwner("", "healing of " + owner(live).whose),
                                                    while_served(live, soon()));
      if (tuned) live.untuned = false;
      co_return tuned;
    }
    case Step::Kind::mount:
      co_return co_await mount(live, step.path, wish);
    case Step::Kind::luks_format:
      co_return co_await luks_format(live, wish);
    case Step::Kind::luks_note:
      co_return co_await luks_note(live);
    case Step::Kind::luks_open:
      co_return co_await luks_open(live, wish);
    case Step::Kind::luks_resize:
      co_return co_await luks_resize(live);
    case Step::Kind::luks_close:
      co_return co_await luks_close(live);
    case Step::Kind::add_key:
      co_return co_await add_key(live, wish);
    case Step::Kind::new_key:
      co_return co_await new_key(live, wish);
    case Step::Kind::remove_key:
      co_return co_await remove_key(live, step.key_slot);
  }
  co_return Error{errc::internal, "a step without hands: " + std::string(name(step.kind))};
}

result<image::Access> Steps::access(const Live& live) const {
  const Source& source = live.record->source;
  auto cluster = ports_.find_cluster(source.cluster_id);
  if (!cluster) return cluster.error();
  return image::Access{source.cluster_id, cluster->monitors, live.record->user, live.asks_with(),
                       cephcsi::with_affinity(source.serving.config, cluster->crush_location)};
}

HelperOwner Steps::owner(const Live& live) const {
  return {ports_.records.busy_file(live.id),
          live.record ? "cluster " + live.record->source.cluster_id : "volumes without a record"};
}

std::uint64_t Steps::dead_conn_timeout_s(const Live& live) const {
  return live.record->source.serving.dead_conn_timeout_s.value_or(config_.dead_conn_timeout_s);
}

result<device::Seen> Steps::device_of(const Live& live) const {
  const auto found = find_devices(live, ports_);
  if (!found) return found.error();
  if (!found->empty()) return found->front();
  return Error{errc::unavailable, "the device of volume " + live.id + " is gone"};
}

result<std::uint32_t> Steps::device_index(const Live& live) const {
  auto device = device_of(live);
  if (!device) return device.error();
  return device->index;
}

result<std::string> Steps::device_path(const Live& live) const {
  auto device = device_of(live);
  if (!device) return device.error();
  return device::path(*device);
}

result<std::string> Steps::data_path(const Live& live) const {
  if (!live.record->kms_id.empty()) return "/dev/mapper/" + mapping_name(live.id);
  return device_path(live);
}

task<result<>> Steps::look(Live& live, const Step& step, const Wish& wish) {
  Facts& facts = live.facts;
  if (needs_image(step.fact) && !live.image)
    co_return Error{errc::unavailable,
                    "the image of volume " + live.id + " is not open here, because rbd-nbd serves it: repeat later"};
  switch (step.fact) {
    case Fact::resolved: {
      if (const auto* staged = std::get_if<Staged>(&wish)) co_return co_await resolve(live, *staged);
      co_return Error{errc::internal, "only a stage resolves an image"};
    }
    case Fact::stash:
      co_return co_await look_at_stash(live, wish);
    case Fact::served_by_other:
      co_return co_await look_at_other(live);
    case Fact::encryption:
    case Fact::luks:
    case Fact::keys:
      co_return co_await look_at_luks(live, step.fact, wish);
    case Fact::header: {
      auto to = access(live);
      if (!to) co_return to.error();
      auto found = co_await ports_.clusters.header(*to, live.record->key, soon());
      if (!found && is_gone(live, found.error())) {
        facts.gone = true;
        co_return result<>();
      }
      if (!found) co_return found.error();
      facts.header = *found;
      co_return result<>();
    }
    case Fact::ownership: {
      auto found = co_await live.image->ownership(soon());
      if (!found) co_return found.error();
      admit_kernel(live, *found);
      facts.ownership = std::move(*found);
      co_return result<>();
    }
    case Fact::image_size: {
      auto asked = co_await live.image->refresh(soon());
      facts.image_size_asked = asked.has_value();
      co_return asked;
    }
    case Fact::has_data: {
      auto found = co_await live.image->has_data(later());
      if (!found) co_return found.error();
      facts.has_data = *found;
      co_return result<>();
    }
    case Fact::format_marker: {
      auto found = co_await live.image->metadata(kFormatMarker, soon());
      if (!found) co_return found.error();
      facts.format_marker = found->value_or("");
      co_return result<>();
    }
    case Fact::attachment:
      facts.attachment = co_await ports_.attachment(live.id);
      co_return result<>();
    case Fact::probe:
    case Fact::filesystem:
    case Fact::unused:
      break;
  }
  co_return co_await look_at_device(live, step);
}

task<result<>> Steps::look_at_device(Live& live, const Step& step) {
  Facts& facts = live.facts;
  const auto device = step.fact == Fact::unused ? device_path(live) : data_path(live);
  if (!device) co_return device.error();
  if (step.fact == Fact::probe) {
    auto found = co_await ports_.filesystems.probe(*device, owner(live), while_served(live, soon()));
    if (!found) co_return found.error();
    facts.probe = std::move(*found);
    co_return result<>();
  }
  if (step.fact == Fact::filesystem) {
    auto found = co_await extent(live, *device, step.path);
    if (!found) co_return found.error();
    facts.filesystem = *found;
    co_return result<>();
  }
  auto unused = co_await ports_.filesystems.check_unused(*device, owner(live), while_served(live, soon()));
  if (!unused) co_return unused.error();
  facts.unused = true;
  co_return result<>();
}

task<result<>> Steps::write_record(Live& live, const Step& step) {
  live.saving = step.record;
  auto saved = co_await save(live, *step.record);
  live.saving.reset();
  // It may have happened all the same, so the caller must not forget the volume.
  if (!saved && final_for_caller(saved.error().code)) saved = Error{errc::state_write, saved.error().text};
  const bool refused_again = std::exchange(live.refused, !saved) && live.refused;
  if (saved || !step.may_fail) live.unsure = !saved && saved.error().code != errc::state_newer;
  // Once may be chance, and is tried again.
  if (!saved && !(step.may_fail && refused_again)) co_return saved;
  if (!saved) log::warning("record.not_written", {{"volume", live.id}, {"error", saved.error().text}});
  live.record = step.record;
  co_return result<>();
}

task<result<>> Steps::save(Live& live, Record record) {
  // Of two the one that works is kept: key_worked().
  if (!live.offered)
    if (auto saved = co_await save_key(live); !saved) co_return saved;
  co_return co_await ports_.records.save(std::move(record));
}

task<result<>> Steps::save_key(Live& live) {
  if (live.key_saved || live.key.empty()) co_return result<>();
  auto saved = co_await ports_.records.save_key(live.id, live.key);
  if (saved) live.key_saved = true;
  co_return saved;
}

/// The cluster took the key of this operation. Healing goes on without a file of it: the next write of the record tries
/// again.
task<> Steps::key_worked(Live& live) {
  if (live.tries_offered && live.offered) {
    live.key = std::move(*live.offered);
    live.offered.reset();
    live.key_saved = false;
  }
  if (auto saved = co_await save_key(live); !saved)
    log::warning("key.not_written", {{"volume", live.id}, {"error", saved.error().text}});
}

task<result<>> Steps::fence(Live& live) {
  auto to = access(live);
  if (!to) co_return to.error();
  auto fenced = co_await ports_.clusters.fence_dead(*to, soon());
  if (!fenced) co_return fenced;
  live.facts.fenced = true;
  log::info("cluster.fenced", {{"volume", live.id}, {"cluster", live.record->source.cluster_id}});
  co_return result<>();
}

task<result<>> Steps::open_image(Live& live) {
  auto to = access(live);
  if (!to) co_return to.error();
  image::OpenOptions options;
  options.read_only = live.record->read_only || live.record->kind == device::Kind::krbd;
  const auto opening = ++live.opening;
  const auto alive = std::weak_ptr<char>(live.alive);
  options.on_resized = [this, &live, alive, opening] {
    if (!alive.expired() && live.attached && live.opening == opening) trouble_(live, "its image has another size");
  };
  options.on_lost = [this, &live, alive, opening](const std::string& why) {
    if (alive.expired() || live.opening != opening) return;
    live.lock_held = live.image_served = false;
    if (live.link)
      live.link->hold();
    else
      trouble_(live, why);
  };
  auto opened = co_await ports_.clusters.open(*to, live.record->key, options, soon());
  if (!opened && is_gone(live, opened.error())) {
    live.facts.gone = true;
    co_return result<>();
  }
  if (!opened) co_return opened.error();
  live.image = std::move(*opened);
  live.lock_held = live.image_served = false;
  live.facts.ownership.reset();
  log::info("image.opened", {{"volume", live.id}, {"image", live.record->key.text()}});
  co_await key_worked(live);
  co_return result<>();
}

task<result<>> Steps::open_tombstone(Live& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  live.image = make_tombstone(live.record->key, live.record->size, live.record->read_only);
  live.tombstone = true;
  log::error("volume.failed",
             {{"volume", live.id},
              {"device", device::path(*index)},
              {"hint", "every request gets an I/O error from now on: end its pods, unstage it, and stage it anew"}});
  co_return result<>();
}

task<result<>> Steps::take_lock(Live& live) {
  const auto ownership = live.facts.ownership;
  live.facts.ownership.reset();
  if (ownership && ownership->lock == image::Ownership::Lock::our_dead) {
    auto broken = co_await live.image->break_dead_lock(ownership->owner, break_mark(ownership->version), soon());
    if (!broken) co_return broken;
    if (auto stopped = failpoint::hit("step.lock.broken"); !stopped) co_return stopped;
  }
  auto locked = co_await live.image->acquire_lock(soon());
  if (!locked) co_return locked;
  live.lock_held = true;
  log::info("image.locked", {{"volume", live.id}, {"was", ownership ? ownership->owner : ""}});
  co_return result<>();
}

void Steps::forget_image(Live& live) {
  ++live.opening;
  live.image.reset();
  live.closing = live.tombstone = live.lock_held = live.image_served = false;
  // Of the node's paths, and of what others say; not of the image.
  Facts kept;
  kept.cleared = std::move(live.facts.cleared);
  kept.stash = std::move(live.facts.stash);
  kept.attachment = std::move(live.facts.attachment);
  live.facts = std::move(kept);
}

task<result<>> Steps::close_image(Live& live) {
  // One that is given up must answer, although the cluster does not let its image go.
  if (live.record && live.record->failed && !live.tombstone) {
    bury_(nullptr, std::move(live.image));
    forget_image(live);
    co_return result<>();
  }
  live.closing = true;
  auto closed = co_await live.image->close(soon());
  if (!closed) co_return closed;
  forget_image(live);
  co_return result<>();
}

task<result<>> Steps::drop_record(Live& live, const Wish& wish) {
  auto key = co_await ports_.records.drop_key(live.id);
  if (!key) co_return key;
  auto dropped = co_await ports_.records.drop(live.id);
  if (!dropped) co_return dropped;
  live.record.reset();
  live.usage.reset();
  live.unsure = false;
  // A stage that begins anew goes on with its own key.
  const auto* staged = std::get_if<Staged>(&wish);
  live.key = staged != nullptr ? staged->key : Secret();
  live.key_saved = false;
  live.offered.reset();
  co_return result<>();
}

}  // namespace corbd::volume
