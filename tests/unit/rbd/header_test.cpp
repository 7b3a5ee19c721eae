#include "header.hpp"

#include "support/catch.hpp"

TEST_CASE("a text is encoded as Ceph does it: a little-endian length of four bytes before it") {
  CHECK(corbd::rbd::encode_text("ab") == std::string("\x02\0\0\0ab", 6));
  CHECK(corbd::rbd::encode_text(std::string(258, 'x')).substr(0, 4) == std::string("\x02\x01\0\0", 4));
}
