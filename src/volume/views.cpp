#include "views.hpp"

#include <set>

namespace corbd::volume {
namespace {

bool is_unclaimed(const Volume& volume) {
  if (!volume.record) return !volume.writes.under_way;
  return traits(volume.record->device.kind).served && volume.credentials.known().empty() && !volume.record->failed &&
         !volume.answers();
}

/// Matches kubelet's folders .../<driver>/<hash>/globalmount/<volume ID> and, for raw block,
/// .../volumeDevices/staging/<name>/<volume ID>.
bool is_staging_target(const std::string& path) {
  return path.find("/globalmount/") != std::string::npos || path.find("/staging/") != std::string::npos;
}

/// Returns the volume whose mapping is above the device; "": there is none.
std::string encrypted_volume(const device::Seen& device) {
  for (const auto& holder : device.holders)
    if (auto volume_id = volume_of_mapping(holder.mapping); !volume_id.empty()) return volume_id;
  return "";
}

/// An image that is open works without config.json.
void note_gone_cluster(Status& status, const Volume& volume, const std::string& why) {
  if (volume.server.image() != nullptr && status.refused_again.empty()) status.refused_again = why;
}

}  // namespace

NodeView look(const VolumeMap& volumes, const Ports& ports) {
  NodeView seen{ports.devices.inventory(), ports.kernel.inventory(), ports.mounts.table(), {}};
  for (const auto& [id, volume] : volumes) {
    if (!volume->record) continue;
    const auto [place, is_new] = seen.gone_clusters.try_emplace(volume->record->source.cluster_id);
    if (is_new) place->second = why_cluster_gone(ports, *volume->record);
  }
  return seen;
}

std::vector<Status> status(const VolumeMap& volumes, const NodeView& seen) {
  std::vector<Status> all;
  const auto& mapped = seen.mapped;
  // A table that cannot be read counts as empty, as in mounts_now().
  const host::MountTable mounts = seen.mounts ? *seen.mounts : std::make_shared<const host::MountList>();
  std::map<std::string_view, const device::Seen*> by_backend;
  if (seen.devices)
    for (const auto& device : *seen.devices) by_backend[device.backend] = &device;
  for (const auto& [id, volume] : volumes) {
    if (!volume->record) continue;
    if (!traits(volume->record->device.kind).identified) {
      const auto found = mapped ? device::of_image(*mapped, volume->record->key) : std::vector<device::Seen>();
      all.push_back(status_of(*volume, found.empty() ? nullptr : &found.back(), *mounts));
      continue;
    }
    const auto place = by_backend.find(id);
    all.push_back(status_of(*volume, place == by_backend.end() ? nullptr : place->second, *mounts));
    const auto cluster = seen.gone_clusters.find(volume->record->source.cluster_id);
    if (cluster != seen.gone_clusters.end()) note_gone_cluster(all.back(), *volume, cluster->second);
  }
  return all;
}

std::optional<Status> status(const VolumeMap& volumes, const Ports& ports, const std::string& id) {
  const Volume* const known = volumes.find(id);
  if (known == nullptr || !known->record) return std::nullopt;
  const auto devices = find_devices(*known, ports);
  Status found = status_of(*known, devices && !devices->empty() ? &devices->front() : nullptr, *mounts_now(ports));
  note_gone_cluster(found, *known, why_cluster_gone(ports, *known->record));
  return found;
}

std::vector<Unclaimed> unclaimed(const VolumeMap& volumes, const result<std::vector<device::Seen>>& devices,
                                 const result<host::MountTable>& mounts) {
  std::vector<Unclaimed> all;
  if (!devices || !mounts) return all;
  for (const auto& device : *devices) {
    const Volume* const known = volumes.find(device.backend);
    if (device.backend.empty() || (known != nullptr && !is_unclaimed(*known))) continue;
    Unclaimed found{device.backend, device.index, {}, device.kind};
    host::MountList::Found shown;
    add_shown(**mounts, device, device.backend, shown);
    for (const auto& [at, mount] : shown) found.mounts.push_back(mount->target);
    all.push_back(std::move(found));
  }
  return all;
}

std::vector<Unclaimed> left_to_kernel(const VolumeMap& volumes, const result<std::vector<device::Mapped>>& devices,
                                      const result<host::MountTable>& mounts) {
  if (!devices || !mounts) return {};
  std::set<std::uint32_t> recorded;
  for (const auto& [id, volume] : volumes)
    if (volume->record && !traits(volume->record->device.kind).identified)
      for (const auto& seen : device::of_image(*devices, volume->record->key)) recorded.insert(seen.index);
  std::vector<Unclaimed> all;
  for (const auto& device : *devices) {
    if (recorded.contains(device.seen.index)) continue;
    Unclaimed found{{}, device.seen.index, {}, device.seen.kind};
    const std::string encrypted = encrypted_volume(device.seen);
    host::MountList::Found shown;
    add_shown(**mounts, device.seen, encrypted, shown);
    for (const auto& [at, mount] : shown) {
      found.mounts.push_back(mount->target);
      if (is_staging_target(mount->target)) found.volume_id = mount->target.substr(mount->target.rfind('/') + 1);
    }
    if (!found.volume_id.empty()) all.push_back(std::move(found));
  }
  return all;
}

Overview overview(const VolumeMap& volumes, const NodeView& seen) {
  Overview all{status(volumes, seen), unclaimed(volumes, seen.devices, seen.mounts),
               left_to_kernel(volumes, seen.mapped, seen.mounts)};
  if (seen.mapped)
    for (const auto& device : *seen.mapped) all.kernel_users[device::path(device.seen)] = device.seen.user;
  if (!seen.devices) all.not_read.push_back(seen.devices.error().text);
  if (!seen.mapped) all.not_read.push_back(seen.mapped.error().text);
  if (!seen.mounts) all.not_read.push_back(seen.mounts.error().text);
  return all;
}

}  // namespace corbd::volume
