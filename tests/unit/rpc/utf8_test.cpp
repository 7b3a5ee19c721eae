#include "corbd/rpc/utf8.hpp"

#include "support/catch.hpp"

using corbd::rpc::valid_utf8;

TEST_CASE("text that is valid UTF-8 stays as it is") {
  for (const std::string text :
       {"", "plain", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"})
    CHECK(valid_utf8(text) == text);
}

TEST_CASE("each byte that is not part of a valid sequence becomes a question mark") {
  CHECK(valid_utf8("a\xFF\xFEz") == "a??z");
  CHECK(valid_utf8("\x80") == "?");
  CHECK(valid_utf8("a\xC3") == "a?");
  CHECK(valid_utf8("\xE2\x82z") == "??z");
}

TEST_CASE("overlong forms, surrogates and code points beyond Unicode are not valid") {
  CHECK(valid_utf8("\xC0\xAF") == "??");
  CHECK(valid_utf8("\xE0\x80\xAF") == "???");
  CHECK(valid_utf8("\xED\xA0\x80") == "???");
  CHECK(valid_utf8("\xF4\x90\x80\x80") == "????");
}
