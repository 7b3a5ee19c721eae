// Which requests hear that the device's last server died with writes in its cache. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "codec.hpp"

namespace corbd::nbd {

/// The first flush, and every other that comes before a second has passed since its answer. While one flush of a device
/// is under way the kernel holds the next one back (docs/sources.md#flushes), so that one, too, may cover lost writes.
class LostCache {
 public:
  explicit LostCache(bool any) : any_(any) {}

  /// Whether this request, read now, is to be answered with an error. A write with FUA is a flush of its own data.
  bool concerns(const Request& request, std::int64_t now_us) const {
    const bool flushes = request.command == Command::flush || (request.flags & flag_fua) != 0;
    return any_ && flushes && (!told_us_ || now_us - *told_us_ < kHeldBackUs);
  }
  /// One was answered so.
  void told(std::int64_t now_us) {
    if (!told_us_) told_us_ = now_us;
  }

 private:
  static constexpr std::int64_t kHeldBackUs = 1'000'000;
  bool any_;
  std::optional<std::int64_t> told_us_;
};

}  // namespace corbd::nbd
