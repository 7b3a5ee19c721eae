// Which Ceph clients a node has, by a /proc and a /sys of the test's own.
#include "corbd/host/ceph_clients.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

namespace {

constexpr const char* kHeader = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n";

/// A node with one process, which is no client.
struct Node {
  Node() {
    fs::create_directories(root.path() + "/proc/self/ns");
    fs::create_symlink("pid:[4026531836]", root.path() + "/proc/self/ns/pid");
    fs::create_directories(root.path() + "/sys/module");
    process(1, {"systemd"});
    sockets(1, "");
  }
  void put(const std::string& path, const std::string& text) const {
    const fs::path file(root.path() + "/" + path);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void process(int pid, const Texts& threads) const {
    const std::string folder = "proc/" + std::to_string(pid);
    put(folder + "/comm", threads.front() + "\n");
    for (std::size_t i = 0; i < threads.size(); ++i)
      put(folder + "/task/" + std::to_string(pid + static_cast<int>(i)) + "/comm", threads[i] + "\n");
  }
  void runs(int pid, const std::string& program) const {
    fs::create_symlink(program, root.path() + "/proc/" + std::to_string(pid) + "/exe");
  }
  void sockets(int pid, const std::string& lines) const {
    put("proc/" + std::to_string(pid) + "/net/tcp", kHeader + lines);
  }
  host::CephClients look(int own = 99) const { return host::find_ceph_clients(root.path(), own); }

  test::Folder root;
};

}  // namespace

TEST_CASE("a node without Ceph clients shows none, and nothing is left unseen") {
  const Node node;
  const auto found = node.look();
  CHECK(found.programs.empty());
  CHECK(found.unsent.empty());
  CHECK_FALSE(found.cephfs);
  CHECK(found.unseen == Texts{});
}

TEST_CASE("a program with a thread of Ceph's messenger is a client, unless it is this process, an OSD or a monitor") {
  const Node node;
  node.process(10, {"rbd-nbd", "log", "msgr-worker-0"});
  node.process(20, {"qemu", "msgr-worker-2"});
  node.process(30, {"ceph-osd", "msgr-worker-0"});
  node.runs(30, "/usr/bin/ceph-osd");
  node.process(40, {"ceph-mon", "msgr-worker-0"});
  node.runs(40, "/usr/bin/ceph-mon (deleted)");
  node.process(99, {"corbd", "msgr-worker-0"});
  auto programs = node.look().programs;
  std::ranges::sort(programs);
  CHECK(programs == Texts{"qemu, process 20", "rbd-nbd, process 10"});
}

TEST_CASE("a program that only calls itself an OSD or a monitor is a client") {
  const Node node;
  node.process(30, {"ceph-osd", "msgr-worker-0"});
  node.runs(30, "/usr/bin/rbd-nbd");
  node.process(40, {"ceph-mon", "msgr-worker-0"});
  node.runs(40, "/usr/bin/ceph-osd");
  node.process(50, {"ceph-osd", "msgr-worker-0"});  // its first thread has ended, and others go on
  CHECK(node.look().programs == Texts{"ceph-osd, process 30", "ceph-mon, process 40", "ceph-osd, process 50"});
  CHECK(node.look().unseen.empty());
}

TEST_CASE("a program that is called an OSD or a monitor is unseen where its file cannot be read") {
  const Node node;
  node.process(30, {"ceph-osd", "msgr-worker-0"});
  node.put("proc/30/exe", "no link");
  CHECK(node.look().programs.empty());
  REQUIRE(node.look().unseen.size() == 1);
  CHECK_THAT(node.look().unseen.front(), ContainsSubstring("whether process 30 is a ceph-osd"));
}

TEST_CASE("a CephFS is seen by the users of its module, and unseen where nobody counts them") {
  const Node node;
  node.put("sys/module/ceph/refcnt", "0\n");
  CHECK_FALSE(node.look().cephfs);
  node.put("sys/module/ceph/refcnt", "2\n");
  CHECK(node.look().cephfs);
  fs::remove(node.root.path() + "/sys/module/ceph/refcnt");
  CHECK_FALSE(node.look().cephfs);
  CHECK(node.look().unseen.size() == 1);
}

TEST_CASE("virtual machines hide their clients") {
  const Node node;
  node.put("sys/module/kvm_intel/refcnt", "0\n");
  CHECK(node.look().unseen.empty());
  node.put("sys/module/kvm_amd/refcnt", "1\n");
  CHECK(node.look().unseen.size() == 1);
}

TEST_CASE("a kernel that does not count the users of KVM may have virtual machines") {
  const Node node;
  node.put("sys/module/kvm/parameters/halt_poll_ns", "0\n");
  CHECK(node.look().unseen.size() == 1);
}

TEST_CASE("a sandbox with a TCP of its own hides its clients, and the host's own packet sockets do not") {
  const Node node;
  const std::string header = "sk       RefCnt Type Proto  Iface R Rmem   User   Inode\n";
  const std::string socket = "00000000 3      3    0003   2     1 0      0      4711\n";
  node.put("proc/1/net/packet", header + socket);
  node.process(50, {"pause"});
  node.sockets(50, "");
  node.put("proc/50/net/packet", header);
  CHECK(node.look().unseen.empty());
  node.put("proc/50/net/packet", header + socket);
  REQUIRE(node.look().unseen.size() == 1);
  CHECK_THAT(node.look().unseen.front(), ContainsSubstring("process 50: it has a packet socket"));
}

TEST_CASE("a process that ends while its sockets are read does not hide its network namespace") {
  const bool other_stays = GENERATE(true, false);
  const Node node;
  const std::string root = node.root.path() + "/proc/";
  node.process(50, {"probe"});
  node.sockets(50, "");
  node.put("proc/50/net/packet", "header\n");
  // The look waits here until the process has ended.
  REQUIRE(::mkfifo((root + "50/net/tcp6").c_str(), 0600) == 0);
  node.process(51, {"runsc"});
  fs::create_directories(root + "51/net");
  fs::create_hard_link(root + "50/net/tcp", root + "51/net/tcp");
  node.put("proc/51/net/packet", "header\na packet socket\n");
  std::atomic<bool> looked = false;
  std::thread end([&] {
    Fd held;
    while (!held && !looked) held = Fd(::open((root + "50/net/tcp6").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    fs::rename(root + "50", node.root.path() + "/ended");
    if (!other_stays) fs::remove_all(root + "51");
  });
  const auto found = node.look();
  looked = true;
  end.join();
  REQUIRE(found.unseen.size() == 1);
  CHECK_THAT(found.unseen.front(),
             ContainsSubstring(other_stays ? "process 51: it has a packet socket" : "process 50, which ended while"));
}

TEST_CASE("a process that holds a network device of its own may be a machine without KVM") {
  const Node node;
  node.process(50, {"qemu-system-x86"});
  fs::create_directories(node.root.path() + "/proc/50/fd");
  fs::create_symlink("/dev/net/tun", node.root.path() + "/proc/50/fd/7");
  CHECK(node.look().unseen.empty());
  node.put("sys/module/tun/refcnt", "0\n");
  CHECK(node.look().unseen.empty());
  node.put("sys/module/tun/refcnt", "1\n");
  REQUIRE(node.look().unseen.size() == 1);
  CHECK_THAT(node.look().unseen.front(), ContainsSubstring("process 50 has /dev/net/tun open"));
  // A link that is listed, and not to be read: here a file in its place.
  fs::remove(node.root.path() + "/proc/50/fd/7");
  node.put("proc/50/fd/7", "");
  REQUIRE(node.look().unseen.size() == 1);
  CHECK_THAT(node.look().unseen.front(), ContainsSubstring("may not read what process 50 have open"));
  fs::remove(node.root.path() + "/proc/50/fd/7");
  fs::create_symlink("/dev/net/tun", node.root.path() + "/proc/50/fd/7");
  fs::remove_all(node.root.path() + "/sys/module/tun");
  node.put("proc/misc", "235 autofs\n200 tun\n");
  CHECK(node.look().unseen.size() == 1);
}

TEST_CASE("an open network device is known whatever its path is, and other open files are none") {
  const Node node;
  node.process(50, {"qemu-system-x86"});
  node.put("sys/module/tun/refcnt", "1\n");
  fs::create_directories(node.root.path() + "/proc/50/fd");
  fs::create_symlink("/var/log/qemu", node.root.path() + "/proc/50/fd/6");
  node.put("proc/50/fdinfo/6", "pos:\t0\nflags:\t0100001\nmnt_id:\t28\nino:\t7\n");
  fs::create_symlink("socket:[99]", node.root.path() + "/proc/50/fd/8");
  CHECK(node.look().unseen.empty());
  fs::create_symlink("/chroot/dev/tun (deleted)", node.root.path() + "/proc/50/fd/7");
  node.put("proc/50/fdinfo/7", "pos:\t0\nflags:\t0100002\nmnt_id:\t28\nino:\t8\niff:\ttap0\n");
  REQUIRE(node.look().unseen.size() == 1);
  CHECK_THAT(node.look().unseen.front(), ContainsSubstring("process 50 has /dev/net/tun open"));
}

TEST_CASE("a port that listens on another address hides no data that is to be sent") {
  const Node node;
  node.sockets(1,
               "   0: 0700000A:9C40 0100000A:1A91 04 00000101:00000000 01:00000014 00000000     0\n"
               "   1: 0100007F:9C40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n");
  CHECK(node.look().unsent == Texts{"10.0.0.7:40000 to 10.0.0.1:6801"});
}

TEST_CASE("a closed socket with data to send is seen in every network namespace, unless this node served it") {
  const Node node;
  node.sockets(1,
               // FIN_WAIT1 with data; the same with its end alone; established; a port that listens.
               "   0: 0700000A:9C40 0100000A:1A91 04 00000101:00000000 01:00000014 00000000     0\n"
               "   1: 0700000A:9C41 0100000A:1A91 04 00000001:00000000 01:00000014 00000000     0\n"
               "   2: 0700000A:9C42 0100000A:1A91 01 00000101:00000000 01:00000014 00000000     0\n"
               "   3: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n"
               "   4: 0700000A:1F90 0800000A:C350 09 00000101:00000000 01:00000014 00000000     0\n");
  node.process(50, {"pause"});
  node.sockets(50, "   0: 0A01000A:9C40 0100000A:1A91 0B 00000010:00000000 01:00000014 00000000     0\n");
  auto unsent = node.look().unsent;
  std::ranges::sort(unsent);
  CHECK(unsent == Texts{"10.0.0.7:40000 to 10.0.0.1:6801", "10.0.1.10:40000 to 10.0.0.1:6801"});
}

TEST_CASE("a node whose processes, sockets or modules cannot be seen is not clean") {
  const Node other;
  fs::remove(other.root.path() + "/proc/self/ns/pid");
  fs::create_symlink("pid:[4026532555]", other.root.path() + "/proc/self/ns/pid");
  CHECK(other.look().unseen.size() == 1);
  const Node strange;
  strange.sockets(1, "what is this\n");
  CHECK(strange.look().unseen.size() == 1);
  const Node without;
  fs::remove_all(without.root.path() + "/sys/module");
  CHECK(without.look().unseen.size() == 1);
  const test::Folder nothing;
  CHECK(host::find_ceph_clients(nothing.path(), 1).unseen.size() >= 3);
}
