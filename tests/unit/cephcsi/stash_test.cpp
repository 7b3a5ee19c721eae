// ceph-csi's image-meta.json.
#include "corbd/cephcsi/stash.hpp"
#include "support/catch.hpp"

using namespace corbd;
using cephcsi::Stash;

TEST_CASE("a stash of ceph-csi is read, whatever the case of its keys") {
  const char* text = GENERATE(
      R"({"Version":3,"pool":"p","radosNamespace":"n","image":"csi-vol-1","unmapOptions":"force","accessType":true,"encrypted":true,"device":"/dev/nbd0","logDir":"/l","logFileStrategy":"remove"})",
      R"({"version":3,"Pool":"p","RADOSNAMESPACE":"n","Image":"csi-vol-1","unmapoptions":"force","AccessType":true,"Encrypted":true,"Device":"/dev/nbd0","LogDir":"/l","logfilestrategy":"remove"})");
  const auto read = cephcsi::parse_stash(text);
  REQUIRE(read);
  CHECK(*read == Stash{"p", "n", "csi-vol-1", "force", true, true, "/dev/nbd0", "/l", "remove"});
}

TEST_CASE("a field that a stash lacks has its zero value") {
  const auto read = cephcsi::parse_stash(R"({"Version":3,"pool":null,"image":"i"})");
  REQUIRE(read);
  CHECK(*read == Stash{"", "", "i", "", false, false, "", "", ""});
}

TEST_CASE("a torn stash, or one with a value of another kind, is corrupt") {
  const char* text = GENERATE("", "{", "[]", R"({"pool":1})", R"({"accessType":"true"})", R"({"device":{}})");
  const auto read = cephcsi::parse_stash(text);
  REQUIRE_FALSE(read);
  CHECK(read.error().code == errc::state_corrupt);
}

TEST_CASE("a stash has the very bytes that ceph-csi writes") {
  CHECK(
      cephcsi::encode({"p", "", "csi-vol-1", "", true, false, "/dev/nbd0", "/var/log/ceph", "remove"}) ==
      R"({"Version":3,"pool":"p","radosNamespace":"","image":"csi-vol-1","unmapOptions":"","accessType":true,"encrypted":false,)"
      R"("device":"/dev/nbd0","logDir":"/var/log/ceph","logFileStrategy":"remove"})");
  CHECK(
      cephcsi::encode({"a<b>&\"", "n", "i", "force", false, true, "", "", ""}) ==
      R"({"Version":3,"pool":"a\u003cb\u003e\u0026\"","radosNamespace":"n","image":"i","unmapOptions":"force","accessType":false,"encrypted":true,)"
      R"("device":"","logDir":"","logFileStrategy":""})");
}

TEST_CASE("what only corbd writes comes after the bytes that ceph-csi writes, and is read back") {
  Stash stash{"p", "", "csi-vol-1", "", true, false, "/dev/nbd0", "/l", "remove"};
  std::string text = cephcsi::encode(stash);
  stash.attachment = "uid-1";
  text.replace(text.size() - 1, 1, R"(,"corbdAttachmentUID":"uid-1"})");
  CHECK(cephcsi::encode(stash) == text);
  CHECK(cephcsi::parse_stash(text).value() == stash);
  stash.cache_lost = true;
  text.replace(text.size() - 1, 1, R"(,"corbdCacheLost":true})");
  CHECK(cephcsi::encode(stash) == text);
  CHECK(cephcsi::parse_stash(text).value() == stash);
}
