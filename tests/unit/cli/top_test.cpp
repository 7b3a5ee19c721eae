// The figures that `corbd top` computes from two answers.
#include "top.hpp"

#include "support/catch.hpp"

using namespace corbd;
using cli::TopRow;

namespace {

constexpr std::int64_t kTwoSeconds = 2'000'000;

v1::ListActivityResponse answer(std::int64_t at_us, std::int64_t started_at_ms = 1) {
  v1::ListActivityResponse made;
  made.set_at_us(at_us);
  made.set_started_at_ms(started_at_ms);
  for (const double bound : {0.001, 0.01, 0.1}) made.add_latency_bounds_s(bound);
  return made;
}

v1::Activity& add(v1::ListActivityResponse& into, const std::string& id) {
  auto& made = *into.add_volumes();
  made.set_id(id);
  made.set_health(v1::HEALTH_STAGED);
  return made;
}

void add(v1::Activity& into, const std::string& operation, std::uint64_t requests, std::uint64_t bytes,
         std::vector<std::uint64_t> latency = {0, 0, 0, 0}) {
  auto& made = *into.add_operations();
  made.set_operation(operation);
  made.set_requests(requests);
  made.set_bytes(bytes);
  for (const auto count : latency) made.add_latency(count);
}

TopRow row_of(std::vector<std::uint64_t> before, std::vector<std::uint64_t> now) {
  auto first = answer(0), second = answer(kTwoSeconds);
  add(add(first, "1"), "read", 0, 0, std::move(before));
  add(add(second, "1"), "read", 0, 0, std::move(now));
  return cli::top_rows(first, second).at(0);
}

}  // namespace

TEST_CASE("rates are the growth between two answers, divided by the time between them") {
  auto before = answer(5 * kTwoSeconds), now = answer(6 * kTwoSeconds);
  auto& was = add(before, "1");
  add(was, "read", 100, 1000);
  add(was, "write", 7, 70);
  auto& is = add(now, "1");
  is.set_in_flight(3);
  is.set_oldest_request_ms(1500);
  was.set_budget_wait_us(kTwoSeconds);
  is.set_budget_wait_us(kTwoSeconds + kTwoSeconds / 4);
  add(is, "read", 110, 5000);
  add(is, "write", 9, 70);
  add(is, "flush", 8, 0);
  const auto rows = cli::top_rows(before, now);
  REQUIRE(rows.size() == 1);
  CHECK(rows.front().reads == 5);
  CHECK(rows.front().writes == 1);
  CHECK(rows.front().read_bytes == 2000);
  CHECK(rows.front().write_bytes == 0);
  CHECK(rows.front().in_flight == 3);
  CHECK(rows.front().oldest == 1.5);
  CHECK(rows.front().budget_wait == 0.25);
  CHECK(rows.front().state == "staged");
}

TEST_CASE("a volume has no rates if it is new or if the agent was restarted between the answers") {
  auto before = answer(0), now = answer(kTwoSeconds);
  add(add(now, "1"), "read", 1000, 1000);
  CHECK(cli::top_rows(before, now).at(0).iops() == 0);
  add(add(before, "1"), "read", 10, 10);
  CHECK(cli::top_rows(before, now).at(0).reads == 495);
  now.set_started_at_ms(2);
  CHECK(cli::top_rows(before, now).at(0).iops() == 0);
  CHECK(cli::top_rows(now, now).at(0).iops() == 0);
}

TEST_CASE("the p99 is interpolated as if the requests were spread evenly over its bucket") {
  CHECK_FALSE(row_of({5, 5, 5, 5}, {5, 5, 5, 5}).p99);
  const auto low = row_of({0, 0, 0, 0}, {100, 0, 0, 0});
  CHECK(std::abs(*low.p99 - 0.00099) < 1e-9);
  const auto middle = row_of({10, 0, 0, 0}, {60, 50, 0, 0});
  CHECK(std::abs(*middle.p99 - (0.001 + 0.009 * 49 / 50)) < 1e-9);
  CHECK_FALSE(middle.beyond);
  const auto high = row_of({0, 0, 0, 0}, {1, 0, 0, 9});
  CHECK(*high.p99 == 0.1);
  CHECK(high.beyond);
}

