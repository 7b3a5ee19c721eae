#include "corbd/ops/metrics.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

volume::Status status(std::string id, volume::Health health = volume::Health::staged) {
  volume::Status made;
  made.volume_id = std::move(id);
  made.cluster_id = "prod";
  made.health = health;
  return made;
}

const time_point t0 = time_point() + 1h;

}  // namespace

TEST_CASE("a volume's state metric is 1 for its state and 0 for every other") {
  ops::Snapshot snapshot;
  snapshot.volumes = {status("v1", volume::Health::unproven)};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("# TYPE corbd_volume_state gauge\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_state{volume=\"v1\",state=\"unproven\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_state{volume=\"v1\",state=\"staged\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_state{volume=\"v1\",state=\"unstaging\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_state_records 1\n"));
}

TEST_CASE("a volume's times are in seconds, and zero while it is served") {
  ops::Snapshot snapshot;
  snapshot.now = t0 + 90s;
  auto down = status("down");
  down.unserved = true;
  down.unserved_since = t0;
  down.oldest = 1500ms;
  down.counts.links_lost = 3;
  down.other_silent = 150s;
  down.counts.longest_stall = 250ms;
  down.counts.trimmed_bytes = 4096;
  down.counts.trimmed_at = std::chrono::system_clock::time_point(7s);
  snapshot.volumes = {down, status("up")};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_volume_trimmed_bytes_total{volume=\"down\"} 4096\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_trimmed_timestamp_seconds{volume=\"down\"} 7\n"));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_trimmed_timestamp_seconds{volume=\"up\"}"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_unserved_seconds{volume=\"down\"} 90\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_unserved_seconds{volume=\"up\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_abnormal{volume=\"down\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_abnormal{volume=\"up\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_oldest_request_seconds{volume=\"down\"} 1.5\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_server_silent_seconds{volume=\"down\"} 150\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_links_lost_total{volume=\"down\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_longest_stall_seconds{volume=\"down\"} 0.25\n"));
}

TEST_CASE("the metric of used bytes has only volumes that were counted in the last ten minutes") {
  ops::Snapshot snapshot;
  snapshot.now = t0;
  auto counted = status("counted"), old = status("old");
  counted.used = volume::UsedBytes{8192, t0 - 10min};
  old.used = volume::UsedBytes{8192, t0 - 10min - 1s};
  snapshot.volumes = {counted, old, status("never")};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_volume_used_bytes{volume=\"counted\"} 8192\n"));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_used_bytes{volume=\"old\"}"));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_used_bytes{volume=\"never\"}"));
}

TEST_CASE("volumes are counted by the Ceph user and key that serve them, those apart that are to have another") {
  ops::Snapshot snapshot;
  snapshot.volumes = {status("v1"), status("v2"), status("v3"), status("v4")};
  const volume::ShownKey key{"node", "0123456789ab", cephcsi::KeyType::aes, {}};
  for (std::size_t i = 0; i < 3; ++i) snapshot.volumes[i].keys.present = key;
  snapshot.volumes[2].keys.next = volume::ShownKey{"node.1", "ba9876543210", cephcsi::KeyType::aes256k, {}};
  const auto text = ops::render(snapshot);
  const std::string labels = "{cluster=\"prod\",user=\"node\",key=\"0123456789ab\",key_type=\"aes\",current=";
  CHECK_THAT(text, ContainsSubstring("corbd_ceph_credential_devices" + labels + "\"true\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_ceph_credential_devices" + labels + "\"false\"} 1\n"));
}

TEST_CASE("the time that an agent serves after it was told to end is in seconds, and zero before that") {
  ops::Snapshot snapshot;
  CHECK_THAT(ops::render(snapshot), ContainsSubstring("corbd_told_to_end_seconds 0\n"));
  snapshot.told_to_end = 20s;
  CHECK_THAT(ops::render(snapshot), ContainsSubstring("corbd_told_to_end_seconds 20\n"));
}

TEST_CASE("a label's value cannot end its line or its quotes") {
  ops::Snapshot snapshot;
  snapshot.volumes = {status("a\"b\\c\nd")};
  CHECK_THAT(ops::render(snapshot), ContainsSubstring("{volume=\"a\\\"b\\\\c\\nd\"} 0\n"));
}

