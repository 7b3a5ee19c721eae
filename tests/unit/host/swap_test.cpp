// Whether the kernel may swap the agent out, from files as the kernel shows them.
#include <filesystem>
#include <fstream>

#include "corbd/host/cgroup.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

struct Node {
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder.path() + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  Node() {
    write("/proc/swaps",
          "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2    partition\t8388604\t\t0\t\t-2\n");
    write("/proc/self/cgroup", "0::/kubepods/agent\n");
    write("/sys/fs/cgroup/kubepods/memory.swap.max", "max\n");
    write("/sys/fs/cgroup/kubepods/agent/memory.swap.max", "max\n");
  }
  std::string why() const { return host::may_be_swapped(folder.path()); }
  test::Folder folder;
};

}  // namespace

TEST_CASE("on a node with swap, the agent may be swapped out unless a cgroup of it forbids that") {
  const Node node;
  CHECK_THAT(node.why(), ContainsSubstring("/dev/sda2") && ContainsSubstring("memory.swap.max"));
  node.write(GENERATE("/sys/fs/cgroup/kubepods/memory.swap.max", "/sys/fs/cgroup/kubepods/agent/memory.swap.max"),
             "0\n");
  CHECK(node.why().empty());
}

TEST_CASE("on a node without swap, nothing is swapped out") {
  const Node node;
  node.write("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
  CHECK(node.why().empty());
}

TEST_CASE("a limit of some swap, or cgroups of version 1, do not keep the agent in memory") {
  const Node node;
  if (GENERATE(true, false))
    node.write("/sys/fs/cgroup/kubepods/agent/memory.swap.max", "4096\n");
  else
    node.write("/proc/self/cgroup", "9:memory:/kubepods/agent\n");
  CHECK_FALSE(node.why().empty());
}
