// Metrics for Prometheus. A pure function turns a snapshot into the text format, on any thread: 300 volumes take it
// tens of milliseconds. prometheus-cpp writes it. Its registry is not used: every figure has an owner already, and a
// volume that goes takes its own along.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corbd/device/device.hpp"
#include "corbd/heal/heal_queue.hpp"
#include "corbd/ops/node_health.hpp"
#include "corbd/rpc/calls.hpp"
#include "corbd/volume/status.hpp"

namespace corbd::ops {

/// Bounds in seconds, the same as kubelet's csi_operations_seconds.
inline constexpr std::array kBuckets{0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0};

struct Histogram {
  std::array<std::uint64_t, kBuckets.size() + 1>
      counts{};    ///< per bucket, not cumulative; the last bucket has the calls above all bounds
  double sum = 0;  ///< seconds
  void add(double seconds);
};

/// CSI calls that ended, by method and grpc::StatusCode. Their number is bounded, because both come from our own lists.
class Calls {
 public:
  void add(const rpc::Ended& ended);
  const std::map<std::pair<std::string, int>, Histogram>& all() const { return all_; }

 private:
  std::map<std::pair<std::string, int>, Histogram> all_;
};

struct Process {
  std::uint64_t resident_bytes = 0, virtual_bytes = 0, open_fds = 0, max_fds = 0, threads = 0;
  double cpu_seconds = 0;  ///< sum of user and system
  double started_at = 0;   ///< seconds since 1970
};
/// Figures of this process, from /proc.
Process read_process();

/// Detail of each volume's I/O. 300 volumes have 4,200 series of counters, and 15,600 more with latencies.
enum class VolumeMetrics { none, counters, latency };
/// Parses "none", "counters" or "latency".
std::optional<VolumeMetrics> volume_metrics_of(std::string_view text);

struct Healing {
  std::size_t waiting = 0;  ///< volumes that wait for healing or are being healed
  heal::HealQueue::Counts ended{};
  std::set<std::string> silent_clusters;  ///< HealQueue::waits_for_cluster()
};
Healing healing_of(const heal::HealQueue& queue, const std::vector<volume::Status>& volumes);

/// Holds only copies, so nothing in it changes or goes while it is rendered.
struct Snapshot {
  time_point now{};
  std::string version;
  std::vector<volume::Status> volumes;
  VolumeMetrics volume_metrics = VolumeMetrics::counters;
  std::optional<Healing> healing;
  device::Counters devices;
  Calls calls;
  std::size_t calls_in_flight = 0;
  duration loop_lag{};                ///< LoopLag::worst()
  std::optional<KeeperFacts> keeper;  ///< nothing: this agent has no keeper
  duration told_to_end{};             ///< time that the agent has served since then; 0: it was not told
  NodeHealth health;
  Process process;
};

/// Returns "UNAVAILABLE" for 14.
std::string grpc_name(int code);

/// Returns Prometheus' text format, version 0.0.4.
std::string render(const Snapshot& snapshot);
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace corbd::ops
