// What the kernel says of the room for volumes.
#include "node_capacity.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

TEST_CASE("the narrowest limit of the agent's cgroups counts, beside the node's memory and threads") {
  const test::Folder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder.path() + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  const auto none = agent::read_capacity(folder.path(), 7);
  CHECK(none.chosen == 7);
  CHECK_FALSE(none.partitions);
  CHECK_FALSE(none.memory);
  CHECK_FALSE(none.tasks);
  CHECK(none.descriptors);
  write("/proc/meminfo", "MemTotal:        8000 kB\nMemFree:          1 kB\n");
  write("/proc/sys/kernel/threads-max", "5000\n");
  write("/sys/module/nbd/parameters/max_part", "31\n");
  const auto node = agent::read_capacity(folder.path(), 0);
  CHECK(node.partitions == 31);
  CHECK(node.memory == 8000u << 10);
  CHECK(node.tasks == 5000);
  write("/proc/self/cgroup", "0::/pods/agent\n");
  write("/sys/fs/cgroup/pods/agent/memory.max", "max\n");
  write("/sys/fs/cgroup/pods/agent/pids.max", "max\n");
  write("/sys/fs/cgroup/pods/memory.max", "1048576\n");
  write("/sys/fs/cgroup/pods/pids.max", "300\n");
  const auto pod = agent::read_capacity(folder.path(), 0);
  CHECK(pod.memory == 1u << 20);
  CHECK(pod.tasks == 300);
}
