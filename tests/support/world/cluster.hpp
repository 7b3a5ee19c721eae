// A fake cluster: images with their data, watches and locks. Those of dead clients stay until they are fenced and
// broken. tests/support/cluster_contract.hpp checks the behaviour that the agent relies on, on this cluster and on real
// ones.
//
// A real cluster differs as follows:
// - It has snapshots, clones and namespaces. Here an image is six blocks, and a feature is a bit without its effect.
// - Each OSD has an OSD map of its own. Here all of them refuse a client at one moment.
// - A placement group may hang alone. Here the whole cluster answers, is slow or is silent, or all data hang.
// - librbd takes the lock before a first write, and waits for an owner that lives. Here only the ports take it.
// - A client may watch an image twice, and has an address for each messenger.
// - Tickets end one by one, an hour after they were given (auth_service_ticket_ttl), and matter only for the next
//   connection to an OSD. Here all of a client end at one moment, with all its connections. As there, the client is
//   told nothing: librados asks the monitors for new ones again and again (MonClient::_check_auth_tickets), each OSD
//   refuses the connection (cephx_verify_authorizer finds no service secret for the old ticket), and librados connects
//   again. A test may have it so for one image's data. An agent goes on using its client of a removed user; here a call
//   for a volume of that user is refused at once, and only what uses an open image gets no answer.
// - A user has caps for pools and commands. Here it may do everything, read, or nothing.
// - Monitors know blocks of addresses, and who may fence. tests/lab/fence_lab.cpp has that, and users().
// - Clearing the blocklist removes every entry, whatever is still under way. Here entries stay for clients that could
//   then overwrite others' writes: no agent prevents that.
// This one is stricter too. A test fails if an agent opens an image before its dead clients are fenced, breaks the lock
// of a client that is not cut off, writes an image with a feature of a newer librbd, or removes an entry. A real one
// refuses or obeys.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/secret.hpp"
#include "corbd/host/luks.hpp"
#include "corbd/host/values.hpp"
#include "corbd/image/values.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;
class FakeOpened;
struct Hazards;
struct Work;  ///< an operation of an image on its way through the cluster

inline constexpr std::size_t kBlocks = 6;  ///< blocks of an image that are written and compared
inline constexpr std::uint64_t kBlockBytes = 4096;
/// Plays rbd_mtime_update_interval.
inline constexpr std::chrono::seconds kStampsEvery{60};
inline constexpr std::chrono::seconds kWatch{30};  ///< time that a watch outlives the last sign of its client
/// A client without tickets tries its connections again.
inline constexpr std::chrono::seconds kConnectsAgain{5};
/// Time for which an agent has a client blocklisted.
inline constexpr std::chrono::hours kForGood{7 * 24};

/// A LUKS header: the key of each slot. Without any its format did not end.
struct FakeLuks {
  std::map<int, std::string> keys;
  std::string passphrase;                          ///< passphrase of its format
  bool integrity = false;                          ///< its mapping lies on one of dm-integrity
  std::uint32_t memory_kib = host::kKeyMemoryKib;  ///< memory for trying a key
};
/// An encrypted folder of a filesystem, and the secret that opens it.
struct FakeFolder {
  std::string secret;
  bool passphrase = false;
};
inline constexpr std::uint64_t kLuksHeader = 16 << 20;  ///< bytes
inline constexpr std::uint64_t kLuksTags = 64 << 20;    ///< bytes that integrity takes

/// Visit number of a link whose client is cut off when the link is made.
inline constexpr std::uint64_t kNoVisit = ~std::uint64_t{0};

