// Ports to a storage cluster: one block image, and the cluster that knows images, owners and dead clients. Nothing here
// names Ceph's libraries; the rooms above see only these ports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/image/block_image.hpp"
#include "corbd/image/blocklist.hpp"
#include "corbd/image/values.hpp"

namespace corbd::image {

/// A cluster's monitors, and the user and key for it. The key is only in memory and in the runtime directory's 0600
/// files.
struct Access {
  std::string cluster_id;             ///< name in config.json; for people and for sharing connections
  std::vector<std::string> monitors;  ///< as in config.json, joined by ',' for librados
  std::string user;                   ///< without "client."
  Secret key;
  std::map<std::string, std::string> config =
      {};  ///< Ceph's options for the connection; options that the agent's promises need override them
  bool operator==(const Access&) const = default;
};

/// Callbacks for a client, anywhere in the cluster, that is about to make a snapshot of the image. Control thread.
struct QuiesceHandlers {
  /// Answers the client: 0, or a negative errno, which fails the snapshot. The first counts, but a refusal still
  /// replaces a 0 that has not left this process. After the image's close it does nothing.
  using Answer = std::function<void(int)>;
  std::function<void(Answer answer)> asked;  ///< the image's content is to stand still from the answer on
  std::function<void()> ended;               ///< the snapshot was made, or given up; only after an answer of 0
};

/// An open image, with what its cluster knows of it.
class Image : public BlockImage {
 public:
  virtual bool exclusive_lock() const = 0;  ///< whether the image has the feature
  /// Whether a client with librbd's cache, such as rbd-nbd, would acknowledge writes that are only cached, even before
  /// its first flush. By default that cache writes through until then.
  virtual bool caches_before_flush() const { return false; }
  /// The policy in effect, including the metadata of image and pool.
  virtual ReadPolicy read_policy() const { return ReadPolicy::primary; }
  /// Returns why open() would refuse to open it again for the same use, by the last refresh; empty: it would not. An
  /// open image stays open.
  virtual std::string refused_again() const { return {}; }
  virtual std::string client() const = 0;  ///< address of its client, as Ceph prints it; empty if none
  /// Whether its client was cut off or given up. Its operations under way may end late, or never. That is safe: the
  /// agent opens no image of that cluster until the client is fenced.
  virtual bool client_given_up() const { return false; }

