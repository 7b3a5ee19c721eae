// Reports requests that take too long: while each is under way, and again when it ends. A session with nothing under
// way checks nothing, and a busy one checks once in that time.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "io_loop.hpp"
#include "link_stats.hpp"

namespace corbd::nbd {

struct Slot;

/// Io thread.
class SlowRequests {
 public:
  /// `slow_us`: limit from which a request is slow; 0: none is. `name`, `image`: for the log. `due`: called when it is
  /// time to call look().
  SlowRequests(IoLoop& loop, std::int64_t slow_us, LinkStats& stats, const std::string& name, std::string image,
               std::function<void()> due);
  /// A request has begun.
  void watch(std::int64_t began_us);
  /// Writes one line for all that have become slow, because a silent cluster makes hundreds slow at once.
  void look(Slot* oldest);
  void ended(Slot& slot, std::int64_t took_us);
  /// `due` is called once more if it waits().
  void stop() { timer_.cancel(); }
  bool waits() const { return waits_; }

 private:
  void tell(const Slot& slot, std::int64_t age_us, int under_way);
  IoLoop& loop_;
  const std::int64_t slow_us_;  ///< a copy of Counters', on no cache line that other threads write
  LinkStats& stats_;
  const std::string& name_;
  const std::string image_;
  const std::function<void()> due_;
  asio::steady_timer timer_;
  bool waits_ = false;
};

}  // namespace corbd::nbd
