// What this process holds for one volume, and the operations under way on it.
#pragma once

#include <deque>
#include <list>
#include <memory>

#include "corbd/core/async_lock.hpp"
#include "corbd/volume/shell.hpp"

namespace corbd::volume {

/// One wish being carried out. Callers join it by wanting the same.
struct Operation {
  Operation(Wish wanted, executor control, Clock& clock) : wish(std::move(wanted)), done(std::move(control), clock) {}
  Wish wish;
  Event done;
  result<> outcome;
};

struct Volume {
  Volume(std::string volume_id, executor control, Clock& clock)
      : id(volume_id), lock(std::move(control), clock, "the operation under way on volume " + volume_id) {}
  std::string id;
  AsyncLock lock;
  std::list<std::shared_ptr<Operation>> operations;
  std::size_t users = 0;  ///< coroutines besides the operations that have a reference to this
  /// Gone with this: what a link or an image tells, which may outlive it, looks here first.
  const std::shared_ptr<char> alive = std::make_shared<char>();

  std::optional<Record> record;
  std::optional<Record> saving;  ///< on its way to the disk; it counts already for other volumes
  Secret key;
  bool key_saved = false;
  /// Another key, as a stage brought it, of which nobody knows yet whether the cluster takes it. `key` served the
  /// volume and stays until this one did.
  std::optional<Secret> offered;
  bool tries_offered = false;  ///< by the operation under way
  const Secret& asks_with() const { return tries_offered && offered ? *offered : key; }
  bool unsure = false;   ///< the last write of the record failed: it may be on the disk all the same
  bool refused = false;  ///< the last write of the record failed, whatever it was for
  std::unique_ptr<image::Image> image;
  std::uint64_t opening =
      0;  ///< counts the images: news of an earlier one, which may still be closing, is none of this one
  std::unique_ptr<device::Link> link;
  bool connected = false;
  const device::Link* drained = nullptr;  ///< the agent ends, and `link` takes no request any more
  bool untuned = false;                   ///< its device was connected, and has the queue that the number had before
  bool tombstone = false;                 ///< `image` is none: it answers EIO to everything
  bool lock_held = false;
  bool closing = false;  ///< the close of `image` was asked for; it may go on although the wait for it ended
  Facts facts;
  std::optional<Error> last_error;
  /// The last one is cancelled with the link: who waits for the device then lets the healing have the volume. The
  /// others may be waited on still.
  std::list<CancelScope> link_scopes = std::list<CancelScope>(1);

  std::optional<host::Usage> usage;     ///< as its filesystem told last
  std::shared_ptr<Event> usage_answer;  ///< of the question under way

  Health health = Health::absent;
  std::chrono::system_clock::time_point since;
  std::deque<Change> timeline;
  bool served_by_other = false;          ///< rbd-nbd did when it was last looked at
  std::optional<time_point> other_died;  ///< when the kernel told of the end of its link
  bool gone = false;  ///< at the last look the kernel had no device of it; of an earlier boot's record that is known
                      ///< without one
  bool disconnected = false;  ///< the device that it has takes no link any more
  bool cut_off = false;       ///< its client was, while it served; until it is served again
  std::optional<time_point> unserved_since, lost_since, in_use_since;
  std::optional<time_point>
      stalled_since;  ///< it is served again, and requests waited for that; over with the first answer
  std::uint32_t links_lost = 0;
  duration longest_stall{};

  void link_ended() {
    link_scopes.back().cancel();
    link_scopes.emplace_back();
  }
  /// Nobody uses it, and nothing is remembered of it that the next operation would not find out.
  bool idle() const {
    return !record && !saving && !unsure && !disconnected && !link && !image && !usage_answer && operations.empty() &&
           users == 0;
  }
  bool answers() const {
    return (record && !traits(record->kind).served) || served() || (served_by_other && !other_died);
  }
  bool served() const { return link && link->state() == device::Link::State::serving && connected; }
};

/// Answers EIO to everything. `size`: bytes.
std::unique_ptr<image::Image> make_tombstone(image::Key key, std::uint64_t size, bool read_only);

/// Its devices: those that carry its identifier, or show its image to the kernel's client. `kernel_wanted`: of a volume
/// without a record, whether the latter are looked for although no stash tells of them.
result<std::vector<device::Seen>> find_devices(const Volume& volume, const Ports& ports, bool kernel_wanted = false);

/// Without the volumes beside it, and with the facts that this operation has learned.
result<Observation> observe(const Volume& volume, const Wish& wish, const Ports& ports, const std::string& boot_id,
                            time_point now);

/// Until now, and in all that it is known of.
duration longest_stall(const Volume& live);
/// Its link ends, or is about to be replaced: a stall that was over by then counts, any other goes on.
void note_stall(Volume& live);

/// From the record and what is at hand.
Health health_of(const Volume& live);
Status status_of(const Volume& live, const device::Seen* seen, const std::vector<host::Mount>& mounts);

}  // namespace corbd::volume
