// Tests the whole way from a dead agent to served volumes on a real cluster, without a kernel. librbd, records, planner
// and healer are real. Devices and mounts are fakes.
#include "control_plane.hpp"

#include <fstream>

using namespace corbd;
using namespace corbd::lab;

namespace {

constexpr int kVolumes = 100;
std::string id_of(int number) { return "many-" + std::to_string(number); }

/// A line of /proc/self/status: KiB, or a count.
long status_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  return 0;
}

void stage(ControlPlane& node, int from, int to) {
  std::vector<plan::Staged> wishes;
  for (int number = from; number < to; ++number) wishes.push_back(staged(id_of(number)));
  node.stage(wishes);
}

}  // namespace

TEST_CASE("a child agent that stages many volumes and waits for its end", "[.][many-child]") {
  const std::string dir = env("CORBD_LAB_CHILD_DIR");
  ControlPlane node(dir);
  asio::co_spawn(node.io, node.shell.start(), [](std::exception_ptr, result<>) {});
  node.io.poll();
  stage(node, 0, 1);
  const long rss = status_of("VmRSS"), threads = status_of("Threads");
  stage(node, 1, 32);
  const long full_threads = status_of("Threads");
  stage(node, 32, kVolumes);
  std::ofstream(dir + "/ready.tmp") << rss << ' ' << threads << ' ' << full_threads << ' ' << status_of("VmRSS") << ' '
                                    << status_of("Threads");
  std::filesystem::rename(dir + "/ready.tmp", dir + "/ready");
  for (;;) node.io.run_one_for(1s);
}

TEST_CASE("100 volumes of a killed agent are proven, locked and served by the next start", "[.][many]") {
  Admin admin;
  for (int number = 0; number < kVolumes; ++number) admin.create(id_of(number), 16 << 20);
  const test::Folder folder;
  Child child(folder.path(), "[many-child]");
  long rss = 0, threads = 0, full_threads = 0, rss_all = 0, threads_all = 0;
  std::ifstream(folder.path() + "/ready") >> rss >> threads >> full_threads >> rss_all >> threads_all;
  child.kill();
  REQUIRE(threads_all > 0);

  const auto begun = std::chrono::steady_clock::now();
  ControlPlane node(folder.path());
  for (int number = 0; number < kVolumes; ++number) node.devices->add(id_of(number), 16 << 20);
  // The records name devices in the order of the stages; the kernel has them all the same.
  bool started = false;
  asio::co_spawn(node.io, node.records->load(), [&](std::exception_ptr, result<volume::Loaded> loaded) {
    REQUIRE(loaded);
    for (const auto& record : loaded->records)
      for (auto& seen : node.devices->seen)
        if (seen.backend == record.volume_id) seen.index = *record.device.index;
    started = true;
  });
  node.run_until([&] { return started; });
  started = false;
  asio::co_spawn(node.io, node.shell.start(), [&](std::exception_ptr, result<>) { started = true; });
  node.run_until([&] { return started; });
  node.healer.start();
  node.run_until([&] { return node.healer.queue().entries().empty(); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  for (const auto& status : node.shell.status()) {
    INFO(status.volume_id << (status.last_error ? ": " + status.last_error->text : ""));
    CHECK_FALSE(status.unserved);
  }
  std::printf(
      "start to %d volumes proven, locked and served: %.2f s; one more volume: %.0f KiB; threads %ld with 1, %ld with "
      "32, %ld with %d\n",
      kVolumes, took.count(), static_cast<double>(rss_all - rss) / (kVolumes - 1), threads, full_threads, threads_all,
      kVolumes);
}
