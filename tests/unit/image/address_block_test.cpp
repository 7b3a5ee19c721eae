#include "corbd/image/blocklist.hpp"

#include "support/catch.hpp"

using namespace corbd;
using image::AddressBlock;
using namespace std::chrono_literals;

namespace {

std::string error_of(const std::string& text) {
  const auto parsed = AddressBlock::parse(text);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == errc::invalid_argument);
  return parsed.error().text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a block reads back as it was written, in the shortest form of its address") {
  for (const char* text : {"10.0.0.0/24", "10.0.0.7/32", "128.0.0.0/1", "fd00::/64", "fd00::1/128"})
    CHECK(AddressBlock::parse(text).value().text() == text);
  CHECK(AddressBlock::parse("FD00:0:0::/64").value().text() == "fd00::/64");
}

TEST_CASE("the error for a malformed block says how to write one") {
  CHECK(has(error_of("10.0.0.7"), "write 10.0.0.7/32"));
  CHECK(has(error_of("fd00::7"), "write fd00::7/128"));
  CHECK(has(error_of("10.0.0.7/24"), "write 10.0.0.0/24 for the block, or 10.0.0.7/32"));
  CHECK(has(error_of("fd00::7/64"), "fd00::/64"));
  CHECK(has(error_of("::ffff:10.0.0.1/128"), "write 10.0.0.1/32"));
  CHECK(has(error_of("::ffff:10.0.0.0/120"), "write 10.0.0.0/24"));
}

TEST_CASE("a block of all addresses is refused") {
  for (const char* text : {"0.0.0.0/0", "::/0", "10.0.0.7/0"}) CHECK(has(error_of(text), "every client"));
}

TEST_CASE("text that is not an address with a length is refused") {
  for (const char* text :
       {"", "/", "/24", "host/32", "10.0.0/24", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/24x",
        "10.0.0.0/ 24", "fd00::/129", "fe80::1%eth0/128", "10.0.0.0/24/24", "10.0.0.7:0", "10.0.0.7:0/32"})
    error_of(text);
}

TEST_CASE("a block contains the blocks below it, of its own family only") {
  const auto block = AddressBlock::parse("10.0.0.0/23").value();
  CHECK(block.contains(block));
  CHECK(block.contains(AddressBlock::parse("10.0.1.0/24").value()));
  CHECK(block.contains(AddressBlock::parse("10.0.1.255/32").value()));
  CHECK_FALSE(block.contains(AddressBlock::parse("10.0.2.0/32").value()));
  CHECK_FALSE(block.contains(AddressBlock::parse("10.0.0.0/22").value()));
  CHECK_FALSE(AddressBlock::parse("a00::/16").value().contains(block));
}

TEST_CASE("a block counts and names its addresses") {
  const auto block = AddressBlock::parse("10.0.254.0/23").value();
  CHECK(block.count() == 512);
  CHECK(block.at(0).text() == "10.0.254.0/32");
  CHECK(block.at(511).text() == "10.0.255.255/32");
  CHECK(AddressBlock::parse("fd00::/112").value().at(258).text() == "fd00::102/128");
  CHECK(AddressBlock::parse("fd00::/64").value().count() == std::uint64_t{1} << 32);
}

TEST_CASE("a blocklist finds the entry that refuses a client: for itself, its address or its block") {
  image::Blocklist now{"fsid"};
  const std::string client = "10.0.0.7:0/5";
  CHECK(now.find(client) == nullptr);
  now.entries.push_back(image::entry_of_client("10.0.0.7:0/6").value());
  now.entries.push_back(image::entry_of_range(AddressBlock::parse("10.0.1.0/24").value()));
  now.entries.push_back(image::entry_of_client("[fd00::7]:0/5").value());
  CHECK(now.find(client) == nullptr);
  CHECK(now.find("[fd00::7]:0/5") != nullptr);
  for (const auto& entry :
       {image::entry_of_client(client).value(), image::entry_of_host(AddressBlock::parse("10.0.0.7/32").value()),
        image::entry_of_range(AddressBlock::parse("10.0.0.0/29").value())}) {
    image::Blocklist with = now;
    with.entries.push_back(entry);
    REQUIRE(with.find(client) != nullptr);
    CHECK(with.find(client)->text() == entry.text());
  }
}

TEST_CASE("an entry for one client names a port and a nonce, because Ceph takes anything else for its whole host",
          "[failure:143]") {
  for (const char* one : {"10.0.0.7:0/5", "10.0.0.7:6800/4294967295", "[fd00::7]:0/1"})
    CHECK(image::entry_of_client(one).value().text() == one);
  for (const char* host :
       {"10.0.0.7", "10.0.0.7:0", "10.0.0.7:0/0", "10.0.0.7:0/00", "10.0.0.7:0/4294967296", "10.0.0.7:0/",
        "10.0.0.7:0/-1", "10.0.0.7:/5", "10.0.0.7:0/1/2", "10.0.0.7/5", "[fd00::7]:0/0"})
    CHECK(image::entry_of_client(host).error().code == errc::invalid_argument);
}

TEST_CASE("a client without an address is not blocklisted, because that would cut nobody off") {
  for (const char* blank : {"0.0.0.0:0/5", "0.0.0.0:6800/1", "[::]:0/1", ":/0"})
    CHECK(image::entry_of_client(blank).error().code == errc::invalid_argument);
}

TEST_CASE("an entry is long enough for a fence if it lasts as long, less a slack, or for a week") {
  CHECK(image::is_long_enough(24h, 24h));
  CHECK(image::is_long_enough(23h, 24h));
  CHECK_FALSE(image::is_long_enough(23h - 1s, 24h));
  CHECK(image::is_long_enough(30s, 60s));
  CHECK_FALSE(image::is_long_enough(29s, 60s));
  CHECK(image::is_long_enough(7 * 24h, 5000 * 24h));
  CHECK_FALSE(image::is_long_enough(6 * 24h, 5000 * 24h));
}
