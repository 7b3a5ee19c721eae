#include "corbd/core/file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "corbd/core/process.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/small_disk.hpp"

using namespace corbd;

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

TEST_CASE("a failed write is a state_write error that names the file, and the old content stays") {
  const auto failed = write_durably("/proc/corbd-nowhere/a", "x", 0600);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == errc::state_write);
  CHECK_THAT(failed.error().text, ContainsSubstring("/proc/corbd-nowhere/a"));
}

TEST_CASE("a second agent on the state directory learns the first one's pid") {
  const test::Folder folder;
  const auto first = lock_folder(folder.path());
  REQUIRE(first);
  const auto second = lock_folder(folder.path());
  REQUIRE_FALSE(second);
  CHECK(second.error().code == errc::in_use);
  CHECK_THAT(second.error().text, ContainsSubstring(std::to_string(::getpid())));
}

TEST_CASE("a folder that was locked before can be locked on a full disk") {
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

TEST_CASE("sha256 names files", "[rule:14]") { CHECK(sha256_hex("abc").substr(0, 16) == "ba7816bf8f01cfea"); }

TEST_CASE("an existing private folder is closed to other users and keeps its contents") {
  const test::Folder folder;
  const std::string path = folder.path() + "/run";
  std::filesystem::create_directory(path);
  std::filesystem::permissions(path, std::filesystem::perms(0755));
  REQUIRE(write_durably(path + "/key", "k", 0600));
  REQUIRE(make_private_folder(path));
  CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms::owner_all);
  CHECK(*read_file(path + "/key", 10) == "k");
}
