#include "identity.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::string_literals;

TEST_CASE("an encoded text is its length and its bytes") {
  CHECK(rbd::decode_text("\x03\0\0\0abc"s) == "abc");
  CHECK(rbd::decode_text("\x03\0\0\0abcd"s) == "abc");
}

TEST_CASE("an encoded map is a count, and names with their values") {
  using Texts = std::map<std::string, std::string>;
  const std::string two = "\x02\0\0\0\x01\0\0\0a\x02\0\0\0bc\x01\0\0\0d\0\0\0\0"s;
  CHECK(rbd::decode_texts(two) == Texts{{"a", "bc"}, {"d", ""}});
  CHECK(rbd::decode_texts("\0\0\0\0"s).empty());
  CHECK(rbd::decode_texts(two.substr(0, two.size() - 1)) == Texts{{"a", "bc"}});
  CHECK(rbd::decode_texts("\xff\xff\xff\xff"s).empty());
  CHECK(rbd::decode_texts("").empty());
}

TEST_CASE("a truncated encoded text is rejected") {
  CHECK_FALSE(rbd::decode_text("\x03\0\0"s));
  CHECK_FALSE(rbd::decode_text("\x04\0\0\0abc"s));
  CHECK_FALSE(rbd::decode_text("\xff\xff\xff\xff"s));
}
