#include "corbd/ops/metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "corbd/core/file.hpp"
#include "corbd/rpc/utf8.hpp"
#include "corbd/volume/condition.hpp"

namespace corbd::ops {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

double seconds(duration of) { return std::chrono::duration<double>(of).count(); }

/// Collects one family of metrics after another, with their samples.
class Families {
 public:
  void family(const char* name, MetricType type, const char* help) { all_.push_back({name, help, type, {}}); }
  void sample(Labels labels, double value) {
    ClientMetric& made = add(std::move(labels));
    (all_.back().type == MetricType::Counter ? made.counter.value : made.gauge.value) = value;
  }
  /// `counts`: not cumulative, one more than the bounds.
  template <class Bounds, class Counts>
  void histogram(Labels labels, const Bounds& bounds, const Counts& counts, double sum) {
    auto& into = add(std::move(labels)).histogram;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      into.sample_count += counts.at(i);
      const double bound = i < bounds.size() ? bounds.at(i) : std::numeric_limits<double>::infinity();
      into.bucket.push_back({into.sample_count, bound});
    }
    into.sample_sum = sum;
  }
  void single(const char* name, MetricType type, const char* help, double value) {
    family(name, type, help);
    sample({}, value);
  }
  void counter(const char* name, const char* help, std::uint64_t value) {
    single(name, MetricType::Counter, help, static_cast<double>(value));
  }
  void gauge(const char* name, const char* help, double value) { single(name, MetricType::Gauge, help, value); }
  std::vector<MetricFamily> take() { return std::move(all_); }

