#include <algorithm>
#include <charconv>
#include <iterator>
#include <set>

#include "corbd/core/log.hpp"
#include "shell_impl.hpp"

namespace corbd::volume {
namespace {

constexpr std::size_t kTimeline = 64;  // changes that are kept of a volume

bool is_unclaimed(const Volume& volume) {
  if (!volume.record) return !volume.saving;
  return traits(volume.record->kind).served && volume.key.empty() && !volume.record->failed && !volume.answers();
}

/// kubelet's folders are .../<driver>/<hash>/globalmount/<volume ID> and, for raw block,
/// .../volumeDevices/staging/<name>/<volume ID>.
bool is_staging_target(const std::string& path) {
  return path.find("/globalmount/") != std::string::npos || path.find("/staging/") != std::string::npos;
}

}  // namespace

/// Finds other volumes of this node on the same image.
void Shell::Impl::observe_neighbours(Observation& seen, const Volume& volume) const {
  for (const auto& [id, other] : volumes_) {
    const auto& record = other->saving ? other->saving : other->record;
    if (id != volume.id && record && record->key == seen.facts.resolved->key)
      (record->read_only ? seen.image_reader : seen.image_writer) = id;
  }
}

/// The other volume that owns the wish's path, by its record or by its device that is mounted there. A path that is
/// this volume's own by either belongs to nobody else.
std::string Shell::Impl::path_owner(const Observation& seen, const Volume& volume, const Wish& wish) const {
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  const auto* unpublished = std::get_if<Unpublished>(&wish);
  if (unstaged == nullptr && unpublished == nullptr) return "";
  // `target` is unmounted. An unstage also drops the stash in the folder around it.
  const std::string target = unstaged != nullptr ? staging_target(volume.id, unstaged->path) : unpublished->target;
  const std::string& path = unstaged != nullptr ? unstaged->path : target;
  const bool known = volume.record && is_at(*volume.record, path);
  const auto is_own = [&](const auto& mount) { return seen.device() != nullptr && shows(mount, *seen.device()); };
  // An unmount removes every layer there.
  std::vector<host::Mount> there;
  std::ranges::copy_if(seen.mounts, std::back_inserter(there),
                       [&](const auto& mount) { return mount.target == target && !is_own(mount); });
  const bool mounted = std::ranges::any_of(seen.mounts, [&](const auto& mount) { return mount.target == target; });
  if (there.empty() && (known || mounted)) return "";
  if (!known)
    for (const auto& [id, other] : volumes_)
      if (id != volume.id && other->record && (is_at(*other->record, path) || is_at(*other->record, target))) return id;
  return device_owner(volume, there, unstaged != nullptr && !known ? path : "");
}

/// By what is mounted there, and at the staging path if one is given: without a record only its mount tells whose that
/// folder and its stash are.
std::string Shell::Impl::device_owner(const Volume& volume, const std::vector<host::Mount>& there,
                                      const std::string& staging_path) const {
  const auto table = mounts_now();
  const auto inside = [&](const host::Mount& mount) { return mount.target.starts_with(staging_path + "/"); };
  // An inventory of hundreds of devices takes its time on the control thread.
  if (there.empty() && (staging_path.empty() || std::ranges::none_of(*table, inside))) return "";
  const auto devices = ports_.devices.inventory();
  if (!devices) return "";
  for (const auto& device : *devices) {
    if (device.backend.empty() || device.backend == volume.id) continue;
    const auto shown = [&](const host::Mount& mount) { return shows(mount, device); };
    const std::string its_own = staging_path.empty() ? "" : staging_target(device.backend, staging_path);
    const auto staged = [&](const host::Mount& mount) { return mount.target == its_own && shown(mount); };
    if (std::ranges::any_of(there, shown) || (!its_own.empty() && std::ranges::any_of(*table, staged)))
      return device.backend;
  }
  return "";
}

std::vector<std::uint32_t> Shell::Impl::numbers_of_others(const Volume& volume) const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [id, other] : volumes_) {
    const auto& record = other->record;
    if (id != volume.id && record && record->kind == volume.record->kind && record->device &&
        record->boot_id == config_.boot_id)
      numbers.push_back(*record->device);
  }
  // A pod may have been given a raw device of which no record tells.
  const std::string nodes = "/" + device::name(volume.record->kind, 0).substr(0, 3);
  const auto mounts = mounts_now();
  for (const auto& mount : *mounts) {
    std::uint32_t number = 0;
    const bool shows_node = mount.fstype == "devtmpfs" && mount.root.starts_with(nodes);
    const char* const digits = mount.root.data() + nodes.size();
    if (shows_node && std::from_chars(digits, mount.root.data() + mount.root.size(), number).ptr != digits)
      numbers.push_back(number);
  }
  return numbers;
}

