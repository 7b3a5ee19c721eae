#include "order.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace corbd::writer {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

/// The write that made a value, and when the last read that saw it began.
struct Value {
  std::optional<Operation> write;
  std::int64_t last_begin = kNever;

  /// It was there from the write's answer until `last_begin`.
  bool lasted() const { return write->ended < last_begin; }
};

/// A value, and a span of time. A value that lasted was there throughout; any other use was at a moment of its span.
struct Use {
  std::uint64_t value = 0;
  std::int64_t first = 0, last = 0;
};

std::string named(std::uint64_t value) {
  return value == Operation::kInitial ? "the block's first state" : "write " + std::to_string(value);
}

class Register {
 public:
  Register(std::uint64_t block, std::vector<std::string>& found)
      : text_("block " + std::to_string(block) + ": "), found_(found) {
    values_[Operation::kInitial].write = Operation{block, true, Operation::kInitial, kNever, kNever};
  }

  void add(const Operation& one) {
    if (one.writes) {
      values_[one.value].write = one;
    } else if (one.ended != Operation::kUnknown) {
      auto& last_begin = values_[one.value].last_begin;
      last_begin = std::max(last_begin, one.began);
      reads_.push_back(one);
    }
  }

  void judge() {
    judge_reads();
    collect_writes();
    judge_lasting();
    judge_moments();
  }

 private:
  void judge_reads() {
    for (const auto& read : reads_) {
      const auto& write = values_.at(read.value).write;
      if (read.value == Operation::kDamaged)
        tell("a read saw bytes that no single write has made");
      else if (!write)
        tell("a read saw " + named(read.value) + ", which nobody has made");
      else if (read.ended < write->began)
        tell("a read saw " + named(read.value) + " before that began");
      else if (read.began <= write->ended)
        moments_.push_back({read.value, std::max(read.began, write->began), std::min(read.ended, write->ended)});
    }
  }

  /// A write without an answer can happen after everything else, so it never lies inside another value's span.
  void collect_writes() {
    for (const auto& [value, one] : values_) {
      if (!one.write) continue;  // judge_reads() told of it
      if (one.lasted())
        lasting_.push_back({value, one.write->ended, one.last_begin});
      else
        moments_.push_back({value, one.write->began, one.write->ended});
    }
  }

  void judge_lasting() {
    std::ranges::sort(lasting_, {}, &Use::first);
    for (std::size_t i = 1; i < lasting_.size(); ++i)
      if (lasting_[i].first < lasting_[i - 1].last) tell_around(lasting_[i - 1].value, lasting_[i].value);
  }

  void judge_moments() {
    std::set<std::pair<std::uint64_t, std::uint64_t>> told;
    for (const auto& one : moments_) {
      // Spans that lasted do not overlap, or judge_lasting() told of it. So only the last that began before can contain
      // this one.
      auto after = std::ranges::lower_bound(lasting_, one.first, {}, &Use::first);
      if (after == lasting_.begin()) continue;
      const Use& around = *std::prev(after);
      if (one.last < around.last && told.emplace(around.value, one.value).second) tell_around(around.value, one.value);
    }
  }

  void tell_around(std::uint64_t outer, std::uint64_t inner) {
    tell(named(outer) + " was there before and after " + named(inner) +
         (outer == Operation::kInitial ? "" : ", though it had its answer"));
  }
  void tell(const std::string& what) { found_.push_back(text_ + what); }

  std::string text_;
  std::vector<std::string>& found_;
  std::map<std::uint64_t, Value> values_;
  std::vector<Operation> reads_;
  std::vector<Use> lasting_, moments_;
};

}  // namespace

std::vector<std::string> violations(const std::vector<Operation>& history) {
  std::vector<std::string> found;
  std::map<std::uint64_t, Register> registers;
  for (const auto& one : history) registers.try_emplace(one.block, one.block, found).first->second.add(one);
  for (auto& [block, all] : registers) all.judge();
  return found;
}

}  // namespace corbd::writer
