#include "budget.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "ground.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;
constexpr std::uint32_t kRequest = 64 << 10;

struct Waiter final : nbd::Budget::Waiter {
  explicit Waiter(nbd::Budget& budget, const std::string& cluster = "a") { budget.join(*this, cluster); }
  void budget_freed() override { ++woken; }
  int woken = 0;
};

Bytes reads(unsigned count) {
  Bytes out;
  for (unsigned i = 0; i < count; ++i) out = out + request(Command::read, i, 0, kRequest);
  return out;
}

/// A second device on the same loop.
struct Other {
  explicit Other(Ground& at, Ends ends = Ends::when_told, const std::string& cluster = "fsid")
      : ground(at), image(1u << 20, ends, false, cluster) {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    peer = std::move(pair->second);
    link = nbd::serve_socket(ground.control.get_executor(), *ground.clock, ground.loop, image, std::move(pair->first),
                             ground.counters);
  }
  ~Other() {
    link->shut();
    ground.eventually([&] {
      image.release();
      return link->in_flight() == 0 && link->state() == device::Link::State::closed;
    });
    link.reset();
    ground.flush_posts();
  }
  void send(const Bytes& bytes) const {
    REQUIRE(::send(peer.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  Ground& ground;
  MemoryImage image;
  Fd peer;
  std::unique_ptr<nbd::NbdLink> link;
};

}  // namespace

TEST_CASE("a buffer that was given back is used again") {
  nbd::Buffers buffers(1 << 20);
  std::byte* first = buffers.take(5000);
  buffers.give_back(first, 5000);
  CHECK(buffers.take(8192) == first);
  CHECK(buffers.made() == 1);
  buffers.give_back(first, 8192);
}

TEST_CASE("where pages are larger, memory that goes back takes nothing of the buffers beside it") {
  constexpr std::size_t page = 64 << 10;
  auto arena = nbd::Arena::make(16 * page);
  REQUIRE(arena);
  for (nbd::Arena* const from : {static_cast<nbd::Arena*>(nullptr), &*arena}) {
    nbd::Buffers buffers(0, from, page);
    std::vector<std::byte*> all;
    for (int i = 0; i < 8; ++i) all.push_back(buffers.take(4096));
    for (std::byte* const one : all) std::memset(one, 7, 4096);
    for (std::size_t i = 0; i < all.size(); i += 2) buffers.give_back(all[i], 4096);
    // No two of them share a page, of which the system takes the whole.
    CHECK(std::ranges::all_of(all, [&](std::byte* one) { return (one - all.front()) % std::ptrdiff_t{page} == 0; }));
    buffers.look_back();
    buffers.look_back();
    buffers.trim(SIZE_MAX);
    CHECK_FALSE(buffers.has_spare());
    for (std::size_t i = 1; i < all.size(); i += 2) {
      CHECK(std::all_of(all[i], all[i] + 4096, [](std::byte one) { return one == std::byte{7}; }));
      buffers.give_back(all[i], 4096);
    }
  }
}

TEST_CASE("memory of a peak goes back once the period after it ends, also while a buffer stays in use",
          "[failure:42][rule:23]") {
  constexpr std::size_t kept = 1 << 20, size = 256 << 10, count = 64;
  nbd::Buffers buffers(kept);
  std::byte* stays = buffers.take(4096);
  std::vector<std::byte*> peak;
  for (std::size_t i = 0; i < count; ++i) {
    peak.push_back(buffers.take(size));
    std::memset(peak.back(), 1, size);
  }
  for (auto* buffer : peak) buffers.give_back(buffer, size);
  CHECK(buffers.has_spare());
  CHECK(buffers.resident() == count * size + 4096);
  // The peak was in this period: it may come again.
  buffers.look_back();
  CHECK_FALSE(buffers.trim(SIZE_MAX));
  CHECK(buffers.resident() == count * size + 4096);
  buffers.look_back();
  CHECK(buffers.trim(4 * size));
  CHECK_FALSE(buffers.trim(SIZE_MAX));
  CHECK_FALSE(buffers.has_spare());
  CHECK(buffers.resident() == kept + 4096);
  const auto has_pages = [&](std::byte* buffer) {
    unsigned char there = 0;
    REQUIRE(::mincore(buffer, 4096, &there) == 0);
    return there % 2 != 0;
  };
  CHECK(std::ranges::count_if(peak, has_pages) == kept / size);
  // Their addresses are used again.
  const auto made = buffers.made();
  for (auto*& buffer : peak) buffer = buffers.take(size);
  CHECK(buffers.made() == made);
  for (auto* buffer : peak) buffers.give_back(buffer, size);
  buffers.give_back(stays, 4096);
}

TEST_CASE("a spent budget still has the reserved bytes, or one request that is longer, for each device") {
  nbd::Budget budget(100, 50);
  Waiter device(budget);
  CHECK(budget.take(device, 100, 0));
  CHECK(budget.take(device, 50, 0));
  CHECK_FALSE(budget.take(device, 1, 50));
  CHECK(budget.take(device, 10, 40));
  CHECK(budget.take(device, 80, 0));
  CHECK_FALSE(budget.take(device, 80, 1));
  CHECK(budget.used() == 240);
}

TEST_CASE("300 busy devices get no more than the budget and 1 MiB each", "[failure:42][rule:23]") {
  constexpr std::uint64_t total = 512ull << 20, each = 1 << 20;
  const std::uint64_t length = GENERATE(256ull << 10, 1ull << 20);
  nbd::Budget budget(total, each);
  std::vector<Waiter> devices(300, Waiter(budget));
  for (auto& device : devices) {
    std::uint64_t mine = 0;
    for (int i = 0; i < 128 && budget.take(device, length, mine); ++i) mine += length;
    CHECK(mine >= length);
    budget.wait(device, length);
  }
  CHECK(budget.used() <= total + devices.size() * each);
  for (auto& device : devices) budget.forget(device);
}

TEST_CASE("waiters get the budget in order, without overtaking", "[failure:42]") {
  nbd::Budget budget(100, 10);
  Waiter busy(budget), first(budget), second(budget), third(budget), late(budget);
  REQUIRE(budget.take(busy, 100, 0));
  budget.wait(first, 30);
  budget.wait(second, 30);
  budget.wait(third, 30);
  budget.forget(second);
  budget.give_back(busy, 20);
  CHECK(first.woken == 0);
  CHECK_FALSE(budget.take(late, 15, 1));
  budget.give_back(busy, 20);
  CHECK(first.woken == 1);
  CHECK(third.woken == 0);
  // What it was told of is its own, whoever asks before it.
  CHECK_FALSE(budget.take(late, 10, 1));
  CHECK(budget.take(first, 30, 1));
  budget.give_back(busy, 60);
  CHECK(second.woken == 0);
  CHECK(third.woken == 1);
  budget.forget(third);
  CHECK(budget.used() == 30);
}

TEST_CASE("devices of one cluster may have the whole budget") {
  nbd::Budget budget(100, 1);
  Waiter one(budget), two(budget);
  CHECK(budget.take(one, 50, 1));
  CHECK(budget.take(two, 50, 1));
  CHECK_FALSE(budget.take(one, 1, 51));
}

TEST_CASE("a hanging cluster leaves a fifth of the budget to others, and its waiters hold up no one else",
          "[rule:23]") {
  nbd::Budget budget(100, 1);
  Waiter hung(budget, "hung"), well(budget, "well");
  std::uint64_t held = 0;
  while (budget.take(hung, 10, 1)) held += 10;
  CHECK(held == 80);
  budget.wait(hung, 10);
  for (int again = 0; again < 3; ++again) {
    REQUIRE(budget.take(well, 10, 1));
    CHECK_FALSE(budget.take(well, 10, 11));
    budget.give_back(well, 10);
  }
  CHECK(hung.woken == 0);
  budget.give_back(hung, 30);
  CHECK(hung.woken == 1);
  budget.forget(hung);
}

TEST_CASE("a cluster whose last device is gone has no part of the budget") {
  nbd::Budget budget(100, 1);
  Waiter stays(budget, "a");
  {
    const Waiter goes(budget, "b");
    CHECK_FALSE(budget.take(stays, 90, 1));
  }
  CHECK(budget.take(stays, 90, 1));
}

TEST_CASE("devices of two clusters that wait for the budget get it in turn") {
  nbd::Budget budget(1000, 1);
  Waiter busy(budget, "c"), a1(budget, "a"), a2(budget, "a"), b1(budget, "b");
  REQUIRE(budget.take(busy, 800, 1));
  REQUIRE(budget.take(a1, 100, 1));
  for (Waiter* one : {&a1, &a2, &b1}) budget.wait(*one, 90);
  budget.give_back(busy, 90);
  CHECK(a1.woken + b1.woken == 1);
  budget.give_back(busy, 90);
  CHECK(a1.woken + b1.woken == 2);
  CHECK(a2.woken == 0);
  budget.give_back(busy, 90);
  CHECK(a2.woken == 1);
  for (Waiter* one : {&a1, &a2, &b1}) budget.forget(*one);
}

TEST_CASE(
    "a device goes on beyond its own reservation while a device of another cluster hangs with all that it may have",
    "[rule:24]") {
  Ground ground(Ends::when_told, 20 * kRequest, kRequest);
  Other well(ground, Ends::when_told, "another");
  ground.send(reads(20));
  REQUIRE(ground.eventually(
      [&] { return ground.image.waiting() == 16 && ground.counters.of(device::Count::budget_waits) == 1; }));
  well.send(reads(4));
  CHECK(ground.eventually([&] { return well.image.waiting() == 3; }));
}

TEST_CASE("a device that spent the budget is not read from until it answers") {
  Ground ground(Ends::when_told, 2 * kRequest, kRequest);
  Bytes batch;
  for (unsigned i = 0; i < 6; ++i) batch = batch + request(Command::write, i, 0, kRequest) + pattern(kRequest, i);
  ground.send(batch);
  REQUIRE(ground.eventually([&] { return ground.counters.of(device::Count::budget_waits) == 1; }));
  ground.flush_posts();
  CHECK(ground.image.waiting() == 2);
  for (unsigned i = 0; i < 6; ++i) {
    REQUIRE(ground.eventually([&] { return ground.image.waiting() > 0; }));
    CHECK(ground.image.waiting() <= 2);
    ground.image.release(1);
    CHECK(ground.reply().cookie == i);
  }
}

TEST_CASE("a device goes on when another one gives its share back") {
  Ground ground(Ends::when_told, 4 * kRequest, kRequest);
  Other other(ground);
  ground.send(reads(4));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 4; }));
  other.send(reads(2));
  // One by its own reservation.
  REQUIRE(ground.eventually(
      [&] { return other.image.waiting() == 1 && ground.counters.of(device::Count::budget_waits) == 1; }));
  ground.image.release();
  CHECK(ground.eventually([&] { return other.image.waiting() == 2; }));
}

