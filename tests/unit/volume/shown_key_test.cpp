#include "corbd/volume/status.hpp"
#include "support/catch.hpp"

using namespace corbd;
using volume::shown;

TEST_CASE("a key shows its type, when Ceph made it, and a fingerprint that another key or user does not have") {
  const Secret key("AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhg==");
  const auto seen = shown("node", key);
  CHECK(seen.user == "node");
  CHECK(seen.type == cephcsi::KeyType::aes);
  CHECK(seen.made == cephcsi::made_at(key.reveal()));
  CHECK(seen.fingerprint.size() == 12);
  CHECK(seen.fingerprint.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(seen == shown("node", key));
  CHECK(seen.fingerprint != shown("node.1", key).fingerprint);
  CHECK(seen.fingerprint != shown("node", Secret("AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhA==")).fingerprint);
}

TEST_CASE("a text that is no key has a fingerprint, and no key has none") {
  const auto seen = shown("node", Secret("no key"));
  CHECK(seen.fingerprint.size() == 12);
  CHECK(seen.type == cephcsi::KeyType::unknown);
  CHECK(shown("node", Secret()).fingerprint.empty());
}
