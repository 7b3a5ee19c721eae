// Our hold on an open image: its exclusive lock, or the mark of the writer of an image without one.
#pragma once

#include "lock_watch.hpp"

namespace corbd::rbd {

class OpenImage;

/// Control thread.
class OwnLock {
 public:
  /// `opened` owns it, and has its handle and connections already.
  explicit OwnLock(OpenImage& opened);
  /// Implement the functions of image::Image about ownership and lock.
  task<result<image::Ownership>> ownership(Until until);
  task<result<>> break_dead(std::string owner, std::int64_t break_time, Until until);
  task<result<>> acquire(Until until);
  duration took() const { return took_; }
  task<result<>> keep(Until until);
  task<> taken_over(Until until);
  task<result<>> release(Until until);

  bool held() const { return held_.has_value(); }
  /// Whether keep() was called: lock and mark are left to the next client.
  bool left() const { return left_; }
  /// Returns how it was lost; nothing: it is held still. Needs held().
  std::optional<std::string> check(const Lockers& now);
  void mark_lost() { held_.reset(); }
  /// Removes our mark, if there is one. It waits for the cluster.
  task<result<>> remove_mark();

 private:
  /// Our lock as last seen.
  struct Held {
    std::string cookie;
    time_point seen;
    std::chrono::system_clock::time_point seen_wall;  ///< the steady clock of a suspended machine stands still
  };
  void note_held(std::string cookie);
  task<> end_earlier_watches(std::shared_ptr<OpenImage> keeps);
  task<> end_watch_if_taken(std::shared_ptr<OpenImage> keeps);

  OpenImage& opened_;
  const ImageHandle& handle_;
  Connections& connections_;
  std::optional<Held> held_;
  /// Version of the header when its users were last read, or as our own break left it. 0: nobody looked since the lock
  /// was taken.
  std::uint64_t seen_version_ = 0;
  duration took_{};
  std::string mark_;  ///< its mark as the writer of an image without exclusive-lock; empty: none
  /// Watch for the lock that it keeps for the next agent, whose client has to live for it.
  std::shared_ptr<LockWatch> watch_;
  Lease watch_lease_;
  bool left_ = false;
  Event watch_ended_;
};

}  // namespace corbd::rbd
