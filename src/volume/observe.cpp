// Observes the present state of a volume. Every source is at hand and cannot hang.
#include <algorithm>

#include "volume.hpp"

namespace corbd::volume {
namespace {

std::vector<std::string> paths_of(const Wish& wish, const std::string& id) {
  if (const auto* staged = std::get_if<Staged>(&wish)) return {staging_target(id, staged->path)};
  if (const auto* unstaged = std::get_if<Unstaged>(&wish)) return {staging_target(id, unstaged->path)};
  if (const auto* published = std::get_if<Published>(&wish))
    return {staging_target(id, published->path), published->target};
  if (const auto* expanded = std::get_if<Expanded>(&wish)) return {expanded->path, expanded->target};
  if (const auto* trimmed = std::get_if<Trimmed>(&wish)) return {trimmed->path};
  if (const auto* unpublished = std::get_if<Unpublished>(&wish)) return {unpublished->target};
  return {};
}

bool wants_kernel(const Wish& wish) {
  const auto* staged = std::get_if<Staged>(&wish);
  return staged != nullptr && staged->mounter != Mounter::nbd;
}

/// Returns the devices that show the image of a volume without a record. The kernel knows an image by its identity,
/// ceph-csi's stash by its name.
result<std::vector<device::Seen>> find_mapped(const Volume& volume, const Ports& ports, bool wanted) {
  const auto& facts = volume.facts;
  const bool by_stash = facts.stash && *facts.stash && !(*facts.stash)->nbd;
  if (!by_stash && !(wanted && facts.resolved)) return std::vector<device::Seen>();
  const auto all = ports.kernel.inventory();
  if (!all) return all.error();
  if (facts.resolved) return device::of_image(*all, facts.resolved->key);
  const Stash& stash = **facts.stash;
  return device::of_name(*all, {stash.pool, stash.ns, stash.image});
}

/// Returns the kernel's devices that are mounted at one of the paths.
result<std::vector<device::Seen>> find_mounted(const Volume& volume, const host::MountList::Found& there,
                                               const Ports& ports) {
  std::vector<device::Seen> found;
  if (there.empty()) return found;
  const auto all = ports.kernel.inventory();
  if (!all) return all.error();
  for (const auto& one : *all)
    if (std::ranges::any_of(there, [&](const auto& mount) { return shows(*mount.second, one.seen, volume.id); }))
      found.push_back(one.seen);
  return found;
}

result<> observe_kernel(Observation& seen, const Volume& volume, const Wish& wish, const Ports& ports) {
  auto devices = find_devices(volume, ports, wants_kernel(wish));
  if (!devices) return devices.error();
  seen.devices = std::move(*devices);
  const auto mounts = ports.mounts.table();
  if (!mounts) return mounts.error();
  auto paths = paths_of(wish, volume.id);
  if (volume.record) {
    for (const auto& staging : volume.record->stagings) paths.push_back(staging_target(volume.id, staging.path));
    for (const auto& publish : volume.record->publishes) paths.push_back(publish.target);
  }
  host::MountList::Found found;
  for (const auto& path : paths) (*mounts)->add_at(path, found);
  // ceph-csi's stash is lost: only the mount shows the kernel's device.
  if (!volume.record && volume.facts.stash && !*volume.facts.stash && seen.devices.empty()) {
    auto shown = find_mounted(volume, found, ports);
    if (!shown) return shown.error();
    seen.devices = std::move(*shown);
  }
  for (const auto& device : seen.devices) add_shown(**mounts, device, volume.id, found);
  for (const auto& [at, mount] : found) seen.mounts.push_back(*mount);
  return {};
}

plan::LocalTime local_time(const Clock& clock) {
  using std::chrono::milliseconds;
  const auto ms = [](auto time) { return std::chrono::floor<milliseconds>(time.time_since_epoch()).count(); };
  return {ms(clock.now()), ms(clock.wall())};
}

/// Whether the lock is that of a dead agent's client, and nobody noted when that client got it.
bool asked_by_dead_agent(const Volume& volume) {
  const auto& who = volume.facts.ownership;
  const auto* call = volume.record && volume.record->proof.lock_call ? &*volume.record->proof.lock_call : nullptr;
  return who && who->lock == image::Ownership::Lock::our_dead && call != nullptr && call->client == who->owner &&
         !volume.history.lockers.contains(call->client);
}

}  // namespace

Record with_real_paths(Record record, const NodeFiles& files) {
  for (auto& staging : record.stagings) staging.path = files.real_path(std::move(staging.path));
  for (auto& publish : record.publishes) {
    publish.target = files.real_path(std::move(publish.target));
    publish.staging = files.real_path(std::move(publish.staging));
  }
  return record;
}

result<std::vector<device::Seen>> find_devices(const Volume& volume, const Ports& ports, bool kernel_wanted) {
  if (volume.record && !traits(volume.record->device.kind).identified) {
    const auto all = ports.kernel.inventory();
    if (!all) return all.error();
    return device::of_image(*all, volume.record->key);
  }
  auto found = ports.devices.find(volume.id);
  if (!found || !found->empty() || volume.record) return found;
  return find_mapped(volume, ports, kernel_wanted);
}

void add_shown(const host::MountList& mounts, const device::Seen& device, const std::string& volume_id,
               host::MountList::Found& found) {
  host::MountList::Found may_be;
  mounts.add_device(device.dev_major, device.dev_minor, may_be);
  mounts.add_node("/" + device::name(device.kind, device.index), may_be);
  if (const auto* mapping = mapping_of(device, volume_id)) {
    mounts.add_device(mapping->dev_major, mapping->dev_minor, may_be);
    mounts.add_node("/" + mapping->name, may_be);
    mounts.add_node("/mapper/" + mapping->mapping, may_be);
  }
  for (const auto& [at, mount] : may_be)
    if (shows(*mount, device, volume_id)) found.emplace(at, mount);
}

host::MountTable mounts_now(const Ports& ports) {
  auto table = ports.mounts.table();
  return table ? std::move(*table) : std::make_shared<const host::MountList>();
}

result<Observation> observe(const Volume& volume, const Wish& wish, const Ports& ports, const std::string& boot_id,
                            const Clock& clock) {
  const time_point now = clock.now();
  Observation seen;
  seen.now = local_time(clock);
  seen.boot_id = boot_id;
  if (auto kernel = observe_kernel(seen, volume, wish, ports); !kernel) return kernel.error();
  if (!volume.record && wants_kernel(wish)) seen.kernel_client = ports.kernel.abilities();
  seen.command = ports.devices.under_way(volume.id);
  seen.busy = ports.files.busy(ports.records.busy_file(volume.id));
  if (volume.server.link() != nullptr) {
    switch (volume.server.link()->state()) {
      case device::Link::State::serving:
        seen.link = Observation::Link::serving;
        break;
      case device::Link::State::held:
        seen.link = Observation::Link::held;
        break;
      case device::Link::State::closed:
        seen.link = Observation::Link::closed;
        break;
    }
  }
  seen.connected = volume.server.connected();
  seen.session_stuck = volume.server.is_session_stuck();
  seen.silent = volume.server.unanswered() >= kSilentAfter;
  seen.fails_flushes = volume.server.link() != nullptr && volume.server.link()->fails_flushes();
  seen.link_inherited = ports.devices.has_inherited(volume.id);
  seen.image_open = volume.server.image() != nullptr;
  if (volume.server.image() != nullptr) {
    seen.image_size = volume.server.image()->size();
    seen.exclusive_lock = volume.server.image()->exclusive_lock();
    seen.client = volume.server.image()->client();
  }
  seen.lock_held = volume.server.has(WriteRight::exclusive_lock);
  seen.writer_marked = volume.server.has(WriteRight::writers_mark);
  if (const OwnImage* open = volume.server.own()) {
    seen.modified = open->modified;
    seen.image_cut_off = *open->access_lost;
    seen.lock_took = open->lock_took;
    seen.image_closing = open->closing;
    seen.other_credential = open->opened_as != volume.credentials.known();
    seen.client_given_up = open->image->client_given_up();
  }
  seen.untuned = volume.device.untuned;
  seen.tombstone = volume.server.is_tombstone();
  if (volume.other.died) seen.other_dead_for = now - *volume.other.died;
  seen.access_lost = volume.history.access_lost;
  if (volume.history.in_use_since) seen.in_use_for = now - *volume.history.in_use_since;
  if (volume.history.lost_since) seen.lost_for = now - *volume.history.lost_since;
  seen.freeze_refused = volume.freeze_refused;
  seen.key_known = !volume.credentials.known().empty();
  seen.key_unread = volume.key_unread;
  seen.credential_untried = volume.credentials.untried();
  seen.credential_kept = volume.credentials.accepted() && !volume.credentials.to_be_saved();
  seen.facts = volume.facts;
  if (seen.facts.ownership && volume.history.late_lockers.contains(seen.facts.ownership->owner))
    seen.lock_took = duration::max();
  if (asked_by_dead_agent(volume)) seen.lock_took = plan::between(volume.record->proof.lock_call->began, seen.now);
  // A disconnect that outlived its caller counts too.
  if (const auto* device = seen.device(); device != nullptr && device->disconnected) seen.facts.disconnected = true;
  return seen;
}

}  // namespace corbd::volume
