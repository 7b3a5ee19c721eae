#include "steps.hpp"

#include <algorithm>
#include <utility>

#include "corbd/cephcsi/affinity.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/overloaded.hpp"

namespace corbd::volume {
namespace {

bool needs_image(Fact fact) {
  switch (fact) {
    case Fact::ownership:
    case Fact::holders:
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

const failpoint::Places kPlaces(step_places());

}  // namespace

result<image::Access> access_of(const Ports& ports, const Record& record, const Secret& key) {
  const Source& source = record.source;
  auto cluster = ports.directory.find(source.cluster_id);
  if (!cluster) return cluster.error();
  return image::Access{source.cluster_id, cluster->monitors, record.user, key,
                       cephcsi::with_affinity(source.serving.config, cluster->crush_location)};
}

std::vector<std::string> step_places() {
  std::vector<std::string> places;
  for (const auto step : plan::step_names)
    for (const char* when : {".before", ".after"}) places.push_back("step." + std::string(step) + when);
  places.insert(places.end(),
                {"step.lock.broken", "step.evict.fenced", "step.new_key.added", "step.kernel_resize.asked"});
  return places;
}

Until Steps::soon() const { return {clock_.now() + config_.step_limit}; }
Until Steps::later() const { return {clock_.now() + config_.long_step_limit}; }
Until Steps::while_served(Volume& volume, Until until) const {
  until.scope = &volume.link_scopes.back();
  return until;
}

task<result<>> Steps::run(Volume& volume, const Step& step, const Wish& wish) {
  const std::string point = "step." + std::string(plan::name(step));
  if (auto stopped = failpoint::hit(point + ".before"); !stopped) co_return stopped;
  auto outcome = co_await dispatch(volume, step, wish);
  if (!outcome) {
    Error error = outcome.error();
    // The image's client is cut off for good, and without a link nothing else closes the image. The next try opens it
    // on another client.
    if (error.code == errc::fenced && volume.image && !volume.link) static_cast<void>(co_await close_image(volume));
    // The link ended, not the caller.
    if (error.code == errc::cancelled && volume.link_scopes.size() > 1) error.code = errc::unavailable;
    if (asks_cluster(step) && (error.code == errc::unavailable || error.code == errc::timed_out))
      error.code = errc::unreachable;
    co_return error;
  }
  log::debug("step.done", {{"volume", volume.id}, {"step", plan::name(step)}});
  co_return failpoint::hit(point + ".after");
}

task<result<>> Steps::dispatch(Volume& volume, const Step& step, const Wish& wish) {
  const auto carry_out = Overloaded{
      [&](const step::Look& of) { return look(volume, of, wish); },
      [&](const step::WriteRecord& of) { return write_record(volume, of); },
      [&](const step::DropRecord&) { return drop_record(volume, wish); },
      [&](const step::Fence&) { return fence(volume); },
      [&](const step::Inherit& of) { return inherit(volume, of.address); },
      [&](const step::Evict& of) { return evict(volume, of); },
      [&](const step::OpenImage&) { return open_image(volume); },
      [&](const step::OpenTombstone&) { return open_tombstone(volume); },
      [&](const step::Lock&) { return take_lock(volume); },
      [&](const step::CloseImage&) { return close_image(volume); },
      [&](const step::Mark&) { return mark(volume); },
      [&](const step::Unmark&) { return unmark(volume); },
      [&](const step::WriteNote& of) { return note(volume, of.note, wish); },
      [&](const step::StartSession&) { return start_session(volume); },
      [&](const step::StopSession&) { return stop_session(volume); },
      [&](const step::KernelConnect&) { return kernel_connect(volume); },
      [&](const step::KernelReconfigure&) { return kernel_reconfigure(volume); },
      [&](const step::KernelResize&) { return kernel_resize(volume); },
      [&](const step::Disconnect&) { return disconnect(volume); },
      [&](const step::Tune&) { return tune(volume); },
      [&](const step::Dismiss&) { return dismiss(volume); },
      [&](const step::MapKrbd&) { return map_krbd(volume); },
      [&](const step::UnmapKrbd&) { return unmap_krbd(volume); },
      [&](const step::LuksFormat&) { return luks_format(volume, wish); },
      [&](const step::LuksNote&) { return luks_note(volume); },
      [&](const step::LuksOpen&) { return luks_open(volume, wish); },
      [&](const step::LuksResize&) { return luks_resize(volume); },
      [&](const step::LuksClose&) { return luks_close(volume); },
      [&](const step::AddKey&) { return add_key(volume, wish); },
      [&](const step::NewKey&) { return new_key(volume, wish); },
      [&](const step::RemoveKey& of) { return remove_key(volume, of.slot); },
      [&](const step::Mkfs&) { return make_filesystem(volume, wish); },
      [&](const step::Fsck&) { return check_filesystem(volume); },
      [&](const step::Mount& of) { return mount(volume, of.path, wish); },
      [&](const step::Bind& of) { return bind(volume, of.path, wish); },
      [&](const step::Grow& of) { return grow(volume, of.path, wish); },
      [&](const step::Trim& of) { return trim(volume, of.path); },
      [&](const step::Umount& of) { return unmount(volume, of.path, of.sync); },
      [&](const step::Unbind& of) { return unmount(volume, of.path, of.sync); },
      [&](const step::WriteStash& of) { return write_stash(volume, of); },
      [&](const step::DropStash& of) { return drop_stash(volume, of.path); },
  };
  return std::visit(carry_out, step);
}

result<image::Access> Steps::access(const Volume& volume) const {
  return access_of(ports_, *volume.record, volume.asks_with());
}

HelperOwner Steps::owner(const Volume& volume) const {
  return {ports_.records.busy_file(volume.id),
          volume.record ? "cluster " + volume.record->source.cluster_id : "volumes without a record"};
}

std::uint64_t Steps::dead_conn_timeout_s(const Volume& volume) const {
  return volume.record->source.serving.dead_conn_timeout_s.value_or(config_.dead_conn_timeout_s);
}

result<device::Seen> Steps::device_of(const Volume& volume) const {
  const auto found = find_devices(volume, ports_);
  if (!found) return found.error();
  if (!found->empty()) return found->front();
  return Error{errc::unavailable, "the device of volume " + volume.id + " is gone"};
}

result<std::uint32_t> Steps::device_index(const Volume& volume) const {
  auto device = device_of(volume);
  if (!device) return device.error();
  return device->index;
}

result<std::string> Steps::device_path(const Volume& volume) const {
  auto device = device_of(volume);
  if (!device) return device.error();
  return device::path(*device);
}

result<std::string> Steps::data_path(const Volume& volume) const {
  if (!volume.record->kms_id.empty()) return "/dev/mapper/" + mapping_name(volume.id);
  return device_path(volume);
}

task<result<>> Steps::look(Volume& volume, const step::Look& step, const Wish& wish) {
  Facts& facts = volume.facts;
  if (needs_image(step.fact) && !volume.image)
    co_return Error{errc::unavailable,
                    "the image of volume " + volume.id + " is not open here, because rbd-nbd serves it: repeat later"};
  switch (step.fact) {
    case Fact::resolved: {
      if (const auto* staged = std::get_if<Staged>(&wish)) co_return co_await resolve(volume, *staged);
      co_return Error{errc::internal, "only a stage resolves an image"};
    }
    case Fact::stash:
      co_return co_await look_at_stash(volume, wish);
    case Fact::served_by_other:
      co_return co_await look_at_other(volume);
    case Fact::encryption:
    case Fact::luks:
    case Fact::keys:
      co_return co_await look_at_luks(volume, step.fact, wish);
    case Fact::header: {
      auto to = access(volume);
      if (!to) co_return to.error();
      auto found = co_await ports_.clusters.header(*to, volume.record->key, soon());
      if (!found && is_gone(volume, found.error())) {
        facts.gone = true;
        co_return result<>();
      }
      if (!found) co_return found.error();
      facts.header = *found;
      co_return result<>();
    }
    case Fact::ownership: {
      auto found = co_await volume.image->ownership(soon());
      if (!found) co_return found.error();
      admit_kernel(volume, *found);
      facts.ownership = std::move(*found);
      co_return result<>();
    }
    case Fact::holders:
      co_return co_await look_at_holders(volume);
    case Fact::image_size: {
      auto asked = co_await volume.image->refresh(soon());
      facts.image_size_asked = asked.has_value();
      co_return asked;
    }
    case Fact::has_data: {
      auto found = co_await volume.image->has_data(later());
      if (!found) co_return found.error();
      facts.has_data = *found;
      co_return result<>();
    }
    case Fact::format_marker: {
      auto found = co_await volume.image->metadata(kFormatMarker, soon());
      if (!found) co_return found.error();
      facts.format_marker = found->value_or("");
      co_return result<>();
    }
    case Fact::attachment:
      facts.attachment = co_await ports_.orchestrator.attachment(volume.id);
      co_return result<>();
    case Fact::probe:
    case Fact::filesystem:
    case Fact::unused:
      break;
  }
  co_return co_await look_at_device(volume, step);
}

task<result<>> Steps::look_at_device(Volume& volume, const step::Look& step) {
  Facts& facts = volume.facts;
  const auto device = step.fact == Fact::unused ? device_path(volume) : data_path(volume);
  if (!device) co_return device.error();
  if (step.fact == Fact::probe) {
    auto found = co_await ports_.filesystems.probe(*device, owner(volume), while_served(volume, soon()));
    if (!found) co_return found.error();
    facts.probe = std::move(*found);
    co_return result<>();
  }
  if (step.fact == Fact::filesystem) {
    auto found = co_await extent(volume, *device, step.path);
    if (!found) co_return found.error();
    facts.filesystem = *found;
    co_return result<>();
  }
  auto unused = co_await ports_.filesystems.check_unused(*device, owner(volume), while_served(volume, soon()));
  if (!unused) co_return unused.error();
  facts.unused = true;
  co_return result<>();
}

task<result<>> Steps::write_record(Volume& volume, const step::WriteRecord& step) {
  volume.saving = step.record;
  auto saved = co_await save(volume, step.record);
  volume.saving.reset();
  // The write may have happened all the same, so the caller must not forget the volume.
  if (!saved && final_for_caller(saved.error().code)) saved = Error{errc::state_write, saved.error().text};
  const bool refused_again = std::exchange(volume.refused, !saved) && volume.refused;
  if (saved || !step.may_fail) volume.unsure = !saved && saved.error().code != errc::state_newer;
  // The first refusal may be chance, so the step fails and is tried again.
  if (!saved && !(step.may_fail && refused_again)) co_return saved;
  if (!saved) log::warning("record.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
  volume.record = step.record;
  co_return result<>();
}

task<result<>> Steps::save(Volume& volume, Record record) {
  const Write write(writes_);
  // With two keys, key_worked() saves the one that the cluster takes.
  if (!volume.offered)
    if (auto saved = co_await save_key(volume); !saved) co_return saved;
  co_return co_await ports_.records.save(std::move(record));
}

task<result<>> Steps::save_key(Volume& volume) {
  if (volume.key_saved || volume.key.empty()) co_return result<>();
  const Write write(writes_);
  auto saved = co_await ports_.records.save_key(volume.id, volume.key);
  if (saved) volume.key_saved = true;
  co_return saved;
}

/// The cluster took this operation's key. If the key file cannot be written, healing goes on, and the next write of the
/// record tries again.
task<> Steps::key_worked(Volume& volume) {
  if (volume.tries_offered && volume.offered) {
    volume.key = std::move(*volume.offered);
    volume.offered.reset();
    volume.key_saved = false;
  }
  if (auto saved = co_await save_key(volume); !saved)
    log::warning("key.not_written", {{"volume", volume.id}, {"error", saved.error().text}});
}

task<result<>> Steps::drop_record(Volume& volume, const Wish& wish) {
  const Write write(writes_);
  auto key = co_await ports_.records.drop_key(volume.id);
  if (!key) co_return key;
  auto dropped = co_await ports_.records.drop(volume.id);
  if (!dropped) co_return dropped;
  volume.record.reset();
  volume.usage.reset();
  volume.unsure = false;
  // A stage that drops an old record goes on with its own key.
  const auto* staged = std::get_if<Staged>(&wish);
  volume.key = staged != nullptr ? staged->key : Secret();
  volume.key_saved = false;
  volume.offered.reset();
  co_return result<>();
}

}  // namespace corbd::volume
