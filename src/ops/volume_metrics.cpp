// The metrics of volumes.
#include <array>
#include <map>
#include <string_view>

#include "corbd/volume/condition.hpp"
#include "families.hpp"

namespace corbd::ops {
namespace {

template <class Value>
void per_volume(Families& into, const Snapshot& snapshot, const char* name, MetricType type, const char* help,
                Value value) {
  into.family(name, type, help);
  for (const auto& volume : snapshot.volumes) into.sample({{"volume", volume.volume_id}}, value(volume));
}

void credentials(Families& into, const Snapshot& snapshot) {
  into.family("corbd_ceph_credential_devices", MetricType::Gauge,
              "Volumes by their Ceph user and key; current is false if they are to have others.");
  std::map<std::array<std::string, 5>, std::size_t> counts;
  for (const auto& volume : snapshot.volumes)
    if (const auto& key = volume.keys.present)
      ++counts[{volume.cluster_id, key->user, key->fingerprint, std::string(cephcsi::name(key->type)),
                volume.keys.next ? "false" : "true"}];
  for (const auto& [key, count] : counts)
    into.sample({{"cluster", key[0]}, {"user", key[1]}, {"key", key[2]}, {"key_type", key[3]}, {"current", key[4]}},
                static_cast<double>(count));
}

void trims(Families& into, const Snapshot& snapshot) {
  per_volume(into, snapshot, "corbd_volume_trimmed_bytes_total", MetricType::Counter,
             "Free space that the volume's filesystem gave back to the cluster.",
             [](const auto& volume) { return static_cast<double>(volume.counts.trimmed_bytes); });
  into.family("corbd_volume_trimmed_timestamp_seconds", MetricType::Gauge,
              "When the volume's filesystem was last trimmed to its end, since 1970; absent: not yet.");
  for (const auto& volume : snapshot.volumes)
    if (const auto& at = volume.counts.trimmed_at)
      into.sample({{"volume", volume.volume_id}}, seconds(at->time_since_epoch()));
}

void used(Families& into, const Snapshot& snapshot) {
  into.family("corbd_volume_used_bytes", MetricType::Gauge,
              "Bytes stored for the image of a raw block volume; absent: not counted in the last ten minutes.");
  for (const auto& volume : snapshot.volumes)
    if (const auto bytes = used_now(volume, snapshot.now))
      into.sample({{"volume", volume.volume_id}}, static_cast<double>(*bytes));
}

/// Adds samples of volumes that this agent serves. The kernel counts for the others: /sys/block/rbd*/stat, which
/// node_exporter reads.
template <class Sample>
void per_operation(Families& into, const Snapshot& snapshot, const char* name, MetricType type, const char* help,
                   Sample sample) {
  into.family(name, type, help);
  for (const auto& volume : snapshot.volumes) {
    if (!device::traits(volume.kind).served) continue;
    for (std::size_t i = 0; i < volume.figures.by.size(); ++i)
      sample(Labels{{"volume", volume.volume_id}, {"operation", std::string(device::kRequestKinds.at(i))}},
             volume.figures.by.at(i));
  }
}

}  // namespace

void volumes(Families& into, const Snapshot& snapshot) {
  into.family("corbd_volume_state", MetricType::Gauge, "1 for the state that the volume is in, 0 for the others.");
  for (const auto& volume : snapshot.volumes)
    for (int state = 0; state <= static_cast<int>(volume::Health::unstaging); ++state) {
      const auto health = static_cast<volume::Health>(state);
      into.sample({{"volume", volume.volume_id}, {"state", std::string(volume::name(health))}},
                  volume.health == health ? 1 : 0);
    }
  per_volume(into, snapshot, "corbd_volume_abnormal", MetricType::Gauge,
             "1 while the volume's condition, as in NodeGetVolumeStats, is abnormal.",
             [](const auto& of) { return condition_of(of).kind == volume::Condition::Kind::healthy ? 0.0 : 1.0; });
  per_volume(into, snapshot, "corbd_volume_unserved_seconds", MetricType::Gauge,
             "How long the volume's device has had no server; 0 while it is served.", [&](const auto& volume) {
               return volume.unserved_since ? seconds(snapshot.now - *volume.unserved_since) : 0.0;
             });
  per_volume(into, snapshot, "corbd_volume_oldest_request_seconds", MetricType::Gauge,
             "Age of the volume's oldest request that the cluster has not answered.",
             [](const auto& volume) { return seconds(volume.oldest); });
  per_volume(into, snapshot, "corbd_volume_server_silent_seconds", MetricType::Gauge,
             "For how long rbd-nbd, which serves the volume's device, has answered none of the requests that wait.",
             [](const auto& volume) { return seconds(volume.other_silent); });
  per_volume(into, snapshot, "corbd_volume_links_lost_total", MetricType::Counter,
             "Times the volume's device lost its server.",
             [](const auto& volume) { return double{1} * volume.counts.links_lost; });
  per_volume(into, snapshot, "corbd_volume_longest_stall_seconds", MetricType::Gauge,
             "Longest time that the volume was without a server since the agent's start.",
             [](const auto& volume) { return seconds(volume.counts.longest_stall); });
  per_volume(into, snapshot, "corbd_volume_freezes_total", MetricType::Counter,
             "Snapshots for which corbd froze the filesystem, or held the requests of a raw block device back.",
             [](const auto& volume) { return double{1} * volume.counts.freezes.made; });
  per_volume(into, snapshot, "corbd_volume_freezes_refused_total", MetricType::Counter,
             "Snapshots that corbd refused: the volume did not stand still in time, or the agent was leaving.",
             [](const auto& volume) { return double{1} * volume.counts.freezes.refused; });
  per_volume(into, snapshot, "corbd_volume_freezes_broken_total", MetricType::Counter,
             "Snapshots that may have been made after the thaw: delete them (docs/snapshots.md).",
             [](const auto& volume) { return double{1} * volume.counts.freezes.broken; });
  per_volume(into, snapshot, "corbd_volume_longest_freeze_seconds", MetricType::Gauge,
             "Longest time from a request of a snapshot to the thaw; writers wait for the last part of it.",
             [](const auto& volume) { return seconds(volume.counts.freezes.longest); });
  trims(into, snapshot);
  used(into, snapshot);
  into.family("corbd_volume_io_limit", MetricType::Gauge,
              "Limit of a pod's cgroup for the volume, a second: in requests (iops) or bytes (bps).");
  for (const auto& volume : snapshot.volumes)
    for (const auto& [pod, limits] : volume.io_limits)
      for (const auto& [name, limit] : {std::pair{"read_iops", limits.read_iops},
                                        {"write_iops", limits.write_iops},
                                        {"read_bps", limits.read_bps},
                                        {"write_bps", limits.write_bps}})
        if (limit != 0)
          into.sample({{"volume", volume.volume_id}, {"pod", pod}, {"limit", name}}, static_cast<double>(limit));
  into.family("corbd_volume_info", MetricType::Gauge,
              "The volume's other names, to join with the volume's other metrics; always 1.");
  for (const auto& volume : snapshot.volumes)
    into.sample(
        {{"volume", volume.volume_id},
         {"pvc", volume.pvc},
         {"pvc_namespace", volume.pvc_namespace},
         {"pv", volume.pv},
         {"cluster", volume.cluster_id},
         {"image", volume.image},
         {"device",
          volume.device ? std::string(device::traits(volume.kind).prefix) + std::to_string(*volume.device) : ""}},
        1);
  credentials(into, snapshot);
  into.gauge("corbd_state_records", "Volumes that have a record.", static_cast<double>(snapshot.volumes.size()));
}

void volume_io(Families& into, const Snapshot& snapshot) {
  if (snapshot.volume_metrics == VolumeMetrics::none) return;
  const auto count = [&](const char* name, const char* help, std::uint64_t device::RequestFigures::* figure) {
    per_operation(into, snapshot, name, MetricType::Counter, help, [&](Labels labels, const auto& of) {
      into.sample(std::move(labels), static_cast<double>(of.*figure));
    });
  };
  using Of = device::RequestFigures;
  count("corbd_volume_requests_total", "Requests that the image answered, by operation.", &Of::requests);
  count("corbd_volume_bytes_total", "Bytes that those requests named.", &Of::bytes);
  count("corbd_volume_errors_total", "Requests that the image answered with an error.", &Of::errors);
  const auto single = [&](const char* name, MetricType type, const char* help, auto figure) {
    into.family(name, type, help);
    for (const auto& volume : snapshot.volumes)
      if (device::traits(volume.kind).served)
        into.sample({{"volume", volume.volume_id}}, static_cast<double>(figure(volume)));
  };
  single("corbd_volume_slow_requests_total", MetricType::Counter,
         "Requests that took as long as --slow-request or longer.",
         [](const volume::Status& of) { return of.figures.slow; });
  single("corbd_volume_budget_wait_seconds_total", MetricType::Counter,
         "Time for which the agent read no request of the volume's device, because requests in flight had the memory. "
         "No latency has it.",
         [](const volume::Status& of) { return static_cast<double>(of.figures.still_micros) / 1e6; });
  single("corbd_volume_in_flight", MetricType::Gauge, "Requests that the cluster has not answered.",
         [](const volume::Status& of) { return of.in_flight; });
  if (snapshot.volume_metrics != VolumeMetrics::latency) return;
  per_operation(into, snapshot, "corbd_volume_latency_seconds", MetricType::Histogram,
                "Time from the request's begin at the image to its answer, by operation. A wait for the memory budget "
                "is not in it: see corbd_volume_budget_wait_seconds_total.",
                [&](Labels labels, const Of& of) {
                  into.histogram(std::move(labels), device::kLatencyBounds, of.latency,
                                 static_cast<double>(of.micros) / 1e6);
                });
}

}  // namespace corbd::ops
