// What is true of a volume now, from what is at hand and cannot hang.
#include <algorithm>

#include "live.hpp"

namespace corbd::volume {
namespace {

std::vector<std::string> paths_of(const Wish& wish, const std::string& id) {
  if (const auto* staged = std::get_if<Staged>(&wish)) return {staging_target(id, staged->path)};
  if (const auto* unstaged = std::get_if<Unstaged>(&wish)) return {staging_target(id, unstaged->path)};
  if (const auto* published = std::get_if<Published>(&wish)) return {staging_target(id, published->path), published->target};
  if (const auto* unpublished = std::get_if<Unpublished>(&wish)) return {unpublished->target};
  return {};
}

result<> observe_kernel(Observation& seen, const Live& volume, const Wish& wish, const Ports& ports) {
  auto devices = ports.devices.find(volume.id);
  if (!devices) return devices.error();
  seen.devices = std::move(*devices);
  auto mounts = ports.mounts.table();
  if (!mounts) return mounts.error();
  const auto paths = paths_of(wish, volume.id);
  for (auto& mount : *mounts) {
    const bool of_device = std::any_of(seen.devices.begin(), seen.devices.end(), [&](const auto& device) { return shows(mount, device); });
    if (of_device || std::find(paths.begin(), paths.end(), mount.target) != paths.end()) seen.mounts.push_back(std::move(mount));
  }
  return {};
}

}  // namespace

result<Observation> observe(const Live& volume, const Wish& wish, const Ports& ports, const std::string& boot_id, time_point now) {
  Observation seen;
  seen.boot_id = boot_id;
  if (auto kernel = observe_kernel(seen, volume, wish, ports); !kernel) return kernel.error();
  seen.busy = ports.busy(ports.records.busy_file(volume.id));
  if (volume.link) {
    switch (volume.link->state()) {
      case device::Link::State::serving: seen.link = Observation::Link::serving; break;
      case device::Link::State::held: seen.link = Observation::Link::held; break;
      case device::Link::State::closed: seen.link = Observation::Link::closed; break;
    }
  }
  seen.attached = volume.attached;
  seen.image_open = volume.image != nullptr;
  seen.image_closing = volume.closing;
  if (volume.image) {
    seen.image_size = volume.image->size();
    seen.client = volume.image->client();
  }
  seen.lock_held = volume.lock_held;
  seen.tombstone = volume.tombstone;
  if (volume.other_died) seen.other_dead_for = now - *volume.other_died;
  if (volume.lost_since) seen.lost_for = now - *volume.lost_since;
  seen.key_known = !volume.key.empty();
  seen.facts = volume.facts;
  return seen;
}

}  // namespace corbd::volume
