// Whether an io thread polls for the next request before it sleeps. Pure.
//
// A client with one request under way often sends the next one as soon as it has the reply. Waking a sleeping thread
// for that takes 2 to 50 microseconds. If the image took much longer, polling would save little and cost as much.
#pragma once

#include <cstdint>

namespace corbd::nbd {

class Polling {
 public:
  static constexpr std::int64_t kLongest_us = 40;

  /// Whether to poll after a batch in which so many operations ended, the last of them after `took_us`.
  bool pays(int operations, std::int64_t took_us) {
    if (operations != 1 || took_us > kSlow_us) return false;
    if (rests_ == 0) return true;
    --rests_;
    return false;
  }

  /// `preempted`: another thread had the processor meanwhile.
  void ended(bool found, bool preempted) {
    if (preempted)
      rests_ = kRestOfContended;
    else if (found)
      misses_ = 0;
    else if (++misses_ % kMostMisses == 0)
      rests_ = kRestOfMissed;
  }

 private:
  static constexpr std::int64_t kSlow_us = 200;
  static constexpr unsigned kMostMisses = 4;
  static constexpr int kRestOfMissed = 64, kRestOfContended = 1024;
  unsigned misses_ = 0;  ///< consecutive misses
  int rests_ = 0;        ///< batches without polling
};

}  // namespace corbd::nbd