struct FakeImage {
  std::string id;
  std::int64_t pool_id = 1;
  std::uint64_t size = 1 << 30;
  bool exclusive = true;
  std::uint64_t features = 5;  ///< layering and exclusive-lock
  static constexpr std::uint64_t kJournaling = 64;
  static constexpr std::uint64_t kDirtyCache = 1 << 11;  ///< another client's persistent cache has its newest writes
  bool caches_before_flush = false;                      ///< its metadata: rbd_cache_writethrough_until_flush is false
  image::ReadPolicy reads{};                             ///< its metadata
  bool cached = false;                                   ///< its metadata: rbd_cache is true
  bool shared = false;                                   ///< many nodes write: the lock goes to the writer
  bool secondary = false;                                ///< a mirror of another cluster's image
  std::string lock_owner;                                ///< client address; "" = free
  int lock_handle = 0;        ///< open image of that client that has it, as its cookie tells; 0: any
  std::string late_owner;     ///< last locker, if it took the lock so long after its look that the lock proves nothing,
                              ///< or has not heard when it took it (docs/proof-of-ownership.md#a-lock-that-comes-late)
  bool lock_by_hand = false;  ///< made by `rbd lock add`: its owner needs no watch
  std::string writer;         ///< without exclusive-lock: the client whose mark it has; "" = none
  int writer_handle = 0;      ///< open image of that client with the mark; 0: any
  bool writer_signs = true;   ///< signed with the key of the volume
  std::set<std::string> watchers;
  /// The client that keeps the lock for the next agent, or did: it watches for that, whatever it has open.
  std::string lock_watcher;
  static constexpr int kKept = -1;  ///< for lock_handle and writer_handle: left by an image that is closed, or closes
  /// Whether the owner lives in librbd's view (BreakRequest): the lock has the cookie of a watch of its owner.
  bool owner_lives() const {
    return !lock_owner.empty() && (lock_handle == kKept ? lock_watcher == lock_owner : watchers.contains(lock_owner));
  }
  void lock_by(const std::string& client) { lock_owner = client, lock_handle = 0; }
  bool is_watched() const { return !watchers.empty() || !lock_watcher.empty(); }
  std::uint64_t version = 1;    ///< version of the header
  std::int64_t break_time = 0;  ///< the header's time of change
  void changed(std::int64_t left = 0) {
    ++version;
    break_time = left;
  }
  std::uint64_t modified = 1;  ///< its modify timestamp, in nanoseconds
  std::map<std::string, std::string> metadata;
  bool data = false;                  ///< any extent allocated
  bool counts_used = false;           ///< its features allow to count `used`
  std::optional<std::uint64_t> used;  ///< bytes stored for it, by its object map; nothing: the map is not valid
  bool only_formatted = false;        ///< all its data come from a format
  host::Probe::Kind content = host::Probe::Kind::nothing;
  std::string fstype;
  std::optional<FakeLuks> luks;        ///< its header; content and fstype then describe the opened mapping
  bool encrypts = false;               ///< its filesystem can encrypt a folder
  std::optional<FakeFolder> folder;    ///< the encrypted folder
  bool folder_begun = false;           ///< metadata of an encrypted folder are there
  bool plain_files = false;            ///< that folder is not encrypted, and holds files
  std::uint64_t filesystem_bytes = 0;  ///< 0: as large as the image
  int growths = 0, trims = 0;          ///< counts of its filesystem
  std::uint64_t generation = 0;        ///< counts formats: a second one destroyed data
  int checks = 0;                      ///< fsck runs
  bool beyond_repair = false;          ///< fsck leaves errors
  int inspections = 0;                 ///< checks that an operator asked for

  std::array<std::uint64_t, kBlocks> blocks{};  ///< last written number of each block
  /// The number that an application was told is stored, on any node with an agent; 0 once a played node wrote there.
  std::array<std::uint64_t, kBlocks> acked{};
  std::set<std::uint64_t> stored;                        ///< every number that an application wrote
  std::uint64_t visits = 0;                              ///< how often another node than before began to write
  std::string served_by;                                 ///< node whose agent did so last
  std::uint64_t our_break = 0;                           ///< version that breaking our own dead lock made
  std::optional<time_point> taken;                       ///< since when another node than before may have it,
  std::string taken_by;                                  ///< and which one, if that has an agent
  std::string locked_at;                                 ///< last node whose agent took its lock
  std::map<std::string, std::set<std::string>> seen_by;  ///< other clients that had it open at a node's last look
  std::set<std::string> taken_from;                      ///< those of them when that agent began to write to it
};

class Cluster {
 public:
  explicit Cluster(Loop& loop) : loop_(loop) {}
  void joined(World& node) { nodes_.push_back(&node); }
  Hazards* hazards = nullptr;  ///< its own; unset: those of its first node