  // Calls from here on: control thread.
  /// Returns for how long a call on the image, or the periodic look at it, has had no answer, since this was first
  /// asked during that call. The time goes on after the caller has left. Waits for a thread, and calls that take
  /// minutes by themselves, do not count.
  virtual duration unanswered() const { return {}; }
  /// Looks whether a new client of its user gets answers where its own client gets none within 5 s: about the image's
  /// header, its object map, and the data of a request on `range`. Later looks ask whether the first questions have
  /// been answered. A client whose user was removed and put back can be deaf for ever (docs/sources.md#rotated-keys).
  virtual task<result<Hearing>> hearing(Range /*range*/, Until) { co_return Hearing::as_others; }
  /// Asks the cluster for size() and refused_again(). Calls on_resized as if the cluster had announced a change.
  virtual task<result<>> refresh(Until until) = 0;
  virtual task<result<Ownership>> ownership(Until until) = 0;
  /// Breaks the lock of a dead incarnation of this agent, which must have been fenced, and sets `break_time` in the
  /// same operation; or the lock of a foreign client that has an entry of its own in the blocklist. `owner`: from
  /// ownership(); unproven if that owner does not hold the lock any more. `break_time`: from 2^31 to 2^32 - 1; 0: none.
  virtual task<result<>> break_dead_lock(std::string owner, std::int64_t break_time, Until until) = 0;
  /// Takes the exclusive lock and keeps it, also when a peer asks for it. in_use: another client has it, dead or alive.
  /// unproven: somebody changed its header since the last ownership(), or break_dead_lock() after that.
  /// An image without exclusive-lock gets a mark of this client instead, which replaces any other and goes with
  /// close(). in_use: its header has changed since the last ownership().
  virtual task<result<>> acquire_lock(Until until) = 0;
  /// How long acquire_lock() took from its look at the header, which nobody had changed, until the lock was ours. So
  /// long nobody knows who had the image. A mark takes no time: the cluster compares and writes at once.
  virtual duration lock_took() const { return {}; }
  /// Sets the image's modify timestamp, as a writing client does from time to time, and returns it as ownership() does.
  /// Our clients' writes do not set it.
  virtual task<result<std::optional<std::uint64_t>>> stamp(Until) { co_return std::nullopt; }
  /// Makes close() leave the exclusive lock, or the mark: it is the next agent's proof of ownership. Other clients see
  /// the lock of a living client until lock_taken_over(), or until this client ends. After success nothing may be
  /// written, and only close() may follow.
  virtual task<result<>> keep_lock(Until) { co_return Error{errc::unimplemented, "this lock ends with its image"}; }
  /// Call this after keep_lock() and close(), when the next agent has the lock.
  virtual task<> lock_taken_over(Until) { co_return; }
  virtual task<result<>> release_lock(Until until) = 0;
  /// From now on each snapshot of the image asks these handlers first, until close(). Call it once. An image whose
  /// watch has not begun lets every snapshot pass.
  virtual task<result<>> watch_quiesce(QuiesceHandlers, Until) {
    co_return Error{errc::unimplemented, "this image tells of no snapshots"};
  }
  /// Whether any extent of the head is allocated; stops at the first. An error is never "no".
  virtual task<result<bool>> has_data(Until until) = 0;
  /// Returns the bytes of the head that are stored for this image itself, in whole objects. What a clone has from its
  /// parent does not count. Nothing: its object map does not tell, or would take too long. busy: an earlier count of an
  /// image of this cluster has not ended. Delays no other call; a close ends it, and waits only for what it has asked
  /// the cluster.
  virtual task<result<std::optional<std::uint64_t>>> used_bytes(Until) { co_return std::nullopt; }
  virtual task<result<std::optional<std::string>>> metadata(std::string name, Until until) = 0;
  /// Returns every metadata entry whose name begins with `prefix`.
  virtual task<result<std::map<std::string, std::string>>> metadata_below(std::string prefix, Until until) = 0;
  /// Works also if the image is open read-only, or if its lock is not held. It bypasses librbd, which would take the
  /// lock for it.
  virtual task<result<>> set_metadata(std::string name, std::string value, Until until) = 0;
  virtual task<result<>> remove_metadata(std::string name, Until until) = 0;
  /// Retires the client that it is open on, because that was denied something and a new client may have the right.
  /// Nothing begins on it any more. It ends with its last image.
  virtual void retire_client() {}
  /// Gives up the client that it is open on, as if the cluster had cut it off: each of its images is told, and opened
  /// again on another one. Call close() afterwards.
  virtual void give_up_client() {}
  /// Waits for operations under way, then closes. lock_taken_over() may follow, and then the destructor.
  virtual task<result<>> close(Until until) = 0;
};

/// Options of Clusters::open(), and the callbacks of an open image.
struct OpenOptions {
  bool read_only = false;
  bool refuse_as_writer = false;  ///< a reader gets the errors that a writer would get
  /// Makes open() return unsafe_config if metadata of the image or its pool override the cache of other clients.
  bool refuse_cache_metadata = false;
  /// Allows opening an image with the feature dirty-cache: to see who has it, or to end that client.
  bool despite_dirty_cache = false;
  std::function<void()> on_resized;  ///< control thread: size() has changed
  /// Called once, on the control thread: the cluster cut its client off, or its lock was lost. Any earlier proof is
  /// void from now on.
  std::function<void(std::string why)> on_lost;
};

/// All clusters of this node. Images of the same cluster and user share few connections.
class Clusters {
 public:
  virtual ~Clusters() = default;

