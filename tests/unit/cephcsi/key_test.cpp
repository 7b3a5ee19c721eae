#include "corbd/cephcsi/key.hpp"

#include "support/catch.hpp"

using corbd::cephcsi::key_type;
using corbd::cephcsi::KeyType;
using corbd::cephcsi::made_at;

TEST_CASE("the type of a key is in its first letters") {
  CHECK(key_type("AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhg==") == KeyType::aes);
  CHECK(key_type("AgDgkbRg") == KeyType::aes256k);
  CHECK(key_type("AwDg") == KeyType::unknown);
  CHECK(key_type("AQHg") == KeyType::unknown);
  CHECK(key_type("AQ") == KeyType::unknown);
  CHECK(key_type("") == KeyType::unknown);
}

TEST_CASE("a key tells when Ceph made it, and a text that is no key does not") {
  const auto made = made_at("AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhg==");
  REQUIRE(made);
  CHECK(made->time_since_epoch().count() == 1622446560);  // 2021-05-31T07:36:00Z
  CHECK(made_at("AgDgkbRgAAAAABAA") == made);
  for (const char* text : {"", "AQDg", "no key, but long enough", "AwDgkbRgAAAAABAA"}) CHECK_FALSE(made_at(text));
}
