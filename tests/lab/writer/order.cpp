#include "order.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace corbd::writer {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

/// The operations that wrote or saw one value of a block.
struct Value {
  std::optional<Operation> write;
  std::int64_t first_end = Operation::kUnknown, last_begin = kNever;
  bool seen = false;

  void add(const Operation& one) {
    if (one.writes)
      write = one;
    else
      seen = true;
    first_end = std::min(first_end, one.ended);
    last_begin = std::max(last_begin, one.began);
  }
  /// It was there from its first end to its last begin.
  bool lasted() const { return first_end < last_begin; }
};

std::string named(std::uint64_t value) {
  return value == Operation::kInitial ? "the block's first state" : "write " + std::to_string(value);
}

class Register {
 public:
  Register(std::uint64_t block, std::vector<std::string>& found)
      : text_("block " + std::to_string(block) + ": "), found_(found) {
    values_[Operation::kInitial].add({block, true, Operation::kInitial, kNever, kNever});
  }

  void add(const Operation& one) {
    if (one.writes || one.ended != Operation::kUnknown) values_[one.value].add(one);
    if (!one.writes && one.ended != Operation::kUnknown) reads_.push_back(one);
  }

  void judge() {
    judge_reads();
    // A write without an answer that no read saw may not have happened. judge_reads() told of values that no write
    // made.
    std::erase_if(values_, [](const auto& one) {
      return !one.second.write || (one.second.write->ended == Operation::kUnknown && !one.second.seen);
    });
    judge_lasting();
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
    }
  }

  void judge_lasting() {
    std::vector<const Entry*> lasting;
    for (const auto& one : values_)
      if (one.second.lasted()) lasting.push_back(&one);
    std::ranges::sort(lasting, {}, [](const Entry* one) { return one->second.first_end; });
    for (std::size_t i = 1; i < lasting.size(); ++i)
      if (lasting[i]->second.first_end < lasting[i - 1]->second.last_begin) tell_around(*lasting[i - 1], *lasting[i]);
    for (const auto& one : values_) {
      if (one.second.lasted()) continue;
      // Only the last lasting value whose first end is before this value's last begin can contain this value.
      auto after = std::ranges::lower_bound(lasting, one.second.last_begin, {},
                                            [](const Entry* other) { return other->second.first_end; });
      if (after == lasting.begin()) continue;
      const Entry& around = **std::prev(after);
      if (one.second.first_end < around.second.last_begin) tell_around(around, one);
    }
  }

  using Entry = std::pair<const std::uint64_t, Value>;
  /// A write that had no answer yet may have been carried out twice; one that had an answer came late.
  void tell_around(const Entry& outer, const Entry& inner) {
    const bool answered = outer.second.write->ended <= inner.second.write->began;
    tell(named(outer.first) + " was there before and after " + named(inner.first) +
         (answered ? ", and had its answer before that began" : ", and had no answer yet when that began"));
  }
  void tell(const std::string& what) { found_.push_back(text_ + what); }

  std::string text_;
  std::vector<std::string>& found_;
  std::map<std::uint64_t, Value> values_;
  std::vector<Operation> reads_;
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
