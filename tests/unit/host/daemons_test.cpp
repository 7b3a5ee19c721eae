// Which rbd-nbd process serves a device.
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "corbd/core/fd.hpp"
#include "ops.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
namespace ops = host::ops;

namespace {

constexpr const char* kAllUsers = "         0          0 4294967295\n";
constexpr const char* kHostsDev =
    "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:6 / /dev rw,nosuid shared:2 - devtmpfs udev rw\n"
    "23 22 0:20 / /dev/shm rw - tmpfs tmpfs rw\n";

/// A /proc and a /sys of our own, where no link of a namespace can be read.
struct Root {
  Root() {
    put("proc/self/uid_map", kAllUsers);
    put("proc/1/mountinfo", kHostsDev);
  }
  test::Folder folder;
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file(folder.path() + "/" + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void process(int pid, const std::string& comm, std::vector<std::string> arguments,
               const std::string& capabilities = "000001ffffffffff") {
    std::string line;
    for (const auto& one : arguments) line += one + '\0';
    put("proc/" + std::to_string(pid) + "/comm", comm + "\n");
    put("proc/" + std::to_string(pid) + "/cmdline", line);
    put("proc/" + std::to_string(pid) + "/uid_map", kAllUsers);
    put("proc/" + std::to_string(pid) + "/mountinfo", kHostsDev);
    put("proc/" + std::to_string(pid) + "/status", "Name:\t" + comm + "\nCapEff:\t" + capabilities + "\nSeccomp:\t0\n");
  }
  void user_namespace(const std::string& process, const std::string& of) {
    const std::filesystem::path link(folder.path() + "/proc/" + process + "/ns/user");
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink("user:[" + of + "]", link);
  }
  std::string path(const std::string& below) const { return folder.path() + "/" + below; }
  std::vector<int> serving(std::uint32_t index, const std::string& backend) {
    return ops::daemons(folder.path(), index, backend).value();
  }
};

/// Counts how often a file is opened.
class Opens {
 public:
  explicit Opens(const std::string& file) {
    REQUIRE(queue_);
    // Two equal events in a row would be one.
    REQUIRE(::inotify_add_watch(queue_.get(), file.c_str(), IN_OPEN | IN_CLOSE_NOWRITE) >= 0);
  }
  int count() {
    alignas(inotify_event) char events[4096];
    for (ssize_t got = 0; (got = ::read(queue_.get(), events, sizeof events)) > 0;)
      for (ssize_t at = 0; at < got;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events + at);
        if ((event->mask & IN_OPEN) != 0) ++opened_;
        at += static_cast<ssize_t>(sizeof *event + event->len);
      }
    return opened_;
  }