TEST_CASE("a device's paused time grows only while it waits for the budget") {
  Ground ground(Ends::when_told, 4 * kRequest, kRequest);
  Other other(ground);
  const auto still = [&] { return other.link->figures().still_micros; };
  ground.send(reads(4));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 4; }));
  CHECK(still() == 0);
  other.send(reads(2));
  REQUIRE(ground.eventually([&] { return ground.counters.of(device::Count::budget_waits) == 1; }));
  REQUIRE(ground.eventually([&] { return still() > 0; }));
  const auto before = still();
  REQUIRE(ground.eventually([&] { return still() > before; }));
  const bool shut = GENERATE(false, true);
  if (shut) {
    other.link->shut();
    other.image.release();
    REQUIRE(ground.eventually([&] { return other.link->state() != device::Link::State::serving; }));
    ground.flush_posts();
  } else {
    ground.image.release();
    REQUIRE(ground.eventually([&] { return other.image.waiting() == 2; }));
  }
  const auto ended = still();
  CHECK(ended > before);
  const auto later = ground.clock->now() + std::chrono::milliseconds(5);
  REQUIRE(ground.eventually([&] { return ground.clock->now() > later; }));
  CHECK(still() == ended);
  CHECK(ground.link->figures().still_micros == 0);
}

TEST_CASE("what a shut link had under way, half read or unsent comes back to the budget") {
  Ground ground(Ends::when_told, 4 * kRequest, kRequest);
  const auto under_way = reads(1);
  const auto half_read = request(Command::write, 9, 0, kRequest);
  ground.send(under_way + half_read);
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link->shut();
  ground.image.release();
  REQUIRE(ground.idle() == Waited::ready);
  {
    Other unsent(ground, Ends::at_once);
    // Far more than the socket holds, and nobody reads it.
    unsent.send(reads(250));
    std::size_t calls = 0, still = 0;
    REQUIRE(ground.eventually([&] {
      ground.flush_posts();
      still = unsent.image.calls().size() == calls ? still + 1 : 0;
      calls = unsent.image.calls().size();
      return calls > 0 && still == 10;
    }));
    REQUIRE(calls < 250);
  }
  Other other(ground);
  other.send(reads(5));
  CHECK(ground.eventually([&] { return other.image.waiting() == 4; }));
}

