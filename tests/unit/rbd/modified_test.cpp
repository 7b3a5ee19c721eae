#include "modified.hpp"

#include "support/catch.hpp"

using namespace corbd;

TEST_CASE("a modify timestamp is read as seconds and nanoseconds", "[failure:160]") {
  using namespace std::string_literals;
  CHECK(rbd::decode_modified("\x01\x00\x00\x00\x02\x00\x00\x00"s) == 1'000'000'002u);
  CHECK(rbd::decode_modified("\xff\xff\xff\xff\x00\x00\x00\x00"s) == 4'294'967'295'000'000'000u);
  CHECK_FALSE(rbd::decode_modified("\x01\x00\x00\x00\x02\x00\x00"s));
  CHECK_FALSE(rbd::decode_modified(""));
}