TEST_CASE("rows are sorted by a column with the largest value first, and by name where values are equal") {
  TopRow busy, idle, broken;
  busy.id = "b", busy.reads = 9, busy.in_flight = 1;
  idle.id = "c", idle.pvc_namespace = "shop", idle.pvc = "a", idle.p99 = 0.5, idle.write_bytes = 4;
  broken.id = "a", broken.severity = 2, broken.in_flight = 5;
  const auto first_by = [&](const char* column) {
    std::vector<TopRow> rows{broken, busy, idle};
    cli::sort_top(rows, column);
    return rows.front().id;
  };
  CHECK(first_by("iops") == "b");
  CHECK(first_by("bytes") == "c");
  CHECK(first_by("latency") == "c");
  CHECK(first_by("inflight") == "a");
  CHECK(first_by("state") == "a");
  CHECK(first_by("name") == "a");
  std::vector<TopRow> rows{idle, busy};
  cli::sort_top(rows, "state");
  CHECK(rows.front().id == "b");
}

TEST_CASE("a row ends with the limits of its pods, also of a volume that the kernel client serves") {
  TopRow limited, mapped, free;
  limited.id = "a";
  limited.limits.resize(1);
  limited.limits.front().set_pod("shop/db-0");
  limited.limits.front().set_write_iops(100);
  limited.limits.front().set_read_bytes_per_s(1'500'000);
  mapped = limited;
  mapped.id = "b";
  mapped.by_kernel = true;
  free.id = "c";
  const auto text = cli::top_table({limited, mapped, free});
  CHECK_THAT(text, ContainsSubstring("LIMITS\n"));
  CHECK_THAT(text, ContainsSubstring("0          -         w=100/s r=1.5MB/s\nb"));
  CHECK_THAT(text, ContainsSubstring("kernel     -         w=100/s r=1.5MB/s\nc"));
  const auto json = cli::top_json({limited, free});
  CHECK(json.at("volumes").at(0).at("io_limits").at(0).at("pod") == "shop/db-0");
  CHECK(json.at("volumes").at(0).at("io_limits").at(0).at("write_iops") == 100);
  CHECK(json.at("volumes").at(1).at("io_limits").as_array().empty());
}

TEST_CASE("a row shows what the image of a raw block volume uses, if that was counted") {
  auto first = answer(0), second = answer(kTwoSeconds);
  add(first, "1");
  add(second, "1").set_used_bytes(8'500'000);
  add(second, "2");
  const auto rows = cli::top_rows(first, second);
  CHECK((rows.at(0).used == 8'500'000 && !rows.at(1).used));
  const auto text = cli::top_table(rows);
  CHECK_THAT(text, ContainsSubstring("USED-MB   LIMITS\n"));
  CHECK_THAT(text, ContainsSubstring(" 8.5       -\n"));
  const auto json = cli::top_json(rows);
  CHECK(json.at("volumes").at(0).at("used_bytes") == 8'500'000);
  CHECK(json.at("volumes").at(1).at("used_bytes").is_null());
}

TEST_CASE("a row shows the claim's name if it is known, and `kernel` instead of figures for the kernel client") {
  TopRow named, mapped;
  named.id = "0001-x";
  named.pvc = "data";
  named.pvc_namespace = "shop";
  named.state = "staged";
  named.reads = 1234;
  named.p99 = 0.0123;
  mapped.id = "k\033[1m";
  mapped.by_kernel = true;
  const auto text = cli::top_table({named, mapped});
  CHECK_THAT(text, ContainsSubstring("\nshop/data   staged   1234"));
  CHECK_THAT(text, ContainsSubstring(" 12.3 "));
  CHECK_THAT(text, ContainsSubstring("\nk?[1m "));
  CHECK_THAT(text, ContainsSubstring("kernel"));
  CHECK_THAT(text.substr(text.find("k?[1m")), !ContainsSubstring("0"));
  CHECK_THAT(cli::top_table({named, mapped}, 1), ContainsSubstring("and 1 more\n"));
  const auto json = cli::top_json({named, mapped});
  CHECK(json.at("volumes").at(0).at("reads_per_s") == 1234.0);
  CHECK(json.at("volumes").at(0).at("budget_wait_share") == 0.0);
  CHECK(json.at("volumes").at(0).at("p99_s") == 0.0123);
}

TEST_CASE("the JSON of a volume of the kernel client has null for every figure") {
  TopRow mapped;
  mapped.by_kernel = true;
  const auto json = cli::top_json({mapped}).at("volumes").at(0).as_object();
  for (const char* figure : {"reads_per_s", "writes_per_s", "others_per_s", "read_bytes_per_s", "write_bytes_per_s",
                             "errors_per_s", "p99_s", "in_flight", "oldest_request_s", "budget_wait_share"}) {
    CAPTURE(figure);
    CHECK(json.at(figure).is_null());
  }
  CHECK(json.at("by_kernel") == true);
}
