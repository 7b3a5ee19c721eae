#include "corbd/cephcsi/key.hpp"

#include "support/catch.hpp"

using corbd::cephcsi::key_type;
using corbd::cephcsi::KeyType;

TEST_CASE("the type of a key is in its first letters") {
  CHECK(key_type("AQDgkbRgAAAAABAAJVPQ6ZEwp8lyJcFtkAqzhg==") == KeyType::aes);
  CHECK(key_type("AgDgkbRg") == KeyType::aes256k);
  CHECK(key_type("AwDg") == KeyType::unknown);
  CHECK(key_type("AQHg") == KeyType::unknown);
  CHECK(key_type("AQ") == KeyType::unknown);
  CHECK(key_type("") == KeyType::unknown);
}
