// Which requests hear that the device's last server died with writes in its cache. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "codec.hpp"

namespace corbd::nbd {

/// Every flush from the first one on, for a minute. The kernel reports a failed flush to the caller that waits for it
/// and to nobody else. Another program, another file's fsync, or a sync(2) in between, which drops the error, must not
/// make the next caller believe that what was lost is stored.
class LostCache {
 public:
  explicit LostCache(bool any) : any_(any) {}

  /// Whether this request, read now, is to be answered with an error. A write with FUA is a flush of its own data.
  bool concerns(const Request& request, std::int64_t now_us) const {
    const bool flushes = request.command == Command::flush || (request.flags & flag_fua) != 0;
    return any_ && flushes && !is_over(now_us);
  }
  /// One was answered so. Whether it was the first.
  bool told(std::int64_t now_us) {
    if (told_us_) return false;
    told_us_ = now_us;
    return true;
  }
  bool is_over(std::int64_t now_us) const { return told_us_ && now_us - *told_us_ >= kTellsForUs; }

 private:
  static constexpr std::int64_t kTellsForUs = 60'000'000;
  bool any_;
  std::optional<std::int64_t> told_us_;
};

}  // namespace corbd::nbd
