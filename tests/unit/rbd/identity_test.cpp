#include "identity.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::string_literals;

TEST_CASE("an encoded text is its length and its bytes") {
  CHECK(rbd::decode_text("\x03\0\0\0abc"s) == "abc");
  CHECK(rbd::decode_text("\x03\0\0\0abcd"s) == "abc");
}

TEST_CASE("an encoded text that is cut off is none") {
  CHECK_FALSE(rbd::decode_text("\x03\0\0"s));
  CHECK_FALSE(rbd::decode_text("\x04\0\0\0abc"s));
  CHECK_FALSE(rbd::decode_text("\xff\xff\xff\xff"s));
}
