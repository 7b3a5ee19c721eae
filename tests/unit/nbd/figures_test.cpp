// What a link counts of its requests, and which of them it calls slow.
#include "ground.hpp"
#include "link_stats.hpp"
#include "slow_lines.hpp"

namespace corbd::test {
namespace {

using device::RequestKind;
using Ends = MemoryImage::Ends;
using Io = MemoryImage::Io;

std::uint64_t all_of(const device::RequestFigures& figures) {
  std::uint64_t sum = 0;
  for (const auto count : figures.latency) sum += count;
  return sum;
}

}  // namespace

TEST_CASE("a link counts its requests and their bytes by operation, whichever thread answers") {
  const auto ends = GENERATE(Ends::at_once, Ends::elsewhere);
  Ground ground(ends);
  CHECK(ground.ask(request(Command::write, 1, 0, 512) + pattern(512), 1) == 0);
  CHECK(ground.ask(request(Command::write, 2, 0, 1024) + pattern(1024), 2) == 0);
  CHECK(ground.ask(request(Command::flush, 3), 3) == 0);
  CHECK(ground.ask(request(Command::trim, 4, 0, 4096), 4) == 0);
  CHECK(ground.ask(request(Command::write_zeroes, 5, 0, 4096), 5) == 0);
  CHECK(ground.ask(request(Command::read, 6, 0, 512), 6) == 0);
  // A reply may leave before the io thread knows of the end.
  REQUIRE(ground.eventually([&] { return ground.link->figures().of(RequestKind::read).requests == 1; }));
  const auto now = ground.link->figures();
  CHECK(now.of(RequestKind::write).requests == 2);
  CHECK(now.of(RequestKind::write).bytes == 1536);
  CHECK(now.of(RequestKind::flush).requests == 1);
  CHECK(now.of(RequestKind::flush).bytes == 0);
  CHECK(now.of(RequestKind::discard).requests == 2);
  CHECK(now.of(RequestKind::discard).bytes == 8192);
  CHECK(now.of(RequestKind::read).bytes == 512);
  for (const auto& one : now.by) {
    CHECK(all_of(one) == one.requests);
    CHECK(one.errors == 0);
  }
}

TEST_CASE("a request that the image refuses counts as an error, one that the kernel repeats does not count") {
  Ground ground;
  ground.image.fail(Io::write, EIO);
  CHECK(ground.ask(request(Command::write, 1, 0, 512) + pattern(512), 1) == nbd::wire_eio);
  CHECK(ground.link->figures().of(RequestKind::write).errors == 1);
  CHECK(ground.link->figures().of(RequestKind::write).requests == 1);
  ground.image.fail(Io::write, ESHUTDOWN);
  ground.send(request(Command::write, 2, 0, 512) + pattern(512));
  CHECK(ground.ends());
  CHECK(ground.link->figures().of(RequestKind::write).requests == 1);
}

TEST_CASE("a latency counts in the first bucket whose bound it does not exceed") {
  nbd::LinkStats stats;
  nbd::Request read;
  for (const std::int64_t micros : {0, 500, 501, 10'000'000, 10'000'001}) stats.ended(read, micros, false);
  const auto figures = stats.read();
  const auto& latency = figures.of(RequestKind::read).latency;
  CHECK(latency.at(0) == 2);
  CHECK(latency.at(1) == 1);
  CHECK(latency.at(9) == 1);
  CHECK(latency.at(10) == 1);
  CHECK(stats.read().of(RequestKind::read).micros == 20'001'002);
}

TEST_CASE("a request that takes as long as the limit counts as slow while it is under way, and once") {
  Ground ground(Ends::when_told, 64u << 20, 1u << 20, false, std::chrono::milliseconds(20));
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  REQUIRE(ground.eventually([&] { return ground.link->figures().slow == 1; }));
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
  REQUIRE(ground.eventually([&] { return ground.link->figures().of(RequestKind::flush).requests == 1; }));
  CHECK(ground.link->figures().slow == 1);
}

TEST_CASE("without a limit no request is slow") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.link->oldest() > std::chrono::milliseconds(30); }));
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
  REQUIRE(ground.eventually([&] { return ground.link->figures().of(RequestKind::flush).requests == 1; }));
  CHECK(ground.link->figures().slow == 0);
}

TEST_CASE("a link that is destroyed while it looks out for slow requests lets them end") {
  Ground ground(Ends::when_told, 64u << 20, 1u << 20, false, std::chrono::hours(1));
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link.reset();
  ground.image.release();
  REQUIRE(ground.eventually([&] { return ground.loop.sessions == 0; }));
}

TEST_CASE("an io thread logs a bounded number of slow requests a minute, and the next line counts those it left out") {
  nbd::SlowLines lines;
  constexpr std::int64_t kSecond = 1'000'000;
  for (int i = 0; i < nbd::SlowLines::kPerMinute; ++i) CHECK(lines.next(100 * kSecond + i) == 0u);
  for (int i = 0; i < 5; ++i) CHECK(!lines.next(101 * kSecond));
  CHECK(!lines.next(159 * kSecond));
  CHECK(lines.next(160 * kSecond) == 6u);
  CHECK(lines.next(160 * kSecond) == 0u);
}

}  // namespace corbd::test
