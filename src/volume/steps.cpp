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
Until Steps::while_served(Volume& live, Until until) const {
  until.scope = &live.link_scopes.back();
  return until;
}

task<result<>> Steps::run(Volume& live, const Step& step, const Wish& wish) {
  const std::string point = "step." + std::string(plan::name(step));
  if (auto stopped = failpoint::hit(point + ".before"); !stopped) co_return stopped;
  auto outcome = co_await dispatch(live, step, wish);
  if (!outcome) {
    Error error = outcome.error();
    // The image's client is cut off for good, and without a link nothing else closes the image. The next try opens it
    // on another client.
    if (error.code == errc::fenced && live.image && !live.link) static_cast<void>(co_await close_image(live));
    // The link ended, not the caller.
    if (error.code == errc::cancelled && live.link_scopes.size() > 1) error.code = errc::unavailable;
    if (asks_cluster(step) && (error.code == errc::unavailable || error.code == errc::timed_out))
      error.code = errc::unreachable;
    co_return error;
  }
  log::debug("step.done", {{"volume", live.id}, {"step", plan::name(step)}});
  co_return failpoint::hit(point + ".after");
}

task<result<>> Steps::dispatch(Volume& live, const Step& step, const Wish& wish) {
  const auto carry_out = Overloaded{
      [&](const step::Look& of) { return look(live, of, wish); },
      [&](const step::WriteRecord& of) { return write_record(live, of); },
      [&](const step::DropRecord&) { return drop_record(live, wish); },
      [&](const step::Fence&) { return fence(live); },
      [&](const step::Inherit& of) { return inherit(live, of.address); },
      [&](const step::Evict& of) { return evict(live, of); },
      [&](const step::OpenImage&) { return open_image(live); },
      [&](const step::OpenTombstone&) { return open_tombstone(live); },
      [&](const step::Lock&) { return take_lock(live); },
      [&](const step::CloseImage&) { return close_image(live); },
      [&](const step::Mark&) { return mark(live); },
      [&](const step::Unmark&) { return unmark(live); },
      [&](const step::WriteNote& of) { return note(live, of.note, wish); },
      [&](const step::StartSession&) { return start_session(live); },
      [&](const step::StopSession&) { return stop_session(live); },
      [&](const step::KernelConnect&) { return kernel_connect(live); },
      [&](const step::KernelReconfigure&) { return kernel_reconfigure(live); },
      [&](const step::KernelResize&) { return kernel_resize(live); },
      [&](const step::Disconnect&) { return disconnect(live); },
      [&](const step::Tune&) { return tune(live); },
      [&](const step::Dismiss&) { return dismiss(live); },
      [&](const step::MapKrbd&) { return map_krbd(live); },
      [&](const step::UnmapKrbd&) { return unmap_krbd(live); },
      [&](const step::LuksFormat&) { return luks_format(live, wish); },
      [&](const step::LuksNote&) { return luks_note(live); },
      [&](const step::LuksOpen&) { return luks_open(live, wish); },
      [&](const step::LuksResize&) { return luks_resize(live); },
      [&](const step::LuksClose&) { return luks_close(live); },
      [&](const step::AddKey&) { return add_key(live, wish); },
      [&](const step::NewKey&) { return new_key(live, wish); },
      [&](const step::RemoveKey& of) { return remove_key(live, of.slot); },
      [&](const step::Mkfs&) { return make_filesystem(live, wish); },
      [&](const step::Fsck&) { return check_filesystem(live); },
      [&](const step::Mount& of) { return mount(live, of.path, wish); },
      [&](const step::Bind& of) { return bind(live, of.path, wish); },
      [&](const step::Grow& of) { return grow(live, of.path, wish); },
      [&](const step::Trim& of) { return trim(live, of.path); },
      [&](const step::Umount& of) { return unmount(live, of.path, of.sync); },
      [&](const step::Unbind& of) { return unmount(live, of.path, of.sync); },
      [&](const step::WriteStash& of) { return write_stash(live, of); },
      [&](const step::DropStash& of) { return drop_stash(live, of.path); },
  };
  return std::visit(carry_out, step);
}

result<image::Access> Steps::access(const Volume& live) const {
  return access_of(ports_, *live.record, live.asks_with());
}

