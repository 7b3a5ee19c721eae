// Selects the requests that must fail because the device's last server died with writes in its cache.
#pragma once

#include <atomic>

#include "codec.hpp"

namespace corbd::nbd {

/// Selects every flush, until somebody has accepted the loss. The kernel reports a failed flush to the caller that
/// waits for it and to nobody else. Another program, another file's fsync, or a sync(2) in between, which drops the
/// error, must not make the next caller believe that the lost writes are stored.
class LostCache {
 public:
  explicit LostCache(bool any) : any_(any) {}

  /// Whether to answer this request with an error. A write with FUA is a flush of its own data.
  bool concerns(const Request& request) const {
    const bool flushes = request.command == Command::flush || (request.flags & flag_fua) != 0;
    return flushes && any();
  }
  // Callable from any thread.
  bool any() const { return any_.load(std::memory_order_acquire); }
  void accept() { any_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> any_;
};

}  // namespace corbd::nbd
