#include "corbd/fence/fence.hpp"

#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using image::AddressBlock;

namespace {

const auto kNow = std::chrono::system_clock::time_point(std::chrono::hours(500000));

AddressBlock block(const char* text) { return AddressBlock::parse(text).value(); }

std::vector<std::string> texts(const std::vector<AddressBlock>& blocks) {
  std::vector<std::string> all;
  for (const auto& one : blocks) all.push_back(one.text());
  return all;
}

std::vector<std::string> texts(const std::vector<image::BlocklistEntry>& entries) {
  std::vector<std::string> all;
  for (const auto& entry : entries) all.push_back(entry.text());
  return all;
}

image::BlocklistEntry until(image::BlocklistEntry entry, std::chrono::seconds left) {
  entry.until = kNow + left;
  return entry;
}

image::Blocklist list(std::vector<image::BlocklistEntry> entries) { return {"fsid", std::move(entries)}; }

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a block that is named twice counts once, and one inside another counts for itself") {
  const auto read = fence::read_blocks({"10.0.0.7/32", "10.0.1.0/24", "10.0.0.0/24", "10.0.0.0/24", " fd00::1/128 "});
  CHECK(texts(read.value()) == Texts{"10.0.0.7/32", "10.0.1.0/24", "10.0.0.0/24", "fd00::1/128"});
}

TEST_CASE("an address that was fenced with its block in one request stays fenced when the block is let in") {
  const auto blocks = fence::read_blocks({"10.0.0.0/24", "10.0.0.7/32"}).value();
  const auto now = list(fence::to_block(blocks, list({}), false).value());
  const auto gone = fence::to_unblock({block("10.0.0.0/24")}, now).value();
  CHECK(texts(gone) == Texts{"10.0.0.0/24"});
  CHECK(texts(fence::remaining(block("10.0.0.0/24"), now, gone)) == Texts{"10.0.0.7/32"});
  CHECK(texts(fence::to_unblock(blocks, now).value()) == Texts{"10.0.0.0/24", "10.0.0.7/32"});
}

TEST_CASE("a request without a block, or with one invalid block, is refused as a whole") {
  CHECK(fence::read_blocks({}).error().code == errc::invalid_argument);
  const auto wrong = fence::read_blocks({"10.0.0.0/24", "10.0.1.7/24"});
  CHECK(wrong.error().code == errc::invalid_argument);
  CHECK(wrong.error().text.find("10.0.1.7/24") != std::string::npos);
}

TEST_CASE("a duration is seconds, or a number with its unit") {
  CHECK(fence::read_duration("90").value() == 90s);
  CHECK(fence::read_duration("90s").value() == 90s);
  CHECK(fence::read_duration("15m").value() == 900s);
  CHECK(fence::read_duration("24h").value() == 86400s);
  CHECK(fence::read_duration("7d").value() == 604800s);
  for (const char* text : {"", "0", "-1", "5y", "1h30m", "9999999999999999999", "4000d", "h", "1.5h"})
    CHECK(fence::read_duration(text).error().code == errc::invalid_argument);
}

TEST_CASE("each block gets an entry of its own, also inside a wider fence that lasts for longer") {
  const auto now = list({until(image::entry_of_range(block("10.0.0.0/24")), 24h),
                         until(image::entry_of_client("10.0.0.7:0/5").value(), 24h)});
  const auto order = [&](const char* what) { return texts(fence::to_block({block(what)}, now, false).value()); };
  CHECK(order("10.0.0.7/32") == Texts{"10.0.0.7/32"});
  CHECK(order("10.0.0.0/25") == Texts{"10.0.0.0/25"});
  CHECK(order("10.0.0.0/24") == Texts{"10.0.0.0/24"});
}

TEST_CASE("an entry for one client does not count as a fence of its address") {
  CHECK(fence::blocks_of(list({image::entry_of_client("10.0.0.7:0/5").value()})).empty());
}

TEST_CASE("an agent does not fence itself unless it is forced to") {
  auto now = list({});
  now.own = {"10.0.0.7:0/5"};
  const auto refused = fence::to_block({block("10.0.1.0/24"), block("10.0.0.0/29")}, now, false);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK(refused.error().text.find("10.0.0.7:0/5") != std::string::npos);
  CHECK(fence::to_block({block("10.0.0.0/29")}, now, true).value().size() == 1);
  CHECK(fence::to_block({block("10.0.0.8/29")}, now, false).value().size() == 1);
}

