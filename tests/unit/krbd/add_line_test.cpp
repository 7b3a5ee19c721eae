#include "add_line.hpp"

#include "support/catch.hpp"

using namespace corbd;
using krbd::add_line;
using krbd::AddLine;
using krbd::kernel_monitors;
using krbd::with_ms_mode;

namespace {

AddLine plain() {
  AddLine line;
  line.monitors = {"10.0.0.1:6789", "10.0.0.2:6789"};
  line.user = "node";
  line.key_name = "client.node";
  line.name = {"pool", "", "image-1"};
  return line;
}

}  // namespace

TEST_CASE("the line that maps an image has monitors, user, key name, pool, image and the head") {
  CHECK(*add_line(plain()) == "10.0.0.1:6789,10.0.0.2:6789 name=node,key=client.node pool image-1 -");
}

TEST_CASE(
    "the line carries namespace, map options and read_only, and read_only follows the option that could undo it") {
  auto line = plain();
  line.name.ns = "tenant";
  line.options = "queue_depth=64,rw";
  line.read_only = true;
  CHECK(*add_line(line) ==
        "10.0.0.1:6789,10.0.0.2:6789 name=node,key=client.node,queue_depth=64,rw,read_only,_pool_ns=tenant pool "
        "image-1 -");
}

TEST_CASE("a name that would break the line's format is refused") {
  const int what = GENERATE(range(0, 5));
  auto line = plain();
  if (what == 0) line.name.image = "image 1";
  if (what == 1) line.name.pool = "my pool";
  if (what == 2) line.name.ns = "a,secret=x";
  if (what == 3) line.user = "node,secret=x";
  if (what == 4) line.name.image = std::string(5000, 'a');
  const auto made = add_line(line);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == errc::failed_precondition);
}

TEST_CASE("the kernel gets the monitor addresses of the chosen messenger protocol") {
  struct Row {
    std::vector<std::string> monitors;
    std::string old, msgr2;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {{"10.0.0.1:6789", "10.0.0.1:3300"}, "10.0.0.1:6789", "10.0.0.1:3300"},
      {{"10.0.0.1"}, "10.0.0.1:6789", "10.0.0.1:3300"},
      {{"10.0.0.1:7000"}, "10.0.0.1:7000", "10.0.0.1:7000"},
      {{"[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0]"}, "10.0.0.1:6789", "10.0.0.1:3300"},
      {{"v1:10.0.0.1:7000", "v2:10.0.0.1:7001"}, "10.0.0.1:7000", "10.0.0.1:7001"},
      {{"[fd00::1]:6789", "[fd00::1]"}, "[fd00::1]:6789,[fd00::1]:6789", "[fd00::1]:3300"},
      {{"10.0.0.1:6789,10.0.0.2:6789", "10.0.0.3:3300"}, "10.0.0.1:6789,10.0.0.2:6789", "10.0.0.3:3300"},
  }));
  CHECK(*kernel_monitors(row.monitors, false) == row.old);
  CHECK(*kernel_monitors(row.monitors, true) == row.msgr2);
}

TEST_CASE("monitors without an address for the protocol are refused, and the error names the option that asks for it") {
  const auto refused = kernel_monitors({"10.0.0.1:3300"}, false);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("ms_mode=legacy"));
  auto line = plain();
  line.options = "ms_mode=secure";
  CHECK_FALSE(add_line(line));
  line.options = "ms_mode=legacy";
  CHECK(add_line(line));
}

TEST_CASE("where only msgr2 monitors exist, options without a mode get ms_mode=prefer-crc, and no others",
          "[failure:242]") {
  const std::vector<std::string> msgr2{"10.0.0.1:3300", "v2:10.0.0.2:3301"}, both{"10.0.0.1:3300", "10.0.0.2"};
  CHECK(with_ms_mode("", msgr2) == "ms_mode=prefer-crc");
  CHECK(with_ms_mode("queue_depth=64", msgr2) == "queue_depth=64,ms_mode=prefer-crc");
  CHECK(with_ms_mode("ms_mode=secure", msgr2) == "ms_mode=secure");
  CHECK(with_ms_mode("", both) == "");
  auto line = plain();
  line.monitors = msgr2;
  line.options = with_ms_mode("", msgr2);
  CHECK(*add_line(line) == "10.0.0.1:3300,10.0.0.2:3301 name=node,key=client.node,ms_mode=prefer-crc pool image-1 -");
}
