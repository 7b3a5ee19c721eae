// The one answer that librbd counts on for each of its requests, which come one after another.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace corbd::rbd {

/// Any thread.
class OwedAnswer {
 public:
  using Request = std::uint64_t;
  Request asked() {
    const std::lock_guard sole(mutex_);
    owed_ = ++last_;
    refusal_.reset();
    return owed_;
  }
  /// Returns what librbd is to be told: nothing if that request has its answer, or is not the present one.
  std::optional<int> take(Request request, int r) {
    const std::lock_guard sole(mutex_);
    if (request == 0 || request != owed_) return std::nullopt;
    owed_ = 0;
    return refusal_.value_or(r);
  }
  std::optional<int> take_any(int r) {
    const std::lock_guard sole(mutex_);
    if (owed_ == 0) return std::nullopt;
    owed_ = 0;
    return r;
  }
  /// Replaces an answer that is still on its way.
  void refuse(Request request, int r) {
    const std::lock_guard sole(mutex_);
    if (request == owed_) refusal_ = r;
  }

 private:
  std::mutex mutex_;
  Request last_ = 0, owed_ = 0;
  std::optional<int> refusal_;
};

}  // namespace corbd::rbd
