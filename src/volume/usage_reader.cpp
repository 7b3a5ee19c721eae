#include "usage_reader.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

constexpr std::chrono::seconds kPatience{2};  // afterwards the caller gets the last answer
constexpr std::chrono::seconds kLimit{10};

}  // namespace

/// Does not rely on the record: kubelet binds a raw block volume's device on a path of its own.
bool UsageReader::shows_at(const Volume& volume, const std::string& path) const {
  if (is_at(*volume.record, path)) return true;
  const auto devices = find_devices(volume, ports_);
  const auto mounts = ports_.mounts.table();
  if (!devices || devices->empty() || !mounts) return false;
  return std::ranges::any_of((*mounts)->at(path),
                             [&](const auto& mount) { return shows(*mount.second, devices->front(), volume.id); });
}

task<result<host::Usage>> UsageReader::read(std::string id, std::string path, Until until) {
  Volume* const known = volumes_.find(id);
  path = ports_.files.real_path(std::move(path));
  const bool has_record = known != nullptr && known->record;
  if (!has_record && !mounts_now(ports_)->at(path).empty())
    co_return Error{errc::unavailable, "volume " + id + " is mounted at " + path +
                                           ", but this agent has no record of it yet: it is this agent's once the API "
                                           "server names it, or with its next stage (restart kubelet on this node)"};
  if (!has_record || !shows_at(*known, path))
    co_return Error{errc::not_found, "volume " + id + " is neither staged nor published at " + path};
  Volume& volume = *known;
  ++volume.users;
  auto told = co_await read_one(volume, std::move(path), until);
  --volume.users;
  volumes_.forget_if_idle(id);
  co_return told;
}

task<result<host::Usage>> UsageReader::read_one(Volume& volume, std::string path, Until until) {
  if (volume.record->use.block) {
    const auto devices = find_devices(volume, ports_);
    if (!devices) co_return devices.error();
    if (devices->empty()) co_return Error{errc::unavailable, "volume " + volume.id + " has no device: stage it again"};
    used_.ask(volume);
    host::Usage size{usable_bytes(devices->front(), volume.id)};
    if (const auto& last = volume.used.last; last && clock_.now() - last->at <= kUsedCountsFor) {
      // The header of an encrypted volume is stored too, and an image may be larger than its device.
      size.bytes_used = std::min(last->bytes, size.bytes);
      size.bytes_available = size.bytes - size.bytes_used;
    }
    co_return size;
  }
  const auto& stagings = volume.record->stagings;
  const std::string target = stagings.empty() ? path : staging_target(volume.id, stagings.front().path);
  // A device without a server answers nothing, so no helper is started that would wait for the healing.
  if (volume.answers() && !volume.usage.under_way) {
    volume.usage.under_way = std::make_shared<Event>(control_, clock_);
    if (!gate_.spawn(ask(volume, target))) volume.usage.under_way.reset();
  }
  if (const auto answer = volume.usage.under_way) co_await answer->wait(until.at_most(clock_.now() + kPatience));
  if (volume.usage.last) co_return *volume.usage.last;
  co_return Error{errc::unavailable,
                  "the filesystem of volume " + volume.id + " at " + target + " does not answer now: repeat later"};
}

task<> UsageReader::ask(Volume& volume, std::string target) {
  const auto leaving = leaving_;
  const Until until{clock_.now() + kLimit, leaving.get()};
  const auto slot = co_await one_.take(until);
  if (slot) {
    auto told = co_await ports_.mounts.usage(std::move(target), until);
    if (told)
      volume.usage.last = *told;
    else
      log::debug("volume.usage_unknown", {{"volume", volume.id}, {"error", told.error().text}});
  }
  std::exchange(volume.usage.under_way, nullptr)->set();
  // Its record may have gone meanwhile.
  const std::string id = volume.id;
  volumes_.forget_if_idle(id);
}

}  // namespace corbd::volume
