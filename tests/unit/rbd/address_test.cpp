#include "address.hpp"

#include "support/catch.hpp"

using corbd::rbd::bare_address;
using corbd::rbd::parse_addresses;
using Texts = std::vector<std::string>;

TEST_CASE("client addresses lose their protocol") {
  CHECK(parse_addresses("10.0.0.1:0/625716478") == Texts{"10.0.0.1:0/625716478"});
  CHECK(parse_addresses("v1:10.0.0.1:0/7") == Texts{"10.0.0.1:0/7"});
  CHECK(parse_addresses("v2:[fd00::1]:0/7") == Texts{"[fd00::1]:0/7"});
  CHECK(parse_addresses("[fd00::1]:0/7") == Texts{"[fd00::1]:0/7"});
}

TEST_CASE("a list of addresses that differ in protocol only is one address") {
  CHECK(parse_addresses("[v2:10.0.0.1:0/7,v1:10.0.0.1:0/7]") == Texts{"10.0.0.1:0/7"});
  CHECK(parse_addresses("[v2:10.0.0.1:0/7,v1:10.0.0.2:0/7]") == Texts{"10.0.0.1:0/7", "10.0.0.2:0/7"});
}

TEST_CASE("text that is not a client address is rejected") {
  const std::string text = GENERATE("", "-", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:0/", "10.0.0.1:0/x", "host name:0/1",
                                    "10.0.0.1/7", "[v2:10.0.0.1:0/7,-]", "10.0.0.1:0/1\", \"x");
  CHECK(parse_addresses(text).empty());
}

TEST_CASE("an address that cannot be parsed stays comparable as text") {
  CHECK(bare_address("v1:10.0.0.1:0/7") == "10.0.0.1:0/7");
  CHECK(bare_address("something else") == "something else");
}
