#include "corbd/core/base64.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::string_literals;

TEST_CASE("base64 round-trips any number of bytes") {
  for (const auto& bytes : {""s, "a"s, "ab"s, "abc"s, "\0\1\xff\0"s}) CHECK(from_base64(to_base64(bytes)) == bytes);
  CHECK(to_base64("ab") == "YWI=");
}

TEST_CASE("text that is not base64 decodes to nothing") {
  for (const auto& text : {"a"s, "YWI"s, "YW!="s, "YWI=\n"s}) CHECK_FALSE(from_base64(text));
}
