// One open image: the librbd handle, what keeps it alive, and the ways in and out of it.
#pragma once

#include <rbd/librbd.h>

#include <atomic>

#include "config_guard.hpp"
#include "connections.hpp"
#include "lockers.hpp"

namespace corbd::rbd {

/// Passed to librbd's update watch; it must only signal (reading the size inside its callback deadlocks, ceph tracker
/// 50593).
struct UpdateSignal;

/// The RADOS object that tells what the image is, and that its lock and watches are on.
inline std::string header_of(const image::Key& key) { return "rbd_header." + key.image_id; }

struct Opened {
  Opened(Connections& all, Lease from, image::Key which, bool only_reads);
  ~Opened();
  std::string text() const { return pool.text + "/" + name; }
  std::string header() const { return header_of(key); }
  Lane& lane() const { return lease->group->lanes->images; }

  /// One operation on the data begins or ends; the last one's end lets a close go on. Any thread.
  void enter() { in_use.fetch_add(1, std::memory_order_relaxed); }
  void leave() {
    if (in_use.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const auto last = idle;  // setting it may end this object
    last.set(true);
  }

  Connections& connections;
  Lease lease;
  Connection& connection;
  const image::Key key;
  const bool read_only;
  OpenPool pool;
  rbd_image_t image = nullptr;
  std::string name;  ///< at the time of opening
  std::uint64_t features = 0;
  std::atomic<std::uint64_t> size{0};
  std::unique_ptr<UpdateSignal> signal;
  std::optional<std::uint64_t> watch;
  std::function<void()> on_resized;
  std::function<void(std::string)> on_lost;
  /// Our lock as it was seen last; control thread.
  struct Held {
    std::string cookie;
    time_point seen;
    std::chrono::system_clock::time_point seen_wall;  ///< a suspended machine's steady clock stands still
  };
  std::optional<Held> held;
  bool refreshing = false, refresh_again = false;

  /// Blocking calls under way. They use this object by reference, never by a share of it: the last share must go on the
  /// control thread.
  Gate calls;
  Slots turn;
  std::atomic<std::int64_t> in_use{1};  ///< operations under way, and one for being open
  Promise<bool> idle;
  Event closed;
  bool closing = false;
};

/// Opens by id and checks the configuration. To the end: whoever waits may leave, the image is closed then.
task<result<std::shared_ptr<Opened>>> open_image(Connections& connections, Lease lease, image::Key key,
                                                 image::OpenOptions options);
/// Waits for everything under way, closes, sets `closed`.
task<> close_image(std::shared_ptr<Opened> opened);
/// Reads the size, checks the configuration and the lock again, after the cluster said that something changed.
void want_refresh(const std::shared_ptr<Opened>& opened);
/// The size as it is now; tells the owner when it is another one. Control thread.
void note_size(Opened& opened, std::uint64_t bytes);
/// Our lock was seen just now. Control thread.
void note_held(Opened& opened, std::string cookie);
/// Looks at the lock again and again as long as the image is open.
void keep_watching_lock(const std::shared_ptr<Opened>& opened);
/// What was proven of the image is worth nothing any more: its owner is told, once. Control thread.
void lose(Opened& opened, const std::string& why);

/// What a look at an open image tells; pool thread.
struct Details {
  std::uint64_t size = 0, features = 0;
  std::string name;
  std::optional<Error> unsafe;
  std::optional<Lockers> lockers;  ///< if asked for
};
result<Details> read_details(Opened& opened, bool with_lockers = false);

}  // namespace corbd::rbd
