#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "corbd/core/backoff.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/small_disk.hpp"

using namespace corbd;
using namespace std::chrono_literals;

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
  struct stat found {};
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
