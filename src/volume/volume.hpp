// The agent's state of one volume, and the operations under way on it.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <set>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/file.hpp"
#include "corbd/plan/credentials.hpp"
#include "corbd/plan/outcome.hpp"
#include "corbd/volume/shell.hpp"
#include "record_index.hpp"
#include "server.hpp"
#include "server_watchdog.hpp"

namespace corbd::volume {

/// A wish that is being carried out. A caller with an equal wish joins it.
struct Operation {
  Operation(Wish wanted, executor control, Clock& clock) : wish(std::move(wanted)), done(std::move(control), clock) {}
  Wish wish;
  Event done;
  result<> outcome;
};

/// Possible contents of the volume's file as long as nobody but this agent writes it: the record that was written last,
/// or one whose write failed since, because that may have happened all the same.
class OnDisk {
 public:
  void written(const Record& record) {
    sums_ = {sha256_hex(encode(record))};
    lock_call_ = record.proof.lock_call.has_value();
  }
  void tried(const Record& record) { sums_.insert(sha256_hex(encode(record))); }
  void dropped() {
    sums_.clear();
    lock_call_ = false;
  }
  bool may_be(const Record& record) const { return sums_.contains(sha256_hex(encode(record))); }
  /// Whether the record that was written last has Proof::lock_call.
  bool has_lock_call() const { return lock_call_; }

 private:
  std::set<std::string> sums_;
  bool lock_call_ = false;
};

/// State of the record's writes.
struct RecordWrites {
  HeldRecord under_way;  ///< other volumes respect it already
  OnDisk on_disk = {};
  bool unsure = false;   ///< the last write that had to succeed failed; the record may be on the disk all the same
  bool refused = false;  ///< the last write failed, whether it had to succeed or not
};

/// Facts about the kernel's device that only its last look or its last command shows.
struct DeviceState {
  bool untuned = false;                      ///< connected, and still with its predecessor's queue settings
  bool gone = false;                         ///< the record is of an earlier boot, or the last look found no device
  bool disconnected = false;                 ///< it takes no link any more
  std::string refused_client = {};           ///< address of a kernel client that was blocklisted (KernelWatch)
  std::optional<Credential> mapped_as = {};  ///< krbd: given to the kernel by this process
};

/// The volume's rbd-nbd, at the last look.
struct OtherServer {
  bool serves = false;
  std::vector<int> pids;
  std::string uncached_process;  ///< process whose client was looked for (host::OtherServer::uncached)
  ServerWatchdog silence;
  bool silence_told = false;
  std::optional<time_point> died;  ///< when the kernel reported the end of its link
};

/// A stall lasts from the loss of the server until the requests of that time are answered. This is one whose volume is
/// served again.
struct Stall {
  std::optional<time_point> since;  ///< since when it had no server
  time_point resent_by;             ///< the kernel has sent all of those again by then
  bool watched = false;             ///< Stalls watches for its end
};

struct History {
  Health health = Health::absent;
  std::chrono::system_clock::time_point since;
  std::deque<Change> timeline;
  std::optional<Error> last_error;
  std::optional<time_point> unserved_since, lost_since, in_use_since;
  std::set<std::string> in_use_by;  ///< addresses that the last notice named
  std::string left_for_next_stage;  ///< as last reported
  unsigned denied = 0;              ///< links in a row that ended because its client lacked the right
  /// Clients of ours whose lock, if the image has it, may have come long after what proved the image ours; until the
  /// volume is served again.
  std::set<std::string> late_lockers;
  std::set<std::string> lockers;  ///< all clients of this agent that asked for the lock: late_lockers tells of these
  bool access_lost = false;       ///< while it served (OwnImage::access_lost); until the volume is served again
  Stall stall;
  Counts counts;
  device::Figures ended_links;  ///< figures of the links before this one
};

/// Answer to the question how full the filesystem is.
struct UsageAnswer {
  std::optional<host::Usage> last;
  std::shared_ptr<Event> under_way;  ///< set while a question is under way
};

/// The count of what a raw block volume's image uses.
struct UsedCount {
  std::optional<UsedBytes> last;
  std::optional<time_point> begun;  ///< the last count
  bool under_way = false;
};

/// A change of the volume's client to one of its present user and key.
struct ClientChange {
  std::optional<OwnImage> next;  ///< opened beside the one that serves, by the present operation
  /// Closed with its lock kept; its client watches that lock until the next client has it.
  std::unique_ptr<image::Image> previous;
  bool under_way = false;  ///< the next client serves soon: nothing has failed
};

/// A user and key that the volume is to have, and why it does not have them.
struct UnusedKey {
  Credential credential;
  std::string why;
};

struct Volume {
  Volume(std::string volume_id, executor control, Clock& clock, RecordIndex& records)
      : id(volume_id),
        lock(std::move(control), clock, "the operation under way on volume " + volume_id),
        record(records, id),
        writes{HeldRecord(records, id)} {}
  const std::string id;
  AsyncLock lock;
  std::list<std::shared_ptr<Operation>> operations;
  std::size_t users = 0;  ///< coroutines, besides the operations, that have a reference to this

