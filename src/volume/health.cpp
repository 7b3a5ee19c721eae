// Computes the status of a volume for people and metrics.
#include <algorithm>
#include <array>

#include "corbd/volume/condition.hpp"
#include "volume.hpp"

namespace corbd::volume {
namespace {

bool turned_read_only(const Record& record, const device::Seen& device, const host::MountList& mounts) {
  if (record.damaged) return false;
  return std::ranges::any_of(record.stagings, [&](const Staging& staging) {
    if (staging.capability.block || wants_read_only(staging.capability)) return false;
    const std::string target = staging_target(record.volume_id, staging.path);
    return std::ranges::any_of(mounts.at(target), [&](const auto& mount) {
      return shows(*mount.second, device, record.volume_id) && mount.second->filesystem_read_only;
    });
  });
}

bool is_used(const Record& record, const device::Seen& device, const host::MountList& mounts) {
  const auto foreign = [&](const auto& holder) { return !is_own_mapping(holder, record.volume_id); };
  host::MountList::Found shown;
  add_shown(mounts, device, record.volume_id, shown);
  return !shown.empty() || std::ranges::any_of(device.holders, foreign);
}

/// The kernel makes a device of its own client as small as the image. A served device keeps its size.
std::optional<std::uint64_t> shrunk_to(const Volume& volume, const device::Seen& device) {
  if (!traits(volume.record->device.kind).served)
    return device.size < volume.record->device.size ? std::optional(device.size) : std::nullopt;
  const image::Image* const image = volume.server.is_tombstone() ? nullptr : volume.server.image();
  if (image == nullptr || image->size() >= device.size) return std::nullopt;
  return image->size();
}

void add_publish(const Publish& publish, Status& status) {
  status.published_at.push_back(publish.target);
  if (!publish.pod.empty()) status.pods.push_back(publish.pod);
  // A pod of the same name may have ended, and its publish may be left. The newest counts.
  std::erase_if(status.io_limits, [&](const auto& one) { return one.pod == publish.pod; });
  if (!publish.limits.empty()) status.io_limits.push_back({publish.pod, publish.limits});
}

}  // namespace

std::string_view name(Health health) {
  constexpr std::array<std::string_view, 8> names{"absent",   "staging", "staged", "reconnecting",
                                                  "unproven", "lost",    "failed", "unstaging"};
  return names.at(static_cast<std::size_t>(health));
}

void end_stall(Volume& volume, time_point now) {
  if (volume.history.stall.since)
    volume.history.counts.longest_stall =
        std::max(volume.history.counts.longest_stall, now - *volume.history.stall.since);
  volume.history.stall.since.reset();
}

void resume_stall(Volume& volume) {
  if (volume.history.stall.since)
    volume.history.unserved_since = std::exchange(volume.history.stall.since, std::nullopt);
}

device::Figures figures_of(const Volume& volume) {
  device::Figures all = volume.history.ended_links;
  if (volume.server.link() != nullptr) all += volume.server.link()->figures();
  return all;
}

std::unique_ptr<device::Link> take_link(Volume& volume) {
  volume.history.ended_links = figures_of(volume);
  return volume.server.take_link();
}

Health health_of(const Volume& volume) {
  if (!volume.record) return Health::absent;
  const Record& record = *volume.record;
  if (record.failed) return Health::failed;
  if (record.stagings.empty() && record.publishes.empty()) return Health::unstaging;
  if ((volume.device.gone || volume.device.disconnected) && record.device.index) return Health::absent;
  if (!volume.answers() && record.device.index) {
    const errc code = volume.history.last_error ? volume.history.last_error->code : errc::ok;
    if (code == errc::unproven) return Health::unproven;
    if (code == errc::lost) return Health::lost;
    return Health::reconnecting;
  }
  const auto& stagings = record.stagings;
  if (stagings.empty()) return Health::unstaging;
  return std::any_of(stagings.begin(), stagings.end(), [](const auto& staging) { return staging.complete; })
             ? Health::staged
             : Health::staging;
}

Status status_of(const Volume& volume, const device::Seen* seen, const host::MountList& mounts) {
  const Record& record = *volume.record;
  Status status;
  status.volume_id = volume.id;
  status.health = volume.history.health;
  status.quiesces = volume.quiesces && volume.server.own() != nullptr;
  status.frozen = record.freeze.has_value();
  status.since = volume.history.since;
  status.cluster_id = record.source.cluster_id;
  status.image = image::Name{record.source.pool, record.source.ns, record.source.image}.text();
  status.image_key = record.key.text();
  status.device = record.device.index;
  status.kind = record.device.kind;
  status.size = seen != nullptr ? seen->size : record.device.size;
  status.block = record.use.block;
  status.read_only = record.use.read_only;
  for (const auto& staging : record.stagings) status.staged_at.push_back(staging.path);
  for (const auto& publish : record.publishes) add_publish(publish, status);
  status.pvc = record.claim.name;
  status.pvc_namespace = record.claim.name_space;
  status.pv = record.claim.volume;
  status.attachment_uid = record.proof.attachment_uid;
  status.driver = record.names.driver;
  status.node = record.names.node;
  status.adopting = record.adopting.has_value();
  status.in_use = seen != nullptr && is_used(record, *seen, mounts);
  status.turned_read_only = seen != nullptr && turned_read_only(record, *seen, mounts);
  status.damaged = record.damaged;
  if (seen != nullptr) status.shrunk_to = shrunk_to(volume, *seen);
  if (seen != nullptr && !traits(record.device.kind).served && seen->client == volume.device.refused_client)
    status.kernel_refused = seen->client;
  status.access_lost = volume.server.link() != nullptr && volume.server.link()->state() == device::Link::State::held;
  const image::Image* const image = volume.server.image();
  if (image != nullptr) {
    status.client = image->client();
    status.caches_before_flush = image->caches_before_flush();
    status.reads = image->read_policy();
    status.refused_again = image->refused_again();
  }
  const device::Link* const link = volume.server.link();
  status.cache_lost = record.cache_lost || (link != nullptr && link->fails_flushes());
  status.keys = keys_of(volume, seen);
  status.served_by_other = record.adopting && volume.answers();
  if (status.served_by_other) {
    status.other_pids = volume.other.pids;
    status.other_silent = volume.other.silence.lasted();
  }
  status.unserved = seen != nullptr && !volume.answers();
  status.unserved_since = volume.history.unserved_since;
  status.waiting = seen != nullptr ? seen->waiting : 0;
  status.oldest = volume.server.link() != nullptr ? volume.server.link()->oldest() : duration::zero();
  status.unanswered = volume.server.unanswered();
  status.counts = volume.history.counts;
  status.figures = figures_of(volume);
  if (record.use.block) status.used = volume.used.last;
  status.why_not_trimmed = volume.why_not_trimmed;
  status.in_flight = volume.server.link() != nullptr ? volume.server.link()->in_flight() : 0;
  status.last_error = volume.history.last_error;
  if (!status.last_error && !status.kernel_refused.empty())
    status.last_error = Error{errc::fenced, text_of_refused_kernel(status)};
  if (!status.last_error && status.shrunk_to) status.last_error = Error{errc::io, text_of_shrunk(status)};
  return status;
}

}  // namespace corbd::volume