TEST_CASE("unfencing removes the block's own entry, and no other entry inside the block") {
  const auto now = list({image::entry_of_range(block("10.0.0.0/24")), image::entry_of_range(block("10.0.0.0/25")),
                         image::entry_of_host(block("10.0.0.9/32")), image::entry_of_host(block("10.0.1.9/32")),
                         image::entry_of_client("10.0.0.7:0/5").value()});
  const auto gone = fence::to_unblock({block("10.0.0.0/24")}, now).value();
  CHECK(texts(gone) == Texts{"10.0.0.0/24"});
  CHECK(texts(fence::remaining(block("10.0.0.0/24"), now, gone)) == Texts{"10.0.0.0/25", "10.0.0.9"});
  CHECK(texts(fence::to_unblock({block("10.9.0.0/24")}, now).value()).empty());
  CHECK(texts(fence::to_unblock({block("10.0.1.9/32")}, now).value()) == Texts{"10.0.1.9"});
}

TEST_CASE("entries for single addresses fence a block only if they cover all its addresses") {
  auto now = list({image::entry_of_host(block("10.0.0.6/32"))});
  CHECK(fence::to_unblock({block("10.0.0.6/31")}, now).error().code == errc::failed_precondition);
  now.entries.push_back(image::entry_of_host(block("10.0.0.7/32")));
  CHECK(texts(fence::to_unblock({block("10.0.0.6/31")}, now).value()) == Texts{"10.0.0.6", "10.0.0.7"});
}

TEST_CASE("overlapping fences are removed independently, and the answer names those that remain") {
  const auto wide = image::entry_of_range(block("10.0.0.0/24")), narrow = image::entry_of_range(block("10.0.0.7/32"));
  const auto both = list({wide, narrow});
  for (const auto& [own, other] : {std::pair(wide, narrow), std::pair(narrow, wide)}) {
    const auto gone = fence::to_unblock({own.addresses}, both).value();
    CHECK(texts(gone) == Texts{own.text()});
    CHECK(texts(fence::remaining(own.addresses, both, gone)) == Texts{other.text()});
  }
}

TEST_CASE("a block without a fence of its own is unfenced already, and a wider or narrower fence stays") {
  const auto now = list({image::entry_of_range(block("10.0.0.0/24"))});
  for (const char* what : {"10.0.0.7/32", "10.0.0.0/23"}) {
    const auto gone = fence::to_unblock({block(what)}, now);
    REQUIRE(gone);
    CHECK(gone->empty());
    CHECK(texts(fence::remaining(block(what), now, *gone)) == Texts{"10.0.0.0/24"});
  }
}

TEST_CASE("an address that is already blocked for long enough is not blocked again, whatever this node's clock shows") {
  const auto each = fence::each_address(block("10.0.0.4/30")).value();
  const auto slack = image::slack_of(24h);
  CHECK(slack == 1h);
  // The first was blocked a moment ago; two of the others by the call before, one of them too long ago.
  const auto now = list({until(each[0], 24h + slack), until(each[1], 24h), until(each[2], 24h - 1s)});
  CHECK(texts(fence::unblocked(each, now, 24h)) == Texts{"10.0.0.6", "10.0.0.7"});
}

TEST_CASE("monitors without ranges get each address, up to a bound") {
  CHECK(texts(fence::each_address(block("10.0.0.254/31")).value()) == Texts{"10.0.0.254", "10.0.0.255"});
  CHECK(fence::each_address(block("10.0.0.0/16")).value().size() == 65536);
  CHECK(fence::each_address(block("10.0.0.0/15")).error().code == errc::out_of_range);
  CHECK(fence::each_address(block("fd00::/64")).error().code == errc::out_of_range);
}

TEST_CASE("the list of fences has blocks and whole addresses, each once and in order") {
  const auto now = list({image::entry_of_range(block("10.0.1.0/24")), image::entry_of_host(block("10.0.0.9/32")),
                         image::entry_of_range(block("10.0.0.9/32")), image::entry_of_client("10.0.0.7:0/5").value()});
  CHECK(texts(fence::blocks_of(now)) == Texts{"10.0.0.9/32", "10.0.1.0/24"});
}
