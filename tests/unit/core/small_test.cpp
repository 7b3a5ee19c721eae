#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "corbd/core/backoff.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/utc.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/small_disk.hpp"

using namespace corbd;
using namespace std::chrono_literals;

TEST_CASE("a secret leaves nothing behind where it was: neither moved from, nor overwritten, nor destroyed") {
  const auto holds = [](const void* memory, std::size_t bytes, std::string_view text) {
    return ::memmem(memory, bytes, text.data(), text.size()) != nullptr;
  };
  alignas(Secret) std::array<char, sizeof(Secret)> place;
  auto* secret = new (place.data()) Secret(std::string("short-key-123"));
  CHECK(holds(place.data(), place.size(), "short-key-123"));
  const Secret taken(std::move(*secret));
  CHECK_FALSE(holds(place.data(), place.size(), "short-key-123"));
  CHECK(taken.reveal() == "short-key-123");
  *secret = taken;
  CHECK(secret->reveal() == "short-key-123");
  *secret = Secret(std::string("tiny"));
  CHECK_FALSE(holds(place.data(), place.size(), "key-123"));
  *secret = taken;
  secret->~Secret();
  CHECK_FALSE(holds(place.data(), place.size(), "short-key-123"));
  std::string source = "another-key";
  const Secret from(std::move(source));
  CHECK_FALSE(holds(&source, sizeof source, "another-key"));
}

TEST_CASE("a wiped JSON object has no string of it left") {
  boost::json::object body{{"op", "luks_open"},
                           {"in", boost::json::object{{"list", boost::json::array{"a-passphrase-in-a-list"}}}}};
  const auto& text = body.at("in").at("list").at(0).get_string();
  wipe(body.at("in"));
  CHECK(std::string_view(text.data(), text.size()) == std::string(text.size(), '\0'));
  wipe(body);
  CHECK(body.empty());
}

TEST_CASE("a process that forbids core dumps leaves a backtrace and no dump, and its memory is not to be looked at") {
  std::array<int, 2> ends;
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_CORE, &unlimited);
    install_signal_handlers();
    forbid_core_dumps();
    if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 || !core_dumps_forbidden()) ::_exit(1);
    ::raise(SIGSEGV);
    ::_exit(2);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  std::size_t got = 0;
  for (ssize_t more = 1; more > 0 && got < said.size(); got += static_cast<std::size_t>(std::max<ssize_t>(more, 0)))
    more = ::read(ends[0], said.data() + got, said.size() - got);
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
  CHECK_FALSE(WCOREDUMP(status));
  CHECK_THAT(said, ContainsSubstring("unit_core"));
}

TEST_CASE("backoff doubles from the first wait to the cap") {
  const Backoff backoff{1s, 60s};
  CHECK(backoff.after(0, 1.0) == 1s);
  CHECK(backoff.after(3, 1.0) == 8s);
  CHECK(backoff.after(6, 1.0) == 60s);
  CHECK(backoff.after(4000000000u, 1.0) == 60s);
}

TEST_CASE("backoff jitters over its whole range but never tries at once") {
  const Backoff backoff{1s, 60s};
  CHECK(backoff.after(2, 0.5) == 2s);
  CHECK(backoff.after(2, 0.0) == 400ms);
}

const failpoint::Places kPlaces({"step.mount.before"});

TEST_CASE("a failpoint that is not armed does nothing") { CHECK(failpoint::hit("step.mount.before")); }

TEST_CASE("a failpoint fails at its Nth hit and only then") {
  REQUIRE(failpoint::arm("step.mount.before=error@2"));
  CHECK(failpoint::hit("step.mount.before"));
  CHECK_FALSE(failpoint::hit("step.mount.before"));
  CHECK(failpoint::hit("step.mount.before"));
  REQUIRE(failpoint::arm("step.mount.before=off"));
}

TEST_CASE("a failpoint that does not exist cannot be armed") {
  const auto armed = failpoint::arm("step.nowhere.before=kill");
  REQUIRE_FALSE(armed);
  CHECK_THAT(armed.error().text, ContainsSubstring("--list-failpoints"));
  CHECK_FALSE(failpoint::arm("step.mount.before=explode"));
  CHECK_FALSE(failpoint::arm("step.mount.before=kill@0"));
}

TEST_CASE("a file written durably has the new content, the mode asked for and leaves no tmp file") {
  const test::Folder folder;
  const std::string path = folder.path() + "/a";
  REQUIRE(write_durably(path, "old", 0600));
  REQUIRE(write_durably(path, "new", 0600));
  CHECK(*read_file(path, 100) == "new");
  struct stat found{};
  REQUIRE(::stat(path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("a file that cannot be written is a state_write error that names it, and the old content stays") {
  const auto failed = write_durably("/proc/corbd-nowhere/a", "x", 0600);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == errc::state_write);
  CHECK_THAT(failed.error().text, ContainsSubstring("/proc/corbd-nowhere/a"));
}

TEST_CASE("a second agent on the state folder is told the first one's pid") {
  const test::Folder folder;
  const auto first = lock_folder(folder.path());
  REQUIRE(first);
  const auto second = lock_folder(folder.path());
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::in_use);
  CHECK_THAT(second.error().text, ContainsSubstring(std::to_string(::getpid())));
}

TEST_CASE("a folder that was held before can be held on a full disk") {
  const auto disk = test::SmallDisk::mount(64);
  if (!disk) return;
  REQUIRE(lock_folder(disk->path()));
  disk->fill();
  CHECK(lock_folder(disk->path()));
}

TEST_CASE("a runtime folder on a disk is refused") {
  CHECK_FALSE(check_tmpfs("/usr"));
  CHECK(check_tmpfs("/dev/shm"));
}

TEST_CASE("sha256 names files") { CHECK(sha256_hex("abc").substr(0, 16) == "ba7816bf8f01cfea"); }

TEST_CASE("a time is written in whole seconds of UTC") {
  CHECK(utc_text(std::chrono::system_clock::time_point(1'700'000'000s + 999ms)) == "2023-11-14T22:13:20Z");
}
