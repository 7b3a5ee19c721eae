#include "writer_mark.hpp"

#include "support/catch.hpp"

using namespace corbd::rbd;
using corbd::Secret;

TEST_CASE("a mark names its writer") { CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b") == "10.0.0.7:0/412"); }

TEST_CASE("a mark that a clone inherited from its parent names nobody") {
  CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b7").empty());
  CHECK(writer_in("5e2b7 10.0.0.7:0/412 3", "5e2b").empty());
}

TEST_CASE("an image without a mark names nobody") { CHECK(writer_in("", "5e2b").empty()); }

TEST_CASE("what is no mark names nobody") { CHECK(writer_in("5e2b somebody", "5e2b").empty()); }

TEST_CASE("a mark that stands for every client of a host names nobody") {
  for (const char* address : {"10.0.0.7:0/0", "10.0.0.7", "10.0.0.7:0", "10.0.0.7:0/4294967296"})
    CHECK(writer_in("5e2b " + std::string(address) + " 1", "5e2b").empty());
}

TEST_CASE("a mark is signed with the key of its volume, as it is") {
  const Secret key("key"), other("another");
  const std::string mark = signed_mark("5e2b 10.0.0.7:0/412 3", key);
  CHECK(writer_in(mark, "5e2b") == "10.0.0.7:0/412");
  CHECK(is_signed(mark, key));
  CHECK_FALSE(is_signed(mark, other));
  std::string changed = mark;
  changed[changed.find("412")] = '5';
  CHECK_FALSE(is_signed(changed, key));
  for (const char* forged : {"5e2b 10.0.0.7:0/412 3", "5e2b 10.0.0.7:0/412 3 ", "", " "})
    CHECK_FALSE(is_signed(forged, key));
}
