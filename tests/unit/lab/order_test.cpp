// The judge of corbd-writer's order: histories that are known to be wrong, and an exhaustive search as its own judge.
#include "../../lab/writer/order.hpp"

#include <random>

#include "support/helpers.hpp"

using corbd::writer::Operation;
using corbd::writer::violations;

namespace {

using History = std::vector<Operation>;
constexpr std::int64_t kUnknown = Operation::kUnknown;

Operation wrote(std::uint64_t value, std::int64_t began, std::int64_t ended) { return {1, true, value, began, ended}; }
Operation saw(std::uint64_t value, std::int64_t began, std::int64_t ended) { return {1, false, value, began, ended}; }

/// Wing and Gong's search: whether those that are not `done` can follow at `now` or later on a block that holds
/// `value`. A write whose call is not over may happen once more just before a read that saw it.
bool can_follow(const std::vector<Operation>& all, unsigned done, std::uint64_t value, std::int64_t now) {
  std::int64_t first_end = kUnknown;
  bool complete = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (done & (1U << i)) continue;
    first_end = std::min(first_end, all[i].ended);
    complete &= all[i].ended == kUnknown;
  }
  if (complete) return true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (done & (1U << i)) continue;
    std::int64_t from = std::max(now, all[i].began), until = first_end;
    if (!all[i].writes && all[i].value != value) {
      const auto again =
          std::ranges::find_if(all, [&](const Operation& one) { return one.writes && one.value == all[i].value; });
      if (again == all.end()) continue;
      from = std::max(from, again->began);
      until = std::min(until, again->ended);
    }
    if (from <= until && can_follow(all, done | (1U << i), all[i].value, from)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("operations that can have happened one after another are in order") {
  CHECK(violations(History{}).empty());
  CHECK(violations(History{wrote(1, 0, 10), saw(1, 20, 30), wrote(2, 25, 50), saw(1, 26, 40), saw(2, 27, 41)}).empty());
  CHECK(violations(History{saw(0, 0, 1), wrote(1, 2, kUnknown), saw(0, 3, 4), saw(1, 9, 10)}).empty());
}

TEST_CASE("a read of an old value after a newer write has ended is out of order") {
  const auto found = violations(History{wrote(1, 0, 10), wrote(2, 20, 30), saw(1, 40, 50)});
  REQUIRE(found.size() == 1);
  CHECK(found[0] == "block 1: write 1 was there before and after write 2, though it had its answer");
}

TEST_CASE("a write that comes back before it has its answer is in order") {
  CHECK(violations(History{wrote(1, 0, 90), saw(1, 10, 20), wrote(2, 30, 40), saw(1, 50, 60)}).empty());
  CHECK(violations(History{wrote(1, 0, kUnknown), saw(1, 5, 6), wrote(2, 10, 20), saw(1, 30, 40)}).empty());
  CHECK(
      violations(History{wrote(1, 0, 100), wrote(2, 0, 100), saw(1, 10, 20), saw(2, 30, 40), saw(1, 50, 60)}).empty());
}

TEST_CASE("a write without an answer does not let an older one come back") {
  CHECK_FALSE(violations(History{wrote(1, 0, 10), wrote(2, 20, 90), saw(2, 30, 40), saw(1, 50, 60)}).empty());
}

TEST_CASE("a write that comes back after its answer is out of order") {
  CHECK_FALSE(
      violations(History{wrote(1, 0, 45), saw(1, 10, 20), wrote(2, 30, 40), saw(2, 50, 51), saw(1, 60, 70)}).empty());
}

TEST_CASE("a late write that comes after a newer one is out of order") {
  // The first was answered, and then sent once more.
  CHECK(violations(History{wrote(1, 0, 10), saw(1, 11, 12), wrote(2, 20, 30), saw(2, 31, 32), saw(1, 40, 50)}).size() ==
        1);
}

TEST_CASE("an acknowledged write that nobody sees any more is out of order") {
  CHECK(violations(History{wrote(1, 0, 10), saw(0, 20, 30)}) ==
        std::vector<std::string>{"block 1: the block's first state was there before and after write 1"});
}

TEST_CASE("a write that was never answered may happen at any later time") {
  CHECK(violations(History{wrote(1, 0, kUnknown), wrote(2, 10, 20), saw(1, 30, 40)}).empty());
}

TEST_CASE("a read of a value that nobody wrote, or before its write began, or of a torn block is told") {
  CHECK(violations(History{saw(7, 0, 1)}) ==
        std::vector<std::string>{"block 1: a read saw write 7, which nobody has made"});
  CHECK(violations(History{saw(7, 0, 1), wrote(7, 2, 3)}).front() == "block 1: a read saw write 7 before that began");
  CHECK(violations(History{saw(Operation::kDamaged, 0, 1)}) ==
        std::vector<std::string>{"block 1: a read saw bytes that no single write has made"});
}

TEST_CASE("each block has an order of its own") {
  Operation other = wrote(1, 0, 10), seen = saw(1, 40, 50);
  other.block = seen.block = 2;
  CHECK(violations(History{other, wrote(2, 20, 30), seen, saw(2, 40, 50)}).empty());
}

TEST_CASE("the judge of the order agrees with a search of all orders in 200000 random histories") {
  std::mt19937 random(20261128);
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  int in_order = 0;
  for (int round = 0; round < 200000; ++round) {
    std::vector<Operation> history;
    const int count = 2 + below(6), writes = 1 + below(3);
    for (int i = 0; i < count; ++i) {
      const std::int64_t began = below(16), ended = began + 1 + below(8);
      const bool is_write = i < writes;
      const bool unknown = is_write && below(5) == 0;
      history.push_back({1, is_write, static_cast<std::uint64_t>(is_write ? i + 1 : below(writes + 1)), began,
                         unknown ? kUnknown : ended});
    }
    const bool possible = can_follow(history, 0, Operation::kInitial, std::numeric_limits<std::int64_t>::min());
    in_order += possible;
    if (violations(history).empty() == possible) continue;
    INFO("round " << round);
    REQUIRE(violations(history).empty() == possible);
  }
  CHECK(in_order > 10000);
  CHECK(in_order < 190000);
}
