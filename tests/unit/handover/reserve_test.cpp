// Which pod waits in reserve, and which pod's process lives.
#include "corbd/handover/reserve.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "corbd/handover/pulse.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

namespace corbd::test {
namespace {

using namespace handover;
using namespace std::chrono_literals;

bool eventually(const std::function<bool()>& is_so) {
  for (int tries = 0; tries < 600; ++tries) {
    if (is_so()) return true;
    std::this_thread::sleep_for(50ms);
  }
  return false;
}

}  // namespace

TEST_CASE("a pod shows as in reserve even if another process read its note as the wait began") {
  const Folder folder;
  const auto lock = lock_folder(folder.path());
  REQUIRE(lock);
  REQUIRE(note_pod_in_reserve(folder.path(), "pod-1"));
  Fd looks(::open((folder.path() + "/in-reserve").c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(::flock(looks.get(), LOCK_EX | LOCK_NB) == 0);
  const pid_t reserve = ::fork();
  if (reserve == 0) {
    looks.reset();  // a lock ends with the last copy of its descriptor
    const auto called = wait_in_reserve(folder.path(), folder.path(), "pod-1", 0s);
    ::_exit(called && !*called ? 0 : 1);
  }
  std::this_thread::sleep_for(300ms);
  looks.reset();
  CHECK(eventually([&] {
    const auto waits = call_reserve(folder.path(), "pod-2");
    return waits && *waits;
  }));
  int status = 0;
  CHECK(eventually([&] { return ::waitpid(reserve, &status, WNOHANG) == reserve; }));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a pod is not in reserve between writing its note and waiting") {
  const Folder folder;
  REQUIRE(note_pod_in_reserve(folder.path(), "pod-1"));
  const auto waits = call_reserve(folder.path(), "pod-2");
  REQUIRE(waits);
  CHECK_FALSE(*waits);
}

TEST_CASE("a pod is alive as long as one of its processes says so, and files of dead pods are removed") {
  const Folder folder;
  CHECK_FALSE(pod_lives(folder.path(), "pod-1"));
  Fd first = say_pod_lives(folder.path(), "pod-1");
  REQUIRE(first);
  Fd second = say_pod_lives(folder.path(), "pod-1");
  REQUIRE(second);
  CHECK(pod_lives(folder.path(), "pod-1"));
  first.reset();
  CHECK(pod_lives(folder.path(), "pod-1"));
  CHECK_FALSE(pod_lives(folder.path(), "pod-2"));
  CHECK_FALSE(pod_lives(folder.path(), ""));
  second.reset();
  CHECK_FALSE(pod_lives(folder.path(), "pod-1"));
  const Fd other = say_pod_lives(folder.path(), "pod-2");
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/pods/pod-1"));
}

TEST_CASE("a starting pod stays alive even if another pod mistakes its file for a dead pod's") {
  const Folder folder;
  const std::string pods = folder.path() + "/pods", path = pods + "/pod-1";
  REQUIRE(make_folder(pods, 0700));
  Fd other(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(other.get(), LOCK_EX) == 0);
  Fd lives;
  std::thread pod([&] { lives = say_pod_lives(folder.path(), "pod-1"); });
  const bool waits = eventually([] {
    const auto locks = read_file("/proc/locks", 1u << 20);
    return locks && locks->find("-> FLOCK") != std::string::npos;
  });
  ::unlink(path.c_str());
  other.reset();
  pod.join();
  CHECK(waits);
  REQUIRE(lives);
  CHECK(pod_lives(folder.path(), "pod-1"));
}

TEST_CASE("a keeper has a liveness file of its own, and a pulse lasts until the agent's next one") {
  const Folder folder;
  const Fd keeper = say_keeper_lives(folder.path(), "pod-1");
  REQUIRE(keeper);
  CHECK_FALSE(pod_lives(folder.path(), "pod-1"));
  const std::string file = folder.path() + "/pods/pod-1";
  Fd agent = say_pod_lives(folder.path(), "pod-1");
  REQUIRE(agent);
  CHECK(std::filesystem::exists(file + ".keeper"));
  Pulse pulse;
  const auto reads = [&] {
    const auto line = read_file(file, 1 << 12);
    return line && read_line(line->c_str(), pulse);
  };
  CHECK_FALSE(reads());
  note_pulse(agent.get(), "nbd: " + std::string(1000, 'x'));
  REQUIRE(reads());
  CHECK_FALSE(pulse.ready);
  CHECK_THAT(pulse.why, ContainsSubstring("nbd: xxx"));
  note_pulse(agent.get(), "");
  REQUIRE(reads());
  CHECK(pulse.ready);
  CHECK(std::string(pulse.why).empty());
  CHECK(monotonic_ms() - pulse.at_ms < 60'000);
  const Fd next = say_pod_lives(folder.path(), "pod-1");
  CHECK_FALSE(reads());
}

TEST_CASE("a pod recreates the file that another pod's agent removed as a dead pod's", "[failure:171]") {
  const Folder folder;
  std::atomic<bool> go_on{true};
  std::thread other([&] {
    while (go_on) say_pod_lives(folder.path(), "pod-2");
  });
  int lost = 0;
  for (int times = 0; times < 2000; ++times) {
    const Fd mine = say_pod_lives(folder.path(), "pod-1");
    lost += pod_lives(folder.path(), "pod-1") ? 0 : 1;
  }
  go_on = false;
  other.join();
  CHECK(lost == 0);
}

}  // namespace corbd::test