 private:
  ClientMetric& add(Labels labels) {
    auto& made = all_.back().metric.emplace_back();
    made.label = std::move(labels);
    // Prometheus refuses the whole page if one label is not UTF-8.
    for (auto& label : made.label) label.value = rpc::valid_utf8(label.value);
    return made;
  }
  std::vector<MetricFamily> all_;
};

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
             "Snapshots for which the volume stood still: its filesystem frozen, its requests held back.",
             [](const auto& volume) { return double{1} * volume.counts.freezes.made; });
  per_volume(into, snapshot, "corbd_volume_freezes_refused_total", MetricType::Counter,
             "Snapshots that were refused because the volume could not stand still.",
             [](const auto& volume) { return double{1} * volume.counts.freezes.refused; });
  per_volume(into, snapshot, "corbd_volume_freezes_broken_total", MetricType::Counter,
             "Snapshots before whose end the volume went on. They are like ones without a freeze.",
             [](const auto& volume) { return double{1} * volume.counts.freezes.broken; });
  per_volume(into, snapshot, "corbd_volume_longest_freeze_seconds", MetricType::Gauge,
             "Longest time from a snapshot's request to the thaw. Writers wait for a part of it.",
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

void healing(Families& into, const Snapshot& snapshot) {
  if (!snapshot.healing) return;
  into.gauge("corbd_heal_queue_length", "Volumes that wait for healing or are being healed.",
             static_cast<double>(snapshot.healing->waiting));
  into.family("corbd_heal_attempts_total", MetricType::Counter, "Ended tries to heal a volume, by result.");
  const auto& ended = snapshot.healing->ended;
  for (std::size_t i = 0; i < ended.size(); ++i)
    into.sample({{"result", std::string(heal::name(static_cast<heal::Outcome>(i)))}}, static_cast<double>(ended.at(i)));
  into.family("corbd_heal_waiting_for_cluster", MetricType::Gauge,
              "1 while the cluster does not answer, so that one volume asks for all.");
  std::set<std::string> clusters;
  for (const auto& volume : snapshot.volumes) clusters.insert(volume.cluster_id);
  for (const auto& cluster : clusters)
    into.sample({{"cluster", cluster}}, snapshot.healing->silent_clusters.contains(cluster) ? 1 : 0);
  into.family("corbd_node_fenced", MetricType::Gauge, "1 while the cluster refuses every client of this node.");
  std::set<std::string> fenced;
  for (const auto& volume : snapshot.volumes)
    if (volume.last_error && volume.last_error->code == errc::node_fenced) fenced.insert(volume.cluster_id);
  for (const auto& cluster : clusters) into.sample({{"cluster", cluster}}, fenced.contains(cluster) ? 1 : 0);
}

void devices(Families& into, const device::Counters& counters) {
  // Command numbers of linux/nbd.h.
  constexpr std::array<std::string_view, 7> commands{"read", "write", "disconnect",  "flush",
                                                     "trim", "",      "write_zeroes"};
  into.family("corbd_nbd_requests_total", MetricType::Counter, "Requests passed to the image, by command.");
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (i != 2 && !commands.at(i).empty())
      into.sample({{"command", std::string(commands.at(i))}}, static_cast<double>(counters.requests.at(i)));
  for (const auto& metric : device::kCountMetrics) into.counter(metric.name, metric.help, counters.of(metric.count));
  const auto gauge = [&](const char* name, const char* help, std::uint64_t value) {
    into.gauge(name, help, static_cast<double>(value));
  };
  gauge("corbd_nbd_budget_bytes", "Memory that requests in flight of all devices may take together.", counters.budget);
  gauge("corbd_nbd_reserved_bytes", "Memory that they may take beyond that: one largest request for each device.",
        counters.reserved);
  gauge("corbd_nbd_in_flight_bytes", "Memory that requests in flight take.", counters.in_flight);
  gauge("corbd_nbd_buffer_bytes", "Memory of all request buffers, in use or kept for later.", counters.buffers);
}

void calls(Families& into, const Snapshot& snapshot) {
  into.family("corbd_csi_operations_seconds", MetricType::Histogram,
              "Ended CSI calls about volumes, by method and gRPC status.");
  for (const auto& [key, histogram] : snapshot.calls.all())
    into.histogram({{"method", key.first}, {"grpc_status_code", grpc_name(key.second)}}, kBuckets, histogram.counts,
                   histogram.sum);
  into.gauge("corbd_csi_operations_in_flight", "CSI calls about volumes that have not ended.",
             static_cast<double>(snapshot.calls_in_flight));
}

void node(Families& into, const Snapshot& snapshot) {
  into.family("corbd_component_verdict", MetricType::Gauge,
              "What `corbd status` says of a component: 0 OK, 1 warning, 2 critical.");
  for (const auto& component : snapshot.health.components)
    into.sample({{"component", component.name}}, static_cast<double>(component.verdict));
  into.gauge("corbd_ready", "1 while /readyz answers 200.", snapshot.health.ready() ? 1 : 0);
}

/// By proc(5), field 22 of /proc/self/stat is the start in ticks after the boot, and btime of /proc/stat is the boot.
double start_of_process() {
  const auto self = read_file("/proc/self/stat", 4096), all = read_file("/proc/stat", 1 << 20);
  if (!self || !all) return 0;
  // The name, field 2, may contain spaces and brackets.
  std::istringstream fields(self->substr(self->rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0, boot = 0;
  fields >> ticks;
  const auto line = all->find("\nbtime ");
  if (line != std::string::npos) std::istringstream(all->substr(line + 7)) >> boot;
  return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

void agent(Families& into, const Snapshot& snapshot) {
  into.family("corbd_build_info", MetricType::Gauge, "The agent's version; always 1.");
  into.sample({{"version", snapshot.version}}, 1);
  into.gauge("corbd_control_loop_lag_seconds", "Worst delay of the control thread in the last minute.",
             seconds(snapshot.loop_lag));
  into.gauge("corbd_told_to_end_seconds",
             "How long ago the agent was told to end, while it serves on until the next one asks; 0: it was not.",
             seconds(snapshot.told_to_end));
  if (snapshot.keeper)
    into.single("corbd_agent_deaths_total", MetricType::Counter,
                "Agents that were killed or crashed, and that their keeper started again, since the keeper began.",
                snapshot.keeper->deaths);
  // Every Prometheus client uses these names (prometheus.io/docs/instrumenting/writing_clientlibs, process metrics).
  const Process& process = snapshot.process;
  into.single("process_cpu_seconds_total", MetricType::Counter, "User and system CPU time.", process.cpu_seconds);
  into.gauge("process_resident_memory_bytes", "Memory of this process.", static_cast<double>(process.resident_bytes));
  into.gauge("process_virtual_memory_bytes", "Address space of this process.",
             static_cast<double>(process.virtual_bytes));
  into.gauge("process_open_fds", "Open file descriptors.", static_cast<double>(process.open_fds));
  into.gauge("process_max_fds", "Most file descriptors that it may open.", static_cast<double>(process.max_fds));
  into.gauge("process_threads", "Threads.", static_cast<double>(process.threads));
  into.gauge("process_start_time_seconds", "Start of this process, since 1970.", process.started_at);
}

}  // namespace

std::optional<VolumeMetrics> volume_metrics_of(std::string_view text) {
  if (text == "none") return VolumeMetrics::none;
  if (text == "counters") return VolumeMetrics::counters;
  if (text == "latency") return VolumeMetrics::latency;
  return std::nullopt;
}

std::string grpc_name(int code) {
  constexpr std::array names{
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto place = static_cast<std::size_t>(code);
  return place < names.size() ? names.at(place) : "UNKNOWN";
}

void Histogram::add(double value) {
  const auto place = std::lower_bound(kBuckets.begin(), kBuckets.end(), value);
  ++counts.at(static_cast<std::size_t>(place - kBuckets.begin()));
  sum += value;
}

void Calls::add(const rpc::Ended& ended) {
  all_[{std::string(ended.method), ended.grpc_code}].add(seconds(ended.took));
}

Healing healing_of(const heal::HealQueue& queue, const std::vector<volume::Status>& volumes) {
  Healing healing{queue.entries().size(), queue.ended(), {}};
  for (const auto& volume : volumes)
    if (queue.waits_for_cluster(volume.cluster_id)) healing.silent_clusters.insert(volume.cluster_id);
  return healing;
}

Process read_process() {
  Process process;
  std::uint64_t size = 0, pages = 0;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (const auto statm = read_file("/proc/self/statm", 4096)) std::istringstream(*statm) >> size >> pages;
  process.virtual_bytes = size * page;
  process.resident_bytes = pages * page;
  std::error_code failed;
  const auto entries = [&](const char* folder) {
    std::uint64_t count = 0;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
      ++count;
    return count;
  };
  // Subtract the descriptor that this read opens.
  process.open_fds = std::max<std::uint64_t>(entries("/proc/self/fd"), 1) - 1;
  process.threads = entries("/proc/self/task");
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) process.max_fds = files.rlim_cur;
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    const auto time = [](const timeval& of) {
      return static_cast<double>(of.tv_sec) + static_cast<double>(of.tv_usec) / 1e6;
    };
    process.cpu_seconds = time(used.ru_utime) + time(used.ru_stime);
  }
  static const double started_at = start_of_process();
  process.started_at = started_at;
  return process;
}

std::string render(const Snapshot& snapshot) {
  Families all;
  volumes(all, snapshot);
  volume_io(all, snapshot);
  healing(all, snapshot);
  devices(all, snapshot.devices);
  calls(all, snapshot);
  node(all, snapshot);
  agent(all, snapshot);
  return prometheus::TextSerializer().Serialize(all.take());
}

}  // namespace corbd::ops
