#include "corbd/ops/metrics.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>

#include "corbd/core/file.hpp"
#include "corbd/volume/condition.hpp"

namespace corbd::ops {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

double seconds(duration of) { return std::chrono::duration<double>(of).count(); }

std::string number(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

/// One metric after another: its head, then its samples. (The text format of
/// prometheus.io/docs/instrumenting/exposition_formats.)
class Text {
 public:
  void metric(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    out_.append("# HELP ")
        .append(name)
        .append(" ")
        .append(help)
        .append("\n# TYPE ")
        .append(name)
        .append(" ")
        .append(type)
        .append("\n");
  }
  void sample(const Labels& labels, double value, std::string_view suffix = {}) {
    out_.append(name_).append(suffix);
    for (std::size_t i = 0; i < labels.size(); ++i)
      out_.append(i == 0 ? "{" : ",")
          .append(labels[i].first)
          .append("=\"")
          .append(escaped(labels[i].second))
          .append("\"");
    out_.append(labels.empty() ? " " : "} ").append(number(value)).append("\n");
  }
  void single(std::string_view name, std::string_view type, std::string_view help, double value) {
    metric(name, type, help);
    sample({}, value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_, out_;
};

template <class Value>
void per_volume(Text& text, const Snapshot& snapshot, std::string_view name, std::string_view type,
                std::string_view help, Value value) {
  text.metric(name, type, help);
  for (const auto& volume : snapshot.volumes) text.sample({{"volume", volume.volume_id}}, value(volume));
}

void volumes(Text& text, const Snapshot& snapshot) {
  text.metric("corbd_volume_state", "gauge", "1 for the state that the volume is in, 0 for the others.");
  for (const auto& volume : snapshot.volumes)
    for (int state = 0; state <= static_cast<int>(volume::Health::unstaging); ++state) {
      const auto health = static_cast<volume::Health>(state);
      text.sample({{"volume", volume.volume_id}, {"state", volume::name(health)}}, volume.health == health ? 1 : 0);
    }
  per_volume(text, snapshot, "corbd_volume_abnormal", "gauge",
             "1 while the volume's condition, as in NodeGetVolumeStats, is abnormal.",
             [](const auto& of) { return condition_of(of).kind == volume::Condition::Kind::healthy ? 0.0 : 1.0; });
  per_volume(text, snapshot, "corbd_volume_unserved_seconds", "gauge",
             "How long the volume's device has had no server; 0 while it is served.", [&](const auto& volume) {
               return volume.unserved_since ? seconds(snapshot.now - *volume.unserved_since) : 0.0;
             });
  per_volume(text, snapshot, "corbd_volume_oldest_request_seconds", "gauge",
             "Age of the volume's oldest request that the cluster has not answered.",
             [](const auto& volume) { return seconds(volume.oldest); });
  per_volume(text, snapshot, "corbd_volume_links_lost_total", "counter", "Times the volume's device lost its server.",
             [](const auto& volume) { return double{1} * volume.links_lost; });
  per_volume(text, snapshot, "corbd_volume_longest_stall_seconds", "gauge",
             "Longest time that the volume was without a server since the agent's start.",
             [](const auto& volume) { return seconds(volume.longest_stall); });
  text.single("corbd_state_records", "gauge", "Volumes that have a record.",
              static_cast<double>(snapshot.volumes.size()));
}

void healing(Text& text, const Snapshot& snapshot) {
  if (snapshot.ward == nullptr) return;
  text.single("corbd_heal_patients", "gauge", "Volumes that wait for healing or are being healed.",
              static_cast<double>(snapshot.ward->patients().size()));
  text.metric("corbd_heal_attempts_total", "counter", "Ended tries to heal a volume, by result.");
  const auto& ended = snapshot.ward->ended();
  for (std::size_t i = 0; i < ended.size(); ++i)
    text.sample({{"result", heal::name(static_cast<heal::Outcome>(i))}}, static_cast<double>(ended.at(i)));
  text.metric("corbd_heal_waiting_for_cluster", "gauge",
              "1 while the cluster does not answer, so that one volume asks for all.");
  std::set<std::string> clusters;
  for (const auto& volume : snapshot.volumes) clusters.insert(volume.cluster_id);
  for (const auto& cluster : clusters)
    text.sample({{"cluster", cluster}}, snapshot.ward->waits_for_cluster(cluster) ? 1 : 0);
  text.metric("corbd_node_fenced", "gauge", "1 while the cluster refuses every client of this node.");
  std::set<std::string> fenced;
  for (const auto& volume : snapshot.volumes)
    if (volume.last_error && volume.last_error->code == errc::node_fenced) fenced.insert(volume.cluster_id);
  for (const auto& cluster : clusters) text.sample({{"cluster", cluster}}, fenced.contains(cluster) ? 1 : 0);
}

void devices(Text& text, const device::Counters& counters) {
  // linux/nbd.h
  constexpr std::array<std::string_view, 7> commands{"read", "write", "disconnect",  "flush",
                                                     "trim", "",      "write_zeroes"};
  text.metric("corbd_nbd_requests_total", "counter", "Requests passed to the image, by command.");
  for (std::size_t i = 0; i < commands.size(); ++i)
    if (i != 2 && !commands.at(i).empty())
      text.sample({{"command", commands.at(i)}}, static_cast<double>(counters.requests.at(i)));
  const auto count = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    text.single(name, "counter", help, static_cast<double>(value));
  };
  count("corbd_nbd_refused_total", "Requests answered with an error without asking the image.", counters.refused);
  count("corbd_nbd_image_errors_total", "Requests answered with the image's error.", counters.image_errors);
  count("corbd_nbd_links_held_total", "Links shut because the image's connection failed.", counters.held);
  count("corbd_nbd_links_broken_total", "Links shut because the peer did not speak the protocol.", counters.broken);
  count("corbd_nbd_links_dead_total", "Dead links that the kernel reported.", counters.links_dead);
  count("corbd_nbd_budget_waits_total", "Times the agent stopped reading a device because too much was in flight.",
        counters.budget_waits);
  const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    text.single(name, "gauge", help, static_cast<double>(value));
  };
  gauge("corbd_nbd_budget_bytes", "Memory that requests in flight of all devices may take together.", counters.budget);
  gauge("corbd_nbd_reserved_bytes", "Memory that they may take beyond that: one largest request for each device.",
        counters.reserved);
  gauge("corbd_nbd_in_flight_bytes", "Memory that requests in flight take.", counters.in_flight);
  gauge("corbd_nbd_buffer_bytes", "Memory of all request buffers, in use or kept for later.", counters.buffers);
}

void calls(Text& text, const Snapshot& snapshot) {
  text.metric("corbd_csi_operations_seconds", "histogram", "Ended CSI calls about volumes, by method and gRPC status.");
  static const std::map<std::pair<std::string, int>, Histogram> none;
  for (const auto& [key, histogram] : snapshot.calls != nullptr ? snapshot.calls->all() : none) {
    const std::string code = grpc_name(key.second);
    const Labels labels{{"method", key.first}, {"grpc_status_code", code}};
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
      sum += histogram.counts.at(i);
      const std::string bound = i < kBuckets.size() ? number(kBuckets.at(i)) : "+Inf";
      Labels with_bound = labels;
      with_bound.emplace_back("le", bound);
      text.sample(with_bound, static_cast<double>(sum), "_bucket");
    }
    text.sample(labels, histogram.sum, "_sum");
    text.sample(labels, static_cast<double>(sum), "_count");
  }
  text.single("corbd_csi_operations_in_flight", "gauge", "CSI calls about volumes that have not ended.",
              static_cast<double>(snapshot.calls_in_flight));
}

void agent(Text& text, const Snapshot& snapshot) {
  text.metric("corbd_build_info", "gauge", "The agent's version; always 1.");
  text.sample({{"version", snapshot.version}}, 1);
  text.single("corbd_control_loop_lag_seconds", "gauge", "Worst delay of the control thread in the last minute.",
              seconds(snapshot.loop_lag));
  text.single("process_resident_memory_bytes", "gauge", "Memory of this process.",
              static_cast<double>(snapshot.process.resident_bytes));
  text.single("process_open_fds", "gauge", "Open file descriptors.", static_cast<double>(snapshot.process.open_fds));
  text.single("process_threads", "gauge", "Threads.", static_cast<double>(snapshot.process.threads));
}

}  // namespace

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

Process read_process() {
  Process process;
  std::uint64_t ignored = 0, pages = 0;
  if (const auto statm = read_file("/proc/self/statm", 4096)) std::istringstream(*statm) >> ignored >> pages;
  process.resident_bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::error_code failed;
  const auto entries = [&](const char* folder) {
    std::uint64_t count = 0;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
      ++count;
    return count;
  };
  // The look itself opens one.
  process.open_fds = std::max<std::uint64_t>(entries("/proc/self/fd"), 1) - 1;
  process.threads = entries("/proc/self/task");
  return process;
}

std::string render(const Snapshot& snapshot) {
  Text text;
  volumes(text, snapshot);
  healing(text, snapshot);
  devices(text, snapshot.devices);
  calls(text, snapshot);
  agent(text, snapshot);
  return text.take();
}

}  // namespace corbd::ops