  std::map<std::string, FakeImage> images;  ///< by name
  std::map<std::int64_t, std::string> pools{{1, "pool"}};
  /// A provisioner's journals, by pool and uuid: the keys of the omap.
  std::map<std::pair<std::int64_t, std::string>, std::map<std::string, std::string>> journals;
  /// Clients, by their very addresses, and when each entry ends; also entries that have ended.
  std::map<std::string, time_point> blocklisted;
  std::map<std::string, time_point> renewed;  ///< entries that an agent keeps blocked, and until when
  std::set<std::string> living;         ///< other nodes' clients that nobody may cut off, unless their host is fenced
  std::set<std::string> ended;          ///< clients that ended cleanly: nothing of them arrives any more
  std::set<std::string> fenced_hosts;   ///< hosts whose every client is blocked, by the monitors
  std::set<std::string> options_asked;  ///< options of Ceph, "name=value", by any connection
  std::map<std::string, Secret> users{{"node", Secret("canary-key")}};  ///< all others are refused
  std::map<std::string, std::string> sessions;                          ///< the user that a client has authenticated as
  std::set<std::string> ticketless;  ///< clients that ask on, and get no answer to anything
  /// Clients that get no answer about an image's data, whose OSDs alone they connected to again.
  std::set<std::pair<std::string, std::string>> deaf_for;
  std::set<std::string> denied;                     ///< clients that continue without the rights of their user
  std::set<std::string> retired;                    ///< clients on which nothing begins any more
  std::map<std::string, std::string> cannot_fence;  ///< reason, by user
  std::set<std::string> without_caps;               ///< users that may connect, but open no image
  std::set<std::string> readers;                    ///< users that may open images, but change none
  std::string default_map_options;                  ///< rbd_default_map_options
  bool pools_cache = false;                         ///< the pools' metadata: rbd_cache is true. No client is told

  /// State of a volume in a KMS outside of the cluster, by its ID.
  struct KeptKey {
    std::string key;
    std::uint64_t version = 1;
  };
  std::map<std::string, KeptKey> kept_keys;
  std::set<std::string> asked_as;  ///< tenants that its callers named
  /// Answers of its standby, which lags behind; unset: nobody asks one.
  std::optional<std::map<std::string, KeptKey>> standby_keys;
  bool kms_silent = false;  ///< it answers nothing, and carries requests out later
  bool dead = false;
  bool data_hang = false;             ///< the placement groups of all data are down; everything else is answered
  std::set<std::int64_t> full_pools;  ///< writes to them wait, as does an open for writing
  duration slow{};
  int odd_error = 0;  ///< errno with which OSDs answer every read and write, without effect
  /// Duration of an entry that names no time, as librbd and the kernel make it when they break a lock:
  /// mon_osd_blocklist_default_expire.
  duration default_expiry = std::chrono::hours(1);
  duration monitors_ahead{};  ///< relative to the nodes' clocks

  FakeImage* by_id(const std::string& image_id);
  /// Refuses a user that was removed differently from a wrong key.
  result<> knows(const std::string& user, const Secret& key) const;
  void revive();
  /// Ends those of each client whose user was removed.
  void end_tickets();
  /// Whether an image is open. One that a client without tickets never closes does not count,
  /// if that is fenced or only reads.
  bool has_open_images() const;
  /// Renews those of each client whose user is there again.
  void renew_tickets();
  /// Stamps the image as a writing client of librbd other than ours does: no more than once in a minute.
  void stamp(FakeImage& image) const;
  /// Whether such a client would stamp it now.
  bool would_stamp(const FakeImage& image) const;
  std::uint64_t clock_of_osds() const;
  /// Adds an entry. An existing one keeps its end.
  void blocklist(const std::string& address, duration lasts = kForGood);
  /// Keeps a client blocked as an agent does, which adds the entry again when an existing one ends. Here that happens
  /// without a gap, and even if the agent is dead then.
  void keep_blocked(const std::string& address, duration lasts);
  /// Removes the entry of each client of a node with an agent, as `ceph osd blocklist rm` does. It keeps the entry of a
  /// client that could then overwrite another's writes: only the person who removes entries can know that, and
  /// docs/runbook.md says not to.
  void take_entries_away();
  /// Does the same, that long after the next entry.
  std::optional<duration> entries_go_in;
  /// Advances the time of entries alone.
  void entries_age(duration by);
  /// Whether an entry of its own refuses that client now.
  bool has_entry(const std::string& address) const;
  /// Whether it had one, which somebody took away since that agent may have learned of it.
  bool had_entry(const std::string& address, const World& agent) const;
  /// Returns the clients that an entry of their own refuses now.
  std::set<std::string> cut_off_clients() const;
  /// Blocklists every client of that host, including future ones. OSDs refuse them once they have the map that says so:
  /// after that time, or with the next entry for a client.
  void fence_host(const std::string& host, duration osds_know_in = {});
  /// Unblocks the host. A client with an entry of its own stays blocklisted.
  void unfence_host(const std::string& host);
  /// Whether OSDs refuse that client's requests.
  bool refuses(const std::string& address) const;
  void remove_image(const std::string& name);
  void resized(const std::string& image_id);
  /// Prepares an image for encryption as a provisioner does; one with a filesystem as after its first stage, with the
  /// filesystem inside.
  void provision_encrypted(const std::string& image, const std::string& kms_id);
  /// Whether an image whose metadata call it encrypted has a key slot that opens with the key of its KMS, and an
  /// encrypted folder with the key that a KMS keeps. True for every other.
  bool opens(const std::string& image) const;
  /// Completes, as another node's agent, the encryption that was begun.
  void finish_encryption(FakeImage& image);

