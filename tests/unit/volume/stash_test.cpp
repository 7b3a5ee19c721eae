// ceph-csi's image-meta.json.
#include <fstream>

#include "corbd/volume/stash.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using volume::Stash;

TEST_CASE("a stash of ceph-csi is read, whatever the case of its keys") {
  const char* text = GENERATE(
      R"({"Version":3,"pool":"p","radosNamespace":"n","image":"csi-vol-1","unmapOptions":"force","accessType":true,"encrypted":true,"device":"/dev/nbd0","logDir":"/var/log/ceph","logFileStrategy":"remove"})",
      R"({"version":3,"Pool":"p","RADOSNAMESPACE":"n","Image":"csi-vol-1","unmapoptions":"force","AccessType":true,"Encrypted":true,"Device":"/dev/nbd0"})");
  const auto read = volume::parse_stash(text);
  REQUIRE(read);
  CHECK(*read == Stash{"p", "n", "csi-vol-1", "force", true, true, "/dev/nbd0"});
}

TEST_CASE("what a stash does not say has its zero value") {
  const auto read = volume::parse_stash(R"({"Version":3,"pool":null,"image":"i"})");
  REQUIRE(read);
  CHECK(*read == Stash{"", "", "i", "", false, false, ""});
}

TEST_CASE("a torn stash, or one with a value of another kind, is corrupt") {
  const char* text = GENERATE("", "{", "[]", R"({"pool":1})", R"({"accessType":"true"})", R"({"device":{}})");
  const auto read = volume::parse_stash(text);
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::state_corrupt);
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