TEST_CASE("calls are counted in the bucket of their time and in all above it") {
  ops::Calls calls;
  calls.add({"NodeStageVolume", 0, 100ms});
  calls.add({"NodeStageVolume", 0, 2s});
  calls.add({"NodeStageVolume", 0, 700s});
  calls.add({"NodeStageVolume", 14, 1s});
  ops::Snapshot snapshot;
  snapshot.calls = calls;
  snapshot.calls_in_flight = 2;
  const auto text = ops::render(snapshot);
  const std::string ok = "corbd_csi_operations_seconds_bucket{method=\"NodeStageVolume\",grpc_status_code=\"OK\",le=";
  CHECK_THAT(text, ContainsSubstring(ok + "\"0.1\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring(ok + "\"1\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring(ok + "\"2.5\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(ok + "\"600\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(ok + "\"+Inf\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring(
                       "corbd_csi_operations_seconds_sum{method=\"NodeStageVolume\",grpc_status_code=\"OK\"} 702.1\n"));
  CHECK_THAT(
      text, ContainsSubstring(
                "corbd_csi_operations_seconds_count{method=\"NodeStageVolume\",grpc_status_code=\"UNAVAILABLE\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_csi_operations_in_flight 2\n"));
}

TEST_CASE("healing shows its queue, how tries ended and which cluster is waited for") {
  heal::HealQueue queue({});
  heal::HealEntry entry;
  entry.volume_id = "v1";
  entry.cluster_id = "prod";
  queue.add(entry, t0);
  queue.start(t0);
  queue.ended("v1", heal::Outcome::unreachable, t0, 0.5);
  ops::Snapshot snapshot;
  snapshot.volumes = {status("v1"), status("v2")};
  snapshot.volumes.back().cluster_id = "other";
  snapshot.healing = ops::healing_of(queue, snapshot.volumes);
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_heal_queue_length 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_heal_attempts_total{result=\"unreachable\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_heal_attempts_total{result=\"healed\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_heal_waiting_for_cluster{cluster=\"prod\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_heal_waiting_for_cluster{cluster=\"other\"} 0\n"));
}

TEST_CASE("the devices' counters have the commands' names") {
  ops::Snapshot snapshot;
  snapshot.devices.requests = {10, 20, 0, 30, 40, 0, 50};
  snapshot.devices.of(device::Count::image_errors) = 7;
  snapshot.devices.budget = 512;
  snapshot.devices.reserved = 3;
  snapshot.devices.in_flight = 4;
  snapshot.devices.buffers = 5;
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_requests_total{command=\"write\"} 20\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_requests_total{command=\"write_zeroes\"} 50\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_image_errors_total 7\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_budget_bytes 512\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_reserved_bytes 3\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_in_flight_bytes 4\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_nbd_buffer_bytes 5\n"));
}

TEST_CASE("a volume's requests, bytes and errors are counted by operation") {
  ops::Snapshot snapshot;
  auto busy = status("v1");
  busy.figures.of(device::RequestKind::write) = {
      .requests = 7, .bytes = 28672, .errors = 2, .micros = 0, .latency = {}};
  busy.figures.slow = 3;
  busy.figures.still_micros = 2'500'000;
  busy.in_flight = 4;
  snapshot.volumes = {busy};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("# TYPE corbd_volume_requests_total counter\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_requests_total{volume=\"v1\",operation=\"write\"} 7\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_requests_total{volume=\"v1\",operation=\"read\"} 0\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_bytes_total{volume=\"v1\",operation=\"write\"} 28672\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_errors_total{volume=\"v1\",operation=\"write\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_slow_requests_total{volume=\"v1\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_budget_wait_seconds_total{volume=\"v1\"} 2.5\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_in_flight{volume=\"v1\"} 4\n"));
}

TEST_CASE("a volume's other names are labels of one metric") {
  ops::Snapshot snapshot;
  auto named = status("v1");
  named.pvc = "data";
  named.pvc_namespace = "shop";
  named.pv = "pvc-1";
  named.image = "pool/img";
  named.device = 3;
  snapshot.volumes = {named, status("v2")};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_volume_info{volume=\"v1\",pvc=\"data\",pvc_namespace=\"shop\",pv=\"pvc-1\","
                                     "cluster=\"prod\",image=\"pool/img\",device=\"nbd3\"} 1\n"));
  CHECK_THAT(text, ContainsSubstring("corbd_volume_info{volume=\"v2\",pvc=\"\","));
}