TEST_CASE("a link that is destroyed while it waits for the budget gets no callback") {
  Ground ground(Ends::when_told, 4 * kRequest, kRequest);
  ground.send(reads(4));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 4; }));
  {
    Other other(ground);
    other.send(reads(2));
    REQUIRE(ground.eventually(
        [&] { return other.image.waiting() == 1 && ground.counters.of(device::Count::budget_waits) == 1; }));
  }
  ground.image.release();
  CHECK(ground.receive(4 * (kRequest + nbd::reply_bytes)).size() == 4 * (kRequest + nbd::reply_bytes));
}

TEST_CASE("a link shut while it waits for the budget leaves nothing behind") {
  Ground ground(Ends::when_told, kRequest, kRequest);
  ground.send(request(Command::read, 1, 0, kRequest) + request(Command::read, 2, 0, kRequest));
  REQUIRE(ground.eventually([&] { return ground.counters.of(device::Count::budget_waits) == 1; }));
  ground.link->shut();
  ground.image.release();
  CHECK(ground.idle() == Waited::ready);
}

TEST_CASE("a drain while the reader waits for the budget answers what was read") {
  Ground ground(Ends::when_told, kRequest, kRequest);
  ground.send(request(Command::read, 1, 0, kRequest) + request(Command::read, 2, 0, kRequest));
  REQUIRE(ground.eventually([&] { return ground.counters.of(device::Count::budget_waits) == 1; }));
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  ground.image.set_ends(Ends::at_once);
  ground.image.release();
  CHECK(ground.drain() == Waited::ready);
  CHECK(ground.receive(2 * (kRequest + nbd::reply_bytes)).size() == 2 * (kRequest + nbd::reply_bytes));
}

TEST_CASE("a peer with too many unanswered requests is not read from until some are answered") {
  Ground ground(Ends::when_told);
  Bytes batch;
  for (unsigned i = 0; i < 300; ++i) batch = batch + request(Command::flush, i);
  ground.send(batch);
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 256; }));
  ground.flush_posts();
  CHECK(ground.image.waiting() == 256);
  ground.image.set_ends(Ends::at_once);
  ground.image.release();
  for (unsigned i = 0; i < 300; ++i) CHECK(ground.reply().error == 0);
}

TEST_CASE(
    "spare buffers of other sizes are released before new memory is allocated, so that the total stays at the peak") {
  constexpr std::size_t most = 8 << 20;
  nbd::Buffers buffers(1 << 20);
  for (const std::size_t size : {1 << 20, 256 << 10, 64 << 10, 4 << 10}) {
    std::vector<std::byte*> taken;
    for (std::size_t bytes = 0; bytes < most; bytes += size) taken.push_back(buffers.take(size));
    CHECK(buffers.resident() == most);
    for (auto* buffer : taken) buffers.give_back(buffer, size);
  }
}

}  // namespace corbd::test