  HeldRecord record;
  RecordWrites writes;
  Credentials credentials;
  std::string key_unread;  ///< why its key file could not be read at the start
  Server server;
  ClientChange client_change;
  std::optional<UnusedKey> unused_key;
  bool quiesces = false;        ///< its image asks before snapshots
  bool freeze_refused = false;  ///< the kernel answered the last freeze that is in the record, and did not freeze
  std::string secret_unread;    ///< why the last look at its Secret brought no user and key
  DeviceState device;
  OtherServer other;
  Facts facts;
  History history;
  UsageAnswer usage;
  UsedCount used;
  std::uint64_t next_trim = 0;  ///< where the next piece of a trim begins; 0: the last one is done
  std::string why_not_trimmed;  ///< Status::why_not_trimmed
  /// The last one is cancelled when the link ends. A call that waits for the device then returns and leaves the volume
  /// to healing. Calls may still wait on the earlier ones.
  std::list<CancelScope> link_scopes = std::list<CancelScope>(1);

  void link_ended() {
    link_scopes.back().cancel();
    link_scopes.emplace_back();
  }
  /// Whether nobody uses it, and it remembers nothing that the next operation would not find out again.
  bool idle() const {
    return !record && !writes.under_way && !writes.unsure && !device.disconnected && server.image() == nullptr &&
           !client_change.previous && !usage.under_way && operations.empty() && users == 0;
  }
  bool answers() const {
    return (record && !traits(record->device.kind).served) || server.serves() || client_change.under_way ||
           (other.serves && !other.died);
  }
};

/// Returns the record with paths in mountinfo's form, so that they can be compared with it and with each other.
Record with_real_paths(Record record, const NodeFiles& files);

/// Makes an image that answers EIO to everything. `size`: bytes.
std::unique_ptr<image::Image> make_tombstone(image::Key key, std::uint64_t size, bool read_only);

/// Returns the volume's devices: those that carry its volume ID, or those of the kernel client that show its image.
/// `kernel_wanted`: look for the latter even if the volume has neither a record nor a stash.
result<std::vector<device::Seen>> find_devices(const Volume& volume, const Ports& ports, bool kernel_wanted = false);

/// Adds the mounts for which shows() holds.
void add_shown(const host::MountList& mounts, const device::Seen& device, const std::string& volume_id,
               host::MountList::Found& found);

/// Returns an empty table if the mounts cannot be read.
host::MountTable mounts_now(const Ports& ports);

/// The volume's cluster, and its name in config.json: its own or, if that is gone, one that cluster-mapping.json maps
/// it to. Of several, it is the one that a connection showed to have the volume's fsid, or else the first. The fsid
/// shows at the next look whether it is the same cluster.
struct NamedCluster {
  std::string id;
  Cluster cluster;
};
result<NamedCluster> cluster_of(const Ports& ports, const Record& record);
/// Returns why neither config.json nor cluster-mapping.json leads to a cluster of the record's clusterID. Empty: one
/// does, or config.json cannot be read.
std::string why_cluster_gone(const Ports& ports, const Record& record);
/// Connects to the possible clusters, in their order, until one has the volume's fsid. An error names them all.
task<result<>> identify_cluster(const Ports& ports, Record record, Credential as, Until until);
/// Returns the access to the volume's cluster.
result<image::Access> access_of(const Ports& ports, const Record& record, const Credential& as);
/// Whether that is the volume's own cluster: config.json has it, or shows by its fsid which of the mapped ones it is.
bool is_own_cluster(const Ports& ports, const Record& record, const image::Access& access);

/// Includes the facts that this operation has learnt. observe_neighbours() adds facts about other volumes.
result<Observation> observe(const Volume& volume, const Wish& wish, const Ports& ports, const std::string& boot_id,
                            const Clock& clock);

/// Ends the stall.
void end_stall(Volume& volume, time_point now);
/// Called when the link ends or is about to be replaced: a stall that is not over goes on.
void resume_stall(Volume& volume);

/// Returns the figures of all its links since the agent's start.
device::Figures figures_of(const Volume& volume);
/// Takes the link out of the volume. Its figures stay.
std::unique_ptr<device::Link> take_link(Volume& volume);

Health health_of(const Volume& volume);
/// `seen`: the volume's device; null: none was found.
VolumeKeys keys_of(const Volume& volume, const device::Seen* seen);
Status status_of(const Volume& volume, const device::Seen* seen, const host::MountList& mounts);

}  // namespace corbd::volume