TEST_CASE("the limits of a pod's cgroup are metrics, one for each limit that it has") {
  ops::Snapshot snapshot;
  snapshot.volumes = {status("v1"), status("v2")};
  snapshot.volumes.front().io_limits = {{"shop/db-0", {.write_iops = 100, .read_bps = 4096}}};
  const auto text = ops::render(snapshot);
  CHECK_THAT(text,
             ContainsSubstring("corbd_volume_io_limit{volume=\"v1\",pod=\"shop/db-0\",limit=\"write_iops\"} 100\n"
                               "corbd_volume_io_limit{volume=\"v1\",pod=\"shop/db-0\",limit=\"read_bps\"} 4096\n"));
  CHECK_THAT(text, !ContainsSubstring("limit=\"read_iops\""));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_io_limit{volume=\"v2\""));
}

TEST_CASE("a volume that the kernel serves has no counters here") {
  ops::Snapshot snapshot;
  snapshot.volumes = {status("v1")};
  snapshot.volumes.back().kind = device::Kind::krbd;
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_volume_abnormal{volume=\"v1\"} 0\n"));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_requests_total{"));
  CHECK_THAT(text, !ContainsSubstring("corbd_volume_in_flight{"));
}

TEST_CASE("a volume's I/O metrics are none, counters, or counters with latencies, as chosen") {
  ops::Snapshot snapshot;
  auto busy = status("v1");
  auto& reads = busy.figures.of(device::RequestKind::read);
  reads.requests = 3;
  reads.micros = 2'500'000;
  reads.latency.front() = 2;
  reads.latency.back() = 1;
  snapshot.volumes = {busy};
  CHECK_THAT(ops::render(snapshot), !ContainsSubstring("corbd_volume_latency_seconds"));
  snapshot.volume_metrics = ops::volume_metrics_of("none").value();
  CHECK_THAT(ops::render(snapshot), !ContainsSubstring("corbd_volume_requests_total"));
  snapshot.volume_metrics = ops::volume_metrics_of("latency").value();
  const auto text = ops::render(snapshot);
  const std::string of = "corbd_volume_latency_seconds_";
  CHECK_THAT(text, ContainsSubstring("# TYPE corbd_volume_latency_seconds histogram\n"));
  CHECK_THAT(text, ContainsSubstring(of + "bucket{volume=\"v1\",operation=\"read\",le=\"0.0005\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(of + "bucket{volume=\"v1\",operation=\"read\",le=\"10\"} 2\n"));
  CHECK_THAT(text, ContainsSubstring(of + "bucket{volume=\"v1\",operation=\"read\",le=\"+Inf\"} 3\n"));
  CHECK_THAT(text, ContainsSubstring(of + "sum{volume=\"v1\",operation=\"read\"} 2.5\n"));
  CHECK_THAT(text, ContainsSubstring(of + "count{volume=\"v1\",operation=\"read\"} 3\n"));
  CHECK(!ops::volume_metrics_of("all"));
}

TEST_CASE("the process metrics have CPU time, memory, descriptors, threads and start time") {
  ops::Snapshot snapshot;
  snapshot.process = ops::read_process();
  CHECK(snapshot.process.cpu_seconds > 0);
  CHECK(snapshot.process.max_fds >= snapshot.process.open_fds);
  CHECK(snapshot.process.virtual_bytes >= snapshot.process.resident_bytes);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  CHECK(snapshot.process.started_at <= now + 1);
  CHECK(snapshot.process.started_at > now - 86400);
  const auto text = ops::render(snapshot);
  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes",
                           "process_open_fds", "process_max_fds", "process_threads", "process_start_time_seconds"})
    CHECK_THAT(text, ContainsSubstring(std::string("\n") + name + " "));
}

TEST_CASE("every line is a comment or a sample, and a metric is described once") {
  ops::Snapshot snapshot;
  snapshot.version = "1.2.3";
  snapshot.process = ops::read_process();
  CHECK(snapshot.process.resident_bytes > 0);
  CHECK(snapshot.process.open_fds >= 3);
  CHECK(snapshot.process.threads >= 1);
  const auto text = ops::render(snapshot);
  CHECK_THAT(text, ContainsSubstring("corbd_build_info{version=\"1.2.3\"} 1\n"));
  CHECK(text.back() == '\n');
  std::map<std::string, int> described;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# TYPE "))
      ++described[line.substr(7, line.rfind(' ') - 7)];
    else if (!line.starts_with("#"))
      CHECK(line.find(' ') != std::string::npos);
  }
  for (const auto& [name, times] : described) CHECK(times == 1);
}
