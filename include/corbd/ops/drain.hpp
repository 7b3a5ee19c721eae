// A drain that outlives a restart: a small file in the state folder. The agent stages no new volume while it is there.
#pragma once

#include <optional>
#include <string>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"

namespace corbd::ops {

/// An agent that starts later than this after the last `corbd drain` does not honour it any more. Otherwise an agent
/// that comes back after months, as after a way back from ceph-csi, would refuse every stage for a reason that nobody
/// remembers.
inline constexpr std::chrono::hours kDrainFor{7 * 24};

/// What the file says. Without a time it cannot be read, and counts: to stage nothing can be undone, to stage cannot.
struct Drained {
  std::optional<std::chrono::system_clock::time_point> since;
  /// "2026-11-22T12:03:04Z (until 2026-11-29T12:03:04Z)", or that nobody knows.
  std::string text() const;
};

/// Pure. A time in the future counts: the clock may have been set back.
bool still_drained(const Drained& drained, std::chrono::system_clock::time_point now);
std::string drain_json(std::chrono::system_clock::time_point since);
Drained read_drain(std::string_view json);

/// Control thread only.
class Drain {
 public:
  Drain(executor control, Clock& clock, BlockingPool& pool, const std::string& state_dir);
  /// Reads the file, at the agent's start. An old one is removed.
  task<> load();
  /// Durable before it returns. state_write: nothing has changed.
  task<result<>> set(bool on, Until until);
  const std::optional<Drained>& now() const { return now_; }

 private:
  Clock& clock_;
  BlockingPool& pool_;
  const std::string path_;
  AsyncLock lock_;
  std::optional<Drained> now_;
};

}  // namespace corbd::ops
