// Limits the lines about slow requests that an io thread may write to the log, which keeps 2048 lines of everything for
// a slow reader. Pure.
#pragma once

#include <cstdint>
#include <optional>

namespace corbd::nbd {

class SlowLines {
 public:
  static constexpr int kPerMinute = 60;
  /// Whether another line may be written now. If so, returns how many were held back since the last one.
  std::optional<std::uint64_t> next(std::int64_t now_us) {
    constexpr std::int64_t kMinute = 60'000'000;
    if (lines_ == 0 || now_us - since_us_ >= kMinute) {
      since_us_ = now_us;
      lines_ = 0;
    }
    if (lines_ == kPerMinute) {
      ++held_back_;
      return std::nullopt;
    }
    ++lines_;
    const auto held_back = held_back_;
    held_back_ = 0;
    return held_back;
  }

 private:
  std::int64_t since_us_ = 0;  ///< time of the first of these lines
  int lines_ = 0;
  std::uint64_t held_back_ = 0;
};

}  // namespace corbd::nbd
