#include "writer_mark.hpp"

#include "support/catch.hpp"

using namespace corbd::rbd;

TEST_CASE("a mark names its writer") { CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b") == "10.0.0.7:0/412"); }

TEST_CASE("a mark that a clone inherited from its parent names nobody") {
  CHECK(writer_in("5e2b 10.0.0.7:0/412 3", "5e2b7").empty());
  CHECK(writer_in("5e2b7 10.0.0.7:0/412 3", "5e2b").empty());
}

TEST_CASE("an image without a mark names nobody") { CHECK(writer_in("", "5e2b").empty()); }

TEST_CASE("what is no mark names nobody") { CHECK(writer_in("5e2b somebody", "5e2b").empty()); }
