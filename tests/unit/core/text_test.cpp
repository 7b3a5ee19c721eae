#include "corbd/core/text.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("percent encoding leaves unreserved characters and those that the caller names") {
  CHECK(percent_encoded("aZ09-._~") == "aZ09-._~");
  CHECK(percent_encoded("a b/c%\xc3\xa9") == "a%20b%2Fc%25%C3%A9");
  CHECK(percent_encoded("a/b c", "/") == "a/b%20c");
}

TEST_CASE("bytes are two lower-case digits each") { CHECK(hex(std::string_view("\x00\xff\x1a", 3)) == "00ff1a"); }

TEST_CASE("lower case is that of ASCII, in any locale") {
  CHECK(lower("AbZ[\xc4") == "abz[\xc4");
  CHECK(same_in_any_case("PoOl", "pool"));
  CHECK_FALSE(same_in_any_case("pool", "pools"));
}
