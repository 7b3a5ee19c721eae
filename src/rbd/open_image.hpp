// An open image: the librbd handle, the objects that keep it alive, and how to open and close it.
#pragma once

#include <rbd/librbd.h>

#include <atomic>

#include "config_guard.hpp"
#include "connections.hpp"
#include "lockers.hpp"

namespace corbd::rbd {

/// Passed to librbd's update watch. It must only signal (reading the size inside its callback deadlocks, ceph tracker
/// 50593).
struct UpdateSignal;

/// The RADOS object that describes the image and carries its lock and watches.
inline std::string header_of(const image::Key& key) { return "rbd_header." + key.image_id; }

/// The result of a check of an open image; pool thread.
struct Details {
  std::uint64_t size = 0;
  image::Features features;
  std::string name;
  bool secondary = false;  ///< another cluster's copy is the primary one, if that was asked
  std::optional<Error> unsafe, decides_cache;
  std::optional<Lockers> lockers;      ///< if asked for
  std::optional<std::string> refused;  ///< image::Image::refused_again(), if look_at() could ask
};
/// Does the work of read_details(), and asks whether the next open would be refused.
result<Details> look_at(OpenImage& opened, bool with_lockers);

struct OpenImage {
  OpenImage(Connections& all, Lease from, image::Key which, bool only_reads);
  ~OpenImage();
  std::string text() const { return pool.text + "/" + name; }
  std::string header() const { return header_of(key); }
  BlockingCalls& blocking() const { return lease->group->threads->images; }

  /// An operation on the data begins or ends. The end of the last one lets a close continue. Any thread.
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
  bool refuse_as_writer = false, refuse_cache_metadata = false, despite_dirty_cache = false;
  OpenPool pool;
  rbd_image_t image = nullptr;
  std::string name;  ///< name at the time of opening
  std::uint64_t features = 0;
  std::atomic<std::uint64_t> size{0};
  std::atomic<bool> journaled{true};  ///< it has the feature `journaling`: a flush is an event of its journal
  std::unique_ptr<UpdateSignal> signal;
  std::optional<std::uint64_t> watch;
  std::function<void()> on_resized;
  std::function<void(std::string)> on_lost;
  /// Our lock as last seen; control thread.
  struct Held {
    std::string cookie;
    time_point seen;
    std::chrono::system_clock::time_point seen_wall;  ///< the steady clock of a suspended machine stands still
  };
  std::optional<Held> held;
  /// Version of the header when its users were last read, or as our own break left it. 0: nobody looked since the lock
  /// was taken. Control thread.
  std::uint64_t seen_version = 0;
  duration lock_took{};  ///< image::Image::lock_took(). Control thread
  std::string mark;      ///< its mark as the writer of an image without exclusive-lock; empty: none. Control thread
  /// Watch for the lock that it keeps for the next agent, whose client has to live for it. Control thread.
  std::shared_ptr<LockWatch> lock_watch;
  Lease lock_watch_lease;
  Event lock_watch_ended;
  bool refreshing = false, refresh_again = false;
  std::function<result<Details>(OpenImage& opened, bool with_lockers)> look = &look_at;  ///< for want_refresh()
  std::string refused_again;                     ///< image::Image::refused_again(). Control thread
  std::atomic<bool> caches_before_flush{false};  ///< image::Image::caches_before_flush()
  std::atomic<image::ReadPolicy> read_policy{};  ///< image::Image::read_policy()
  std::atomic<bool> stamps_writes{true};         ///< our own writes change the image's modify timestamp

  /// Blocking calls under way. They use this object by reference and never by a shared pointer, because the last shared
  /// pointer must go on the control thread.
  Gate calls;
  Slots turn;
  std::atomic<std::int64_t> in_use{1};  ///< operations under way, and one for being open
  Promise<bool> idle;
  Event closed;
  bool closing = false;
};

/// Opens the image by ID and checks the configuration. It runs to the end. If the waiter leaves, the image is closed.
task<result<std::shared_ptr<OpenImage>>> open_image(Connections& connections, Lease lease, image::Key key,
                                                    image::OpenOptions options);
/// Waits for everything under way, closes, sets `closed`.
task<> close_image(std::shared_ptr<OpenImage> opened);
/// Reads the size, and checks the configuration and the lock again, after the cluster announced a change.
void want_refresh(const std::shared_ptr<OpenImage>& opened);
/// Does the same every Config::looks_every, until the image closes.
void keep_looking(const std::shared_ptr<OpenImage>& opened);
/// Sets the present size, and tells the owner if it has changed. Control thread.
void note_size(OpenImage& opened, std::uint64_t bytes);
/// Notes that our lock was seen just now. Control thread.
void note_held(OpenImage& opened, std::string cookie);
/// Makes any earlier proof for the image void, and tells its owner, once. Control thread.
void mark_access_lost(OpenImage& opened, const std::string& why);

result<Details> read_details(OpenImage& opened, bool with_lockers = false);
struct Purpose {
  bool writes = false;
  bool despite_dirty_cache = false;  ///< image::OpenOptions
};
/// Returns why nobody may open it now for that purpose. `name`: with its pool.
std::optional<Error> why_refused(const Details& details, Purpose purpose, const std::string& name);
/// Control thread.
void note_look(OpenImage& opened, const Details& details);

}  // namespace corbd::rbd
