// State of `corbd drain`: the agent stages no new volume. A small file in the state directory lets it outlive a
// restart.
#pragma once

#include <optional>
#include <string>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/blocking_pool.hpp"

namespace corbd::ops {

/// Age of the last `corbd drain` from which a starting agent ignores it. Otherwise an agent that comes back after
/// months, for example from ceph-csi, would refuse every stage for a reason that nobody remembers.
inline constexpr std::chrono::hours kCordonFor{7 * 24};

/// Content of the file. Without a time it was unreadable, and counts: refusing to stage can be undone, staging cannot.
struct Cordoned {
  std::optional<std::chrono::system_clock::time_point> since;
  /// Returns "2026-11-22T12:03:04Z (until 2026-11-29T12:03:04Z)", or that the time is unknown.
  std::string text() const;
};

/// Pure. A time in the future counts: the clock may have been set back.
bool still_cordoned(const Cordoned& cordoned, std::chrono::system_clock::time_point now);
std::string cordon_json(std::chrono::system_clock::time_point since);
Cordoned read_cordon(std::string_view json);

/// Control thread only.
class Cordon {
 public:
  Cordon(executor control, Clock& clock, BlockingPool& pool, const std::string& state_dir);
  /// Reads the file, at the agent's start. An old one is removed.
  task<> load();
  /// Writes durably before it returns. state_write: nothing has changed.
  task<result<>> set(bool on, Until until);
  const std::optional<Cordoned>& now() const { return now_; }

 private:
  Clock& clock_;
  BlockingPool& pool_;
  const std::string path_;
  AsyncLock lock_;
  std::optional<Cordoned> now_;
};

}  // namespace corbd::ops
