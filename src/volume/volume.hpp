// What the agent holds for one volume, and the operations under way on it.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <set>

#include "corbd/core/async_lock.hpp"
#include "corbd/plan/ceph_key.hpp"
#include "corbd/plan/outcome.hpp"
#include "corbd/volume/shell.hpp"
#include "corbd/volume/silence.hpp"

namespace corbd::volume {

/// One wish that is being carried out. A caller with an equal wish joins it.
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
  std::size_t users = 0;  ///< coroutines, besides the operations, that have a reference to this
  /// A callback of a link or an image may outlive this object, so it checks here first.
  const std::shared_ptr<char> alive = std::make_shared<char>();

  std::optional<Record> record;
  std::optional<Record> saving;  ///< on its way to the disk; other volumes respect it already
  CephKey key;
  bool unsure = false;   ///< the last write that had to succeed failed; the record may be on the disk all the same
  bool refused = false;  ///< the last write of the record failed, whether it had to succeed or not
  std::unique_ptr<image::Image> image;
  std::uint64_t opening = 0;  ///< number of the current image; callbacks of an earlier one, still closing, are ignored
  std::unique_ptr<device::Link> link;
  bool connected = false;
  const device::Link* drained = nullptr;  ///< the link that the leaving agent has drained: it takes no more requests
  int tries_to_give = 0;                  ///< that ended in vain, in this handover
  bool untuned = false;                   ///< the device was connected, and still has its predecessor's queue settings
  bool tombstone = false;                 ///< `image` is a tombstone
  std::optional<std::uint64_t> modified;  ///< the image's modify timestamp when its lock was taken
  bool lock_held = false;                 ///< the exclusive lock of `image`
  bool writer_marked = false;             ///< without that feature: `image` is marked as ours to write
  bool closing = false;                   ///< the close of `image` has begun; it may go on after the wait for it ended
  Facts facts;
  std::optional<Error> last_error;
  /// The last one is cancelled when the link ends. A call that waits for the device then returns and leaves the volume
  /// to healing. Calls may still wait on the earlier ones.
  std::list<CancelScope> link_scopes = std::list<CancelScope>(1);

  std::optional<host::Usage> usage;     ///< the filesystem's last answer
  std::shared_ptr<Event> usage_answer;  ///< set while a question is under way

  Health health = Health::absent;
  std::chrono::system_clock::time_point since;
  std::deque<Change> timeline;
  bool served_by_other = false;  ///< at the last look, rbd-nbd served the device
  std::vector<int> other_pids;   ///< of those rbd-nbd processes
  std::string uncached_process;  ///< whose client was looked for (host::OtherServer::uncached)
  Silence other_silence;
  bool silence_told = false;
  std::optional<time_point> other_died;  ///< when the kernel reported the end of rbd-nbd's link
  bool gone = false;                     ///< the record is of an earlier boot, or the last look found no device
  bool disconnected = false;             ///< the device takes no link any more
  bool image_lost = false;               ///< the open image's client was cut off, or its lock was lost
  bool cut_off = false;                  ///< the client was cut off while it served; until the volume is served again
  std::optional<time_point> unserved_since, lost_since, in_use_since;
  std::set<std::string> in_use_by;  ///< addresses of those that the last notice named
  /// The volume is served again, and requests from before are not answered yet: since when it had no server.
  std::optional<time_point> stalled_since;
  time_point resent_by;        ///< the kernel has sent all of those again by then
  bool stall_watched = false;  ///< Shell::Impl::watch_stall() runs
  Counts counts;
  device::Figures ended_links;  ///< what the links before this one did

  void link_ended() {
    link_scopes.back().cancel();
    link_scopes.emplace_back();
  }
  /// Nobody uses it, and it remembers nothing that the next operation would not find out again.
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

/// The volume's devices: those that carry its volume ID, or those of the kernel client that show its image.
/// `kernel_wanted`: look for the latter even if the volume has neither a record nor a stash.
result<std::vector<device::Seen>> find_devices(const Volume& volume, const Ports& ports, bool kernel_wanted = false);

/// Empty if the mounts cannot be read.
host::MountTable mounts_now(const Ports& ports);

/// How to reach the volume's cluster as its user.
result<image::Access> access_of(const Ports& ports, const Record& record, const Secret& key);

/// Includes the facts that this operation has learned. Other volumes are not in it: the shell adds them.
result<Observation> observe(const Volume& volume, const Wish& wish, const Ports& ports, const std::string& boot_id,
                            time_point now);

/// The stall is over.
void end_stall(Volume& volume, time_point now);
/// Called when the link ends or is about to be replaced: a stall that is not over goes on.
void resume_stall(Volume& volume);

/// Of all its links since the agent's start.
device::Figures figures_of(const Volume& volume);
/// Takes the link out of the volume. Its figures stay.
std::unique_ptr<device::Link> take_link(Volume& volume);

Health health_of(const Volume& volume);
Status status_of(const Volume& volume, const device::Seen* seen, const std::vector<host::Mount>& mounts);

}  // namespace corbd::volume