  // Actions of other nodes.
  /// Opens the image on another node and writes into some blocks, only as the cluster allows: the lock is free or its
  /// owner's watch has expired; `by_force`: an operator has our client blocklisted first. False: it was refused.
  bool visit(FakeImage& image, const std::string& visitor, bool by_force);
  void leave(FakeImage& image, const std::string& visitor, bool cleanly);
  /// Opens the image and takes its lock for a tool of the cluster's (a flatten, a resize), as far as the cluster
  /// allows; it writes no data of the volume. False: the cluster did not allow it.
  bool maintain(FakeImage& image, const std::string& by);
  /// Delivers a write of another node's client that was under way for long. The exclusive lock is advisory: only the
  /// blocklist stops it.
  void late_write(const std::string& image_id, const std::string& by);
  /// Lets another node's agent wait for the image: it opens it for `looks`, and closes it again as long as another
  /// client has it open, until it gets it.
  void other_agent_waits(const std::string& image, const std::string& by,
                         duration looks = std::chrono::milliseconds(200));
  /// Ends the wait: the volume was detached there.
  void other_agent_gives_up(const std::string& by) { waiting_agents_.erase(by); }
  std::set<std::string> other_agents;  ///< those that got their image

  // Used by the ports.
  void submit(Work work);
  /// Holds work that the dead cluster will do once it lives.
  void hold(std::function<void()> work) { held_.push_back(std::move(work)); }
  void expire_watches(std::set<std::string> of);
  void end_watches_of(const std::string& host);
  /// Ends the lock watch of an agent whose next one has the lock.
  void end_lock_watch(const std::string& image_id, const std::string& client);
  /// A node can be reached again: its agent learns which of its clients are cut off, and the others watch anew.
  void watch_again(const World& node);
  /// Returns since when another node has it than that one.
  std::optional<time_point> lost_since(const std::string& image_id, const std::string& node) const;
  bool may_write(const FakeImage& image, const std::string& address) const;
  std::map<int, FakeOpened*> opened;  ///< in this life of each node's agent
  /// Makes a number for a link, an open image or a mount.
  int new_serial() { return ++serials_; }
  /// Makes a number for a write into a block.
  std::uint64_t new_number() { return ++numbers_; }

 private:
  void run_work(Work work);
  void osds_get_map();
  void end_watches(const std::function<bool(const std::string& client)>& of);
  void cut_off(const std::function<bool(const std::string& client)>& is_cut_off);
  void look_whether_it_hands_over(const FakeImage& image);
  void stored(const Work& work, FakeImage& image);
  void other_agent_looks(const std::string& image, const std::string& by, duration looks);
  /// Tells it soon, unless it cannot be reached.
  void tell_cut_off(int serial, const World& node);
  /// Returns the node whose agent has that client; nullptr: none.
  World* node_of(const std::string& client) const;
  Hazards* hazards_now() const;
  void trace(const std::string& event) const;
  void broke(std::string rule);

  Loop& loop_;
  std::vector<World*> nodes_;  ///< nodes with an agent
  int serials_ = 0;
  std::uint64_t numbers_ = 0;
  std::set<std::string> waiting_agents_;  ///< other nodes' agents that have not got their image yet
  std::set<std::string> refused_hosts_;   ///< fenced hosts, as the OSDs know them
  std::vector<std::function<void()>> held_;
  std::map<std::string, int> under_way_;  ///< reads and writes, by their client
  /// Clients whose entry somebody took away, and no further one came since; with the agents that ran then, by their
  /// node and life.
  std::map<std::string, std::set<std::pair<const World*, int>>> taken_away_;
  std::map<std::string, time_point> removed_;  ///< images by id
};

}  // namespace corbd::test
