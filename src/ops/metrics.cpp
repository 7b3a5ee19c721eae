#include "corbd/ops/metrics.hpp"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "families.hpp"

namespace corbd::ops {
namespace {

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