  virtual task<result<Resolved>> resolve(Access access, Name name, Until until) = 0;
  /// Finds the image that a provisioner made. not_found: no such pool or image. A missing or incomplete journal is no
  /// error. The image's ID is written into a journal that lacks it.
  virtual task<result<Resolved>> locate(Access access, Reserved reserved, std::string ns, Until until) = 0;
  /// Blocklists every dead incarnation of this agent on that cluster, and waits until the connections have the map that
  /// says so. Returns at once if there is none. Until it has succeeded, open() refuses images of that cluster with
  /// unavailable.
  virtual task<result<>> fence_dead(Access access, Until until) = 0;
  /// Counts a dead client of another program on this node, durably, as a dead incarnation of this agent from now on.
  /// fence_dead() fences it, and its lock may be broken. `address`: from ownership().
  virtual task<result<>> inherit(Access access, std::string address, Until until) = 0;
  /// not_found: that very image is gone.
  virtual task<result<Header>> header(Access access, Key key, Until until) = 0;
  /// Whether the user may change that image's header, as a writer must. It changes nothing. permission_denied: it may
  /// not.
  virtual task<result<>> may_write(Access, Key, Until) { co_return result<>(); }
  /// Checks, on a client of its own, whether the user may read that image's header and, if `writes`, change it. A new
  /// client has the present rights; it ends at once.
  virtual task<result<>> may_serve_anew(Access, Key, bool /*writes*/, Until) { co_return result<>(); }
  /// Returns why writes to that pool wait, and what to do, if the monitors call it full. Nothing: it is not full. An
  /// error: they did not answer, which says nothing about the pool.
  virtual task<result<std::optional<std::string>>> why_full(Access, std::int64_t /*pool_id*/, Until) {
    co_return std::nullopt;
  }
  /// Returns the fsid of the cluster that had these monitors at the last connection. Nothing: there was none.
  virtual std::optional<std::string> fsid_of(const std::vector<std::string>& /*monitors*/) const {
    return std::nullopt;
  }
  /// Opens by identity: pool ID, namespace and image ID come from the key. not_found: that very image is gone.
  /// unsafe_config: the effective configuration would acknowledge writes before they are stored, or another client's
  /// persistent cache has writes that are not stored. failed_precondition: the mirror of another cluster's image, or a
  /// feature that refuse() of features.hpp names. pool_full: it was not opened in time, because the pool is full.
  virtual task<result<std::unique_ptr<Image>>> open(Access access, Key key, OpenOptions options, Until until) = 0;
  /// Returns every client that has an image of that pool and namespace open, by its watch. Asks for one image after the
  /// other.
  virtual task<result<ImageUsers>> users(Access access, std::int64_t pool_id, std::string ns, Until until) = 0;
  /// Returns the cluster's blocklist, as its monitors have it now.
  virtual task<result<Blocklist>> blocklist(Access access, Until until) = 0;
  /// Blocks each entry for that long from now, by the monitors' clock. An existing entry of the same target keeps its
  /// end; a wider entry does not count. If that end is too early (is_long_enough()), this agent or the next one here
  /// blocks a client again after it; for a host or a range the answer is failed_precondition. The `until` of `entries`
  /// does not count. The answers are in the same order. When it returns, every connection of this agent to the cluster
  /// has the OSD map with those that succeeded. unimplemented: the monitors do not know ranges. A caller that leaves
  /// early learns no answer; the work goes on.
  virtual task<result<std::vector<result<>>>> block(Access access, std::vector<BlocklistEntry> entries,
                                                    std::chrono::seconds duration, Until until) = 0;
  /// Removes entries in the same way. A missing entry is no error.
  virtual task<result<std::vector<result<>>>> unblock(Access access, std::vector<BlocklistEntry> entries,
                                                      Until until) = 0;
  /// Ends every client of this agent that the blocklist refuses, as if the client had noticed, and blocklists each by
  /// an entry of its own, as fence_dead() does. It also works while the cluster has fenced this node.
  virtual task<result<OwnClients>> end_refused(Access, Until) {
    co_return Error{errc::unimplemented, "these clients have no end"};
  }
  /// Returns an option of Ceph as the connection has it: from ceph.conf, from the cluster (`ceph config`), or from the
  /// access. Empty: it is not set, or unknown.
  virtual task<result<std::string>> setting(Access, std::string /*name*/, Until) { co_return std::string(); }
  /// Makes connections with room for that many images, so that open() need not. They leave nothing behind, because the
  /// preparing agent may never serve.
  virtual task<result<>> prepare(Access, std::size_t /*images*/, Until) { co_return result<>(); }
  /// Retires connections: unused ones end, and the next caller gets a new one if no other is left.
  virtual void retire(const Access&) {}
  /// Retires also those that serve images. They end with their last image.
  virtual void retire_all(const Access&) {}
  /// Returns why a connected user may not fence dead clients, and the way out. Nothing: it may, as far as the monitors
  /// say.
  virtual std::optional<std::string> cannot_fence(const Access&) const { return std::nullopt; }
  /// Writes now what open() would write about each prepared connection. Call it when this agent is about to serve, and
  /// alone writes into the state directory.
  virtual task<> record_prepared(Until) { co_return; }
  /// Reads again which clients the predecessor has, for an agent that runs beside it and gets its images one by one. As
  /// long as the predecessor has not `ended`, a client of it counts as ended for each image that it has closed: its
  /// lock may be broken, and nobody fences it. On an error its clients are unknown. If it has `ended`, no image is
  /// opened until a later reading succeeds; it is repeated with growing pauses.
  virtual task<result<>> reload_predecessor_clients(bool /*ended*/) { co_return result<>(); }
  /// Closes idle connections and marks their incarnations clean. Call it after all images are closed.
  /// `users`: how long to wait for images and calls that still use a connection; busy if some are left.
  virtual task<result<>> shutdown(Until until, Until users) = 0;
  task<result<>> shutdown(Until until) { return shutdown(until, until); }
};

}  // namespace corbd::image