/// Not only what the record has: kubelet binds a raw block volume's device on a path of its own.
bool Shell::Impl::shows_at(const Volume& volume, const std::string& path) const {
  if (is_at(*volume.record, path)) return true;
  const auto devices = find_devices(volume, ports_);
  const auto mounts = ports_.mounts.table();
  if (!devices || devices->empty() || !mounts) return false;
  return std::ranges::any_of(**mounts,
                             [&](const auto& mount) { return mount.target == path && shows(mount, devices->front()); });
}

task<result<host::Usage>> Shell::Impl::usage(std::string id, std::string path, Until until) {
  const auto place = volumes_.find(id);
  path = ports_.files.real_path(std::move(path));
  if (place == volumes_.end() || !place->second->record || !shows_at(*place->second, path))
    co_return Error{errc::not_found, "volume " + id + " is neither staged nor published at " + path};
  Volume& volume = *place->second;
  ++volume.users;
  auto told = co_await usage_reader_.read(volume, std::move(path), until);
  --volume.users;
  forget_if_idle(id);
  co_return told;
}

/// Empty if the mounts cannot be read.
host::MountTable Shell::Impl::mounts_now() const {
  auto table = ports_.mounts.table();
  return table ? std::move(*table) : std::make_shared<const std::vector<host::Mount>>();
}

std::vector<Status> Shell::Impl::status() const {
  std::vector<Status> all;
  const auto devices = ports_.devices.inventory();
  const auto mapped = ports_.kernel.inventory();
  const auto mounts = mounts_now();
  std::map<std::string_view, const device::Seen*> by_backend;
  if (devices)
    for (const auto& device : *devices) by_backend[device.backend] = &device;
  for (const auto& [id, volume] : volumes_) {
    if (!volume->record) continue;
    if (!traits(volume->record->kind).identified) {
      const auto found = mapped ? device::of_image(*mapped, volume->record->key) : std::vector<device::Seen>();
      all.push_back(status_of(*volume, found.empty() ? nullptr : &found.back(), *mounts));
      continue;
    }
    const auto place = by_backend.find(id);
    all.push_back(status_of(*volume, place == by_backend.end() ? nullptr : place->second, *mounts));
  }
  return all;
}

std::optional<Status> Shell::Impl::status(const std::string& id) const {
  const auto place = volumes_.find(id);
  if (place == volumes_.end() || !place->second->record) return std::nullopt;
  const auto devices = find_devices(*place->second, ports_);
  return status_of(*place->second, devices && !devices->empty() ? &devices->front() : nullptr, *mounts_now());
}

std::vector<Unclaimed> Shell::Impl::unclaimed() const {
  std::vector<Unclaimed> all;
  const auto devices = ports_.devices.inventory();
  const auto mounts = ports_.mounts.table();
  if (!devices || !mounts) return all;
  for (const auto& device : *devices) {
    const auto place = volumes_.find(device.backend);
    if (device.backend.empty() || (place != volumes_.end() && !is_unclaimed(*place->second))) continue;
    Unclaimed found{device.backend, device.index, {}};
    for (const auto& mount : **mounts)
      if (shows(mount, device)) found.mounts.push_back(mount.target);
    all.push_back(std::move(found));
  }
  return all;
}

std::vector<Unclaimed> Shell::Impl::left_to_kernel() const {
  const auto devices = ports_.kernel.inventory();
  const auto mounts = ports_.mounts.table();
  if (!devices || !mounts) return {};
  std::set<std::uint32_t> recorded;
  for (const auto& [id, volume] : volumes_)
    if (volume->record && !traits(volume->record->kind).identified)
      for (const auto& seen : device::of_image(*devices, volume->record->key)) recorded.insert(seen.index);
  std::vector<Unclaimed> all;
  for (const auto& device : *devices) {
    if (recorded.contains(device.seen.index)) continue;
    Unclaimed found{{}, device.seen.index, {}, device::Kind::krbd};
    for (const auto& mount : **mounts) {
      if (!shows(mount, device.seen)) continue;
      found.mounts.push_back(mount.target);
      if (is_staging_target(mount.target)) found.volume_id = mount.target.substr(mount.target.rfind('/') + 1);
    }
    if (!found.volume_id.empty()) all.push_back(std::move(found));
  }
  return all;
}

std::vector<Change> Shell::Impl::timeline(const std::string& id) const {
  const auto place = volumes_.find(id);
  if (place == volumes_.end()) return {};
  return {place->second->timeline.begin(), place->second->timeline.end()};
}

void Shell::Impl::note_health(Volume& volume, const std::string& why) {
  const Health now = health_of(volume);
  if (now == volume.health) return;
  const Change change{clock_.wall(), volume.id, volume.health, now, why};
  volume.health = now;
  volume.since = change.at;
  volume.timeline.push_back(change);
  if (volume.timeline.size() > kTimeline) volume.timeline.pop_front();
  log::info("volume.state", {{"volume", volume.id}, {"from", name(change.from)}, {"to", name(now)}, {"why", why}});
  for (auto* listener : listeners_) listener->changed(change);
}

}  // namespace corbd::volume