HelperOwner Steps::owner(const Volume& live) const {
  return {ports_.records.busy_file(live.id),
          live.record ? "cluster " + live.record->source.cluster_id : "volumes without a record"};
}

std::uint64_t Steps::dead_conn_timeout_s(const Volume& live) const {
  return live.record->source.serving.dead_conn_timeout_s.value_or(config_.dead_conn_timeout_s);
}

result<device::Seen> Steps::device_of(const Volume& live) const {
  const auto found = find_devices(live, ports_);
  if (!found) return found.error();
  if (!found->empty()) return found->front();
  return Error{errc::unavailable, "the device of volume " + live.id + " is gone"};
}

result<std::uint32_t> Steps::device_index(const Volume& live) const {
  auto device = device_of(live);
  if (!device) return device.error();
  return device->index;
}

result<std::string> Steps::device_path(const Volume& live) const {
  auto device = device_of(live);
  if (!device) return device.error();
  return device::path(*device);
}

result<std::string> Steps::data_path(const Volume& live) const {
  if (!live.record->kms_id.empty()) return "/dev/mapper/" + mapping_name(live.id);
  return device_path(live);
}

task<result<>> Steps::look(Volume& live, const step::Look& step, const Wish& wish) {
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
    case Fact::holders:
      co_return co_await look_at_holders(live);
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
      facts.attachment = co_await ports_.orchestrator.attachment(live.id);
      co_return result<>();
    case Fact::probe:
    case Fact::filesystem:
    case Fact::unused:
      break;
  }
  co_return co_await look_at_device(live, step);
}

task<result<>> Steps::look_at_device(Volume& live, const step::Look& step) {
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

task<result<>> Steps::write_record(Volume& live, const step::WriteRecord& step) {
  live.saving = step.record;
  auto saved = co_await save(live, step.record);
  live.saving.reset();
  // The write may have happened all the same, so the caller must not forget the volume.
  if (!saved && final_for_caller(saved.error().code)) saved = Error{errc::state_write, saved.error().text};
  const bool refused_again = std::exchange(live.refused, !saved) && live.refused;
  if (saved || !step.may_fail) live.unsure = !saved && saved.error().code != errc::state_newer;
  // The first refusal may be chance, so the step fails and is tried again.
  if (!saved && !(step.may_fail && refused_again)) co_return saved;
  if (!saved) log::warning("record.not_written", {{"volume", live.id}, {"error", saved.error().text}});
  live.record = step.record;
  co_return result<>();
}

task<result<>> Steps::save(Volume& live, Record record) {
  const Write write(writes_);
  // With two keys, key_worked() saves the one that the cluster takes.
  if (!live.offered)
    if (auto saved = co_await save_key(live); !saved) co_return saved;
  co_return co_await ports_.records.save(std::move(record));
}

task<result<>> Steps::save_key(Volume& live) {
  if (live.key_saved || live.key.empty()) co_return result<>();
  const Write write(writes_);
  auto saved = co_await ports_.records.save_key(live.id, live.key);
  if (saved) live.key_saved = true;
  co_return saved;
}

/// The cluster took this operation's key. If the key file cannot be written, healing goes on, and the next write of the
/// record tries again.
task<> Steps::key_worked(Volume& live) {
  if (live.tries_offered && live.offered) {
    live.key = std::move(*live.offered);
    live.offered.reset();
    live.key_saved = false;
  }
  if (auto saved = co_await save_key(live); !saved)
    log::warning("key.not_written", {{"volume", live.id}, {"error", saved.error().text}});
}

task<result<>> Steps::drop_record(Volume& live, const Wish& wish) {
  const Write write(writes_);
  auto key = co_await ports_.records.drop_key(live.id);
  if (!key) co_return key;
  auto dropped = co_await ports_.records.drop(live.id);
  if (!dropped) co_return dropped;
  live.record.reset();
  live.usage.reset();
  live.unsure = false;
  // A stage that drops an old record goes on with its own key.
  const auto* staged = std::get_if<Staged>(&wish);
  live.key = staged != nullptr ? staged->key : Secret();
  live.key_saved = false;
  live.offered.reset();
  co_return result<>();
}

}  // namespace corbd::volume
