// ceph-csi's image-meta.json.
#include <filesystem>
#include <fstream>

#include "corbd/volume/stash.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using volume::Stash;

TEST_CASE("a stash of ceph-csi is read, whatever the case of its keys") {
  const char* text = GENERATE(
      R"({"Version":3,"pool":"p","radosNamespace":"n","image":"csi-vol-1","unmapOptions":"force","accessType":true,"encrypted":true,"device":"/dev/nbd0","logDir":"/l","logFileStrategy":"remove"})",
      R"({"version":3,"Pool":"p","RADOSNAMESPACE":"n","Image":"csi-vol-1","unmapoptions":"force","AccessType":true,"Encrypted":true,"Device":"/dev/nbd0","LogDir":"/l","logfilestrategy":"remove"})");
  const auto read = volume::parse_stash(text);
  REQUIRE(read);
  CHECK(*read == Stash{"p", "n", "csi-vol-1", "force", true, true, "/dev/nbd0", "/l", "remove"});
}

TEST_CASE("what a stash does not say has its zero value") {
  const auto read = volume::parse_stash(R"({"Version":3,"pool":null,"image":"i"})");
  REQUIRE(read);
  CHECK(*read == Stash{"", "", "i", "", false, false, "", "", ""});
}

TEST_CASE("a torn stash, or one with a value of another kind, is corrupt") {
  const char* text = GENERATE("", "{", "[]", R"({"pool":1})", R"({"accessType":"true"})", R"({"device":{}})");
  const auto read = volume::parse_stash(text);
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::state_corrupt);
}

TEST_CASE("a stash has the very bytes that ceph-csi writes") {
  CHECK(
      volume::encode({"p", "", "csi-vol-1", "", true, false, "/dev/nbd0", "/var/log/ceph", "remove"}) ==
      R"({"Version":3,"pool":"p","radosNamespace":"","image":"csi-vol-1","unmapOptions":"","accessType":true,"encrypted":false,)"
      R"("device":"/dev/nbd0","logDir":"/var/log/ceph","logFileStrategy":"remove"})");
  CHECK(
      volume::encode({"a<b>&\"", "n", "i", "force", false, true, "", "", ""}) ==
      R"({"Version":3,"pool":"a\u003cb\u003e\u0026\"","radosNamespace":"n","image":"i","unmapOptions":"force","accessType":false,"encrypted":true,)"
      R"("device":"","logDir":"","logFileStrategy":""})");
}

TEST_CASE("the UID of the VolumeAttachment comes after the bytes that ceph-csi writes, and is read back") {
  Stash stash{"p", "", "csi-vol-1", "", true, false, "/dev/nbd0", "/l", "remove"};
  std::string text = volume::encode(stash);
  stash.attachment = "uid-1";
  text.replace(text.size() - 1, 1, R"(,"corbdAttachmentUID":"uid-1"})");
  CHECK(volume::encode(stash) == text);
  CHECK(volume::parse_stash(text).value() == stash);
}

TEST_CASE("a stash read back is the one that was written, with the mode that ceph-csi gives it") {
  const test::Folder folder;
  const Stash stash{"p", "n", "i<", "force", true, false, "/dev/nbd12", "/l", "preserve"};
  REQUIRE(volume::write_stash(folder.path(), stash));
  CHECK(volume::read_stash(folder.path()).value() == stash);
  CHECK((std::filesystem::status(volume::stash_file(folder.path())).permissions() & std::filesystem::perms::all) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  CHECK(volume::write_stash(folder.path() + "/gone", stash).error().code == errc::state_write);
}

TEST_CASE("with a stash goes what a crash left of writing it, so that the folder can go") {
  const test::Folder folder;
  std::ofstream(volume::stash_file(folder.path()) + ".tmp") << "half";
  CHECK(volume::drop_stash(folder.path()));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a staging path without a stash, or that is gone, has none; dropping it is fine") {
  const test::Folder folder;
  CHECK(volume::read_stash(folder.path()).value() == std::nullopt);
  CHECK(volume::drop_stash(folder.path() + "/gone"));
  std::ofstream(volume::stash_file(folder.path())) << R"({"image":"i"})";
  CHECK(volume::read_stash(folder.path()).value()->image == "i");
  CHECK(volume::drop_stash(folder.path()));
  CHECK(volume::read_stash(folder.path()).value() == std::nullopt);
}

TEST_CASE("with a stash goes the log of rbd-nbd if the stash says so: that file, and nothing that is no file") {
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
  CHECK(volume::log_to_remove(stash, "image-1") == (removes ? log : ""));
  CHECK(volume::log_to_remove(stash, "../image-1").empty());
  std::filesystem::create_directories(stash.log_dir);
  std::ofstream(log) << "log";
  CHECK(volume::drop_stash(folder.path(), volume::log_to_remove(stash, "image-1")));
  CHECK(std::filesystem::exists(log) != removes);
  std::filesystem::remove(log);
  std::filesystem::create_symlink("/nowhere", log);
  CHECK(volume::drop_stash(folder.path(), log));
  CHECK(std::filesystem::is_symlink(log));
  stash.nbd = false;
  CHECK(volume::log_to_remove(stash, "image-1").empty());
}
