// image-meta.json on disk.
#include "corbd/volume/stash_file.hpp"

#include <filesystem>
#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using cephcsi::Stash;

TEST_CASE("a stash is read back as it was written, and its file has ceph-csi's mode 0600") {
  const test::Folder folder;
  const Stash stash{"p", "n", "i<", "force", true, false, "/dev/nbd12", "/l", "preserve"};
  REQUIRE(volume::write_stash(folder.path(), stash));
  CHECK(volume::read_stash(folder.path()).value() == stash);
  CHECK((std::filesystem::status(cephcsi::stash_file(folder.path())).permissions() & std::filesystem::perms::all) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  CHECK(volume::write_stash(folder.path() + "/gone", stash).error().code == errc::state_write);
}

TEST_CASE("dropping a stash deletes the temporary file that a crash left, so that the folder can be removed") {
  const test::Folder folder;
  std::ofstream(cephcsi::stash_file(folder.path()) + ".tmp") << "half";
  CHECK(volume::drop_stash(folder.path()));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a staging path without a stash, or a missing one, reads as none, and dropping its stash succeeds") {
  const test::Folder folder;
  CHECK(volume::read_stash(folder.path()).value() == std::nullopt);
  CHECK(volume::drop_stash(folder.path()));
  CHECK(volume::read_stash(folder.path() + "/gone").value() == std::nullopt);
  CHECK(volume::drop_stash(folder.path() + "/gone"));
  std::ofstream(cephcsi::stash_file(folder.path())) << R"({"image":"i"})";
  CHECK(volume::read_stash(folder.path()).value()->image == "i");
  CHECK(volume::drop_stash(folder.path()));
  CHECK(volume::read_stash(folder.path()).value() == std::nullopt);
}

TEST_CASE("dropping a stash deletes rbd-nbd's log only if the stash's log strategy is remove, and never a symlink") {
  const test::Folder folder;
  Stash stash{"p",
              "",
              "i",
              "",
              true,
              false,
              "",
              folder.path() + "/logs",
              GENERATE("remove", "Remove", "compress", "preserve", "")};
  const bool removes = stash.log_strategy == "remove" || stash.log_strategy == "Remove";
  const std::string log = stash.log_dir + "/rbd-nbd-image-1.log";
  CHECK(cephcsi::log_to_remove(stash, "image-1") == (removes ? log : ""));
  CHECK(cephcsi::log_to_remove(stash, "../image-1").empty());
  std::filesystem::create_directories(stash.log_dir);
  std::ofstream(log) << "log";
  CHECK(volume::drop_stash(folder.path(), cephcsi::log_to_remove(stash, "image-1")));
  CHECK(std::filesystem::exists(log) != removes);
  std::filesystem::remove(log);
  std::filesystem::create_symlink("/nowhere", log);
  CHECK(volume::drop_stash(folder.path(), log));
  CHECK(std::filesystem::is_symlink(log));
  stash.nbd = false;
  CHECK(cephcsi::log_to_remove(stash, "image-1").empty());
}
