#include "neighbours.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace corbd::volume {
namespace {

/// Finds other volumes of this node on the same image.
void observe_others_on_image(Observation& seen, const Volume& volume, const VolumeMap& volumes) {
  const image::Key& key = seen.facts.resolved->key;
  for (const auto& id : volumes.records().of_image(key)) {
    const Volume& other = *volumes.find(id);
    const std::optional<Record>& record = other.writes.under_way ? other.writes.under_way : other.record;
    if (id != volume.id && record && record->key == key)
      (record->use.read_only ? seen.image_reader : seen.image_writer) = id;
  }
}

/// Finds the owner by the mounts there, and at the staging path if one is given: without a record only its mount shows
/// whose that folder and its stash are.
std::string device_owner(const Volume& volume, const std::vector<host::Mount>& there, const std::string& staging_path,
                         const Ports& ports) {
  const auto table = mounts_now(ports);
  // An inventory of hundreds of devices takes a while on the control thread.
  if (there.empty() && (staging_path.empty() || !table->has_below(staging_path))) return "";
  const auto devices = ports.devices.inventory();
  if (!devices) return "";
  for (const auto& device : *devices) {
    if (device.backend.empty() || device.backend == volume.id) continue;
    const auto shown = [&](const host::Mount& mount) { return shows(mount, device, device.backend); };
    const std::string its_own = staging_path.empty() ? "" : staging_target(device.backend, staging_path);
    const auto staged = [&](const auto& mount) { return shown(*mount.second); };
    if (std::ranges::any_of(there, shown) || (!its_own.empty() && std::ranges::any_of(table->at(its_own), staged)))
      return device.backend;
  }
  return "";
}

/// Returns the other volume that owns the wish's path, by its record or by its device that is mounted there. A path
/// that is this volume's own by either belongs to nobody else.
std::string path_owner(const Observation& seen, const Volume& volume, const Wish& wish, const VolumeMap& volumes,
                       const Ports& ports) {
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  const auto* unpublished = std::get_if<Unpublished>(&wish);
  if (unstaged == nullptr && unpublished == nullptr) return "";
  // `target` is unmounted. An unstage also drops the stash in the folder around it.
  const std::string target = unstaged != nullptr ? staging_target(volume.id, unstaged->path) : unpublished->target;
  const std::string& path = unstaged != nullptr ? unstaged->path : target;
  const bool known = volume.record && is_at(*volume.record, path);
  const auto is_own = [&](const auto& mount) {
    return seen.device() != nullptr && shows(mount, *seen.device(), volume.id);
  };
  // An unmount removes every layer there.
  std::vector<host::Mount> there;
  std::ranges::copy_if(seen.mounts, std::back_inserter(there),
                       [&](const auto& mount) { return mount.target == target && !is_own(mount); });
  const bool mounted = std::ranges::any_of(seen.mounts, [&](const auto& mount) { return mount.target == target; });
  if (there.empty() && (known || mounted)) return "";
  if (!known)
    for (const auto& id : volumes.records().at({path, target})) {
      const auto& record = volumes.find(id)->record;
      if (id != volume.id && record && (is_at(*record, path) || is_at(*record, target))) return id;
    }
  return device_owner(volume, there, unstaged != nullptr && !known ? path : "", ports);
}

}  // namespace

bool is_client_needed(const std::string& client, const VolumeMap& volumes) {
  return std::ranges::any_of(volumes, [&](const auto& entry) {
    const Volume& other = *entry.second;
    const OwnImage* const open = other.server.own();
    return open != nullptr && other.server.serves() && open->image->client() == client &&
           open->opened_as == other.credentials.known() && other.server.link()->oldest() < kSilentAfter;
  });
}

void observe_neighbours(Observation& seen, const Volume& volume, const Wish& wish, const VolumeMap& volumes,
                        const Ports& ports) {
  if (seen.facts.resolved) observe_others_on_image(seen, volume, volumes);
  if (const auto* healed = std::get_if<Healed>(&wish);
      seen.image_closing || seen.session_stuck || (healed != nullptr && healed->silent))
    seen.client_needed =
        volume.server.own() != nullptr && is_client_needed(volume.server.own()->image->client(), volumes);
  seen.path_owner = path_owner(seen, volume, wish, volumes, ports);
}

std::vector<std::uint32_t> numbers_of_others(const Volume& volume, const VolumeMap& volumes, const Ports& ports,
                                             const std::string& boot_id) {
  std::vector<std::uint32_t> numbers;
  for (const auto& [id, other] : volumes) {
    const auto& record = other->record;
    if (id != volume.id && record && record->device.kind == volume.record->device.kind && record->device.index &&
        record->device.boot_id == boot_id)
      numbers.push_back(*record->device.index);
  }
  // A pod may have been given a raw device that no record names.
  const std::string nodes = "/" + std::string(traits(volume.record->device.kind).prefix);
  const auto mounts = mounts_now(ports);
  for (const auto& [at, mount] : mounts->nodes(nodes)) {
    std::uint32_t number = 0;
    const char* const digits = mount->root.data() + nodes.size();
    if (std::from_chars(digits, mount->root.data() + mount->root.size(), number).ptr != digits)
      numbers.push_back(number);
  }
  return numbers;
}

}  // namespace corbd::volume