 private:
  Fd queue_{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
  int opened_ = 0;
};

}  // namespace

TEST_CASE("rbd-nbd serves the device that its command line names by device or cookie, or that it connected") {
  Root root;
  root.put("sys/block/nbd0/pid", "10\n");
  root.process(10, "rbd-nbd", {"rbd-nbd", "--id", "a", "map", "pool/one", "--try-netlink"});
  root.process(11, "rbd-nbd", {"rbd-nbd", "attach", "pool/two", "--device", "/dev/nbd1"});
  root.process(12, "rbd-nbd", {"rbd-nbd", "map", "pool/three", "--cookie=volume-3"});
  CHECK(root.serving(0, "volume-1") == std::vector{10});
  CHECK(root.serving(1, "volume-2") == std::vector{11});
  CHECK(root.serving(2, "volume-3") == std::vector{12});
  CHECK(root.serving(3, "volume-4").empty());
}

TEST_CASE("other programs, other subcommands and processes that are ending serve no device") {
  Root root;
  root.put("sys/block/nbd0/pid", "10\n");
  root.process(10, "rbd-nbd", {});
  root.process(11, "bash", {"bash", "map", "--device", "/dev/nbd0"});
  root.process(12, "rbd-nbd", {"rbd-nbd", "unmap", "--device", "/dev/nbd0"});
  root.process(13, "rbd-nbd", {"rbd-nbd", "map", "pool/two", "--device", "/dev/nbd01"});
  root.put("proc/self/comm", "rbd-nbd\n");
  CHECK(root.serving(0, "").empty());
}

TEST_CASE("a process that cannot serve a device does not count as its rbd-nbd, whatever its name and arguments are") {
  Root root;
  root.user_namespace("self", "4026531837");
  const std::vector<std::string> arguments{"rbd-nbd", "attach", "--device", "/dev/nbd7"};
  root.process(10, "rbd-nbd", arguments, "00000000a80425fb");  // what a container's root has
  root.process(11, "rbd-nbd", arguments, "0000000000000000");
  root.process(12, "rbd-nbd", arguments);
  root.user_namespace("12", "4026532000");
  CHECK(root.serving(7, "volume").empty());
  root.process(13, "rbd-nbd", arguments);
  root.user_namespace("13", "4026531837");
  CHECK(root.serving(7, "volume") == std::vector{13});
}

TEST_CASE("without a readable namespace, the owner and the user IDs of a process tell whether it can serve a device") {
  Root root;
  const std::vector<std::string> arguments{"rbd-nbd", "attach", "--device", "/dev/nbd7"};
  root.process(10, "rbd-nbd", arguments);
  CHECK(root.serving(7, "volume") == std::vector{10});
  root.put("proc/10/uid_map", "         0       1000          1\n");
  CHECK(root.serving(7, "volume").empty());
  std::filesystem::remove(root.folder.path() + "/proc/10/uid_map");
  CHECK(root.serving(7, "volume").empty());
  root.process(11, "rbd-nbd", arguments);
  CHECK(root.serving(7, "volume") == std::vector{11});
  if (::geteuid() != 0) return;
  REQUIRE(::chown((root.folder.path() + "/proc/11").c_str(), 1000, 1000) == 0);
  CHECK(root.serving(7, "volume").empty());
}

TEST_CASE("without a readable namespace, a process without the host's /dev serves no device") {
  Root root;
  const std::vector<std::string> arguments{"rbd-nbd", "attach", "--device", "/dev/nbd7"};
  root.process(10, "rbd-nbd", arguments);
  // A container's own, a device of the host's as one file, the host's elsewhere, and none.
  for (const char* its : {"31 30 0:60 / /dev rw - tmpfs tmpfs rw\n", "31 30 0:6 /nbd7 /dev rw - devtmpfs udev rw\n",
                          "31 30 0:6 / /mnt/dev rw - devtmpfs udev rw\n",
                          "31 30 0:6 / /dev rw - devtmpfs udev rw\n32 31 0:60 / /dev rw - tmpfs tmpfs rw\n", ""}) {
    CAPTURE(its);
    root.put("proc/10/mountinfo", its);
    CHECK(root.serving(7, "volume").empty());
  }
  root.put("proc/10/mountinfo", "99 98 0:6 / /dev rw - devtmpfs udev rw\n");
  CHECK(root.serving(7, "volume") == std::vector{10});
  // Where the host has nothing mounted there, that tells nothing.
  root.put("proc/10/mountinfo", "");
  root.put("proc/1/mountinfo", "");
  CHECK(root.serving(7, "volume") == std::vector{10});
}

TEST_CASE("without a readable namespace, a process with more than 4 MiB of mounts serves no device") {
  Root root;
  root.process(10, "rbd-nbd", {"rbd-nbd", "attach", "--device", "/dev/nbd7"});
  std::string mounts;
  while (mounts.size() <= 4 << 20) mounts += "40 39 0:70 / /srv/" + std::string(200, 'x') + " rw - tmpfs tmpfs rw\n";
  root.put("proc/10/mountinfo", mounts + kHostsDev);
  CHECK(root.serving(7, "volume").empty());
  root.put("proc/10/mountinfo", kHostsDev);
  root.put("proc/1/mountinfo", mounts + kHostsDev);
  CHECK(root.serving(7, "volume") == std::vector{10});
}

TEST_CASE("a look reads the host's mounts once, and of others only those of processes that name the device") {
  Root root;
  const std::vector<std::string> arguments{"rbd-nbd", "attach", "--device", "/dev/nbd7"};
  root.process(10, "rbd-nbd", arguments);
  root.process(11, "rbd-nbd", arguments);
  root.process(12, "rbd-nbd", arguments, "0000000000000000");
  root.process(13, "rbd-nbd", {"rbd-nbd", "attach", "--device", "/dev/nbd8"});
  Opens hosts(root.path("proc/1/mountinfo")), without_rights(root.path("proc/12/mountinfo")),
      of_another(root.path("proc/13/mountinfo"));
  CHECK(root.serving(7, "volume").size() == 2);
  CHECK(hosts.count() == 1);
  CHECK(without_rights.count() == 0);
  CHECK(of_another.count() == 0);
}

TEST_CASE("a dismissed rbd-nbd gets SIGTERM, and the caller waits for its end") {
  if (::geteuid() != 0) return;  // what is no root's serves no device
  const test::Folder folder;
  const std::string program = folder.path() + "/rbd-nbd";
  const std::string ended = folder.path() + "/ended";
  std::ofstream(program) << "#!/bin/sh\nsleep 60 &\ntrap 'kill $!; sleep 0.3; touch " << ended << "; exit 0' TERM\n: > "
                         << folder.path() << "/ready\nwait\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::execl(program.c_str(), program.c_str(), "map", "pool/image", "--cookie", "a-volume-of-this-test", nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 200 && !std::filesystem::exists(folder.path() + "/ready"); ++i) ::usleep(20000);
  // Between fork and exec the script's child has the script's own command line.
  const auto found = [] { return ops::daemons("", 4000, "a-volume-of-this-test").value(); };
  for (int i = 0; i < 200 && found().size() > 1; ++i) ::usleep(20000);
  CHECK(found() == std::vector<int>{child});
  CHECK(ops::dismiss(4000, "a-volume-of-this-test"));
  CHECK(std::filesystem::exists(ended));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}
