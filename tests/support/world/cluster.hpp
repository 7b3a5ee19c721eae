// The cluster: it keeps images, their data, watches and locks. Those of dead clients stay until they are fenced and
// broken. What the agent relies on is checked of this cluster and of real ones alike:
// tests/support/cluster_contract.hpp.
//
// What a real one does that this one does not:
// - It has snapshots, clones and namespaces. Here an image is six blocks, and a feature is a bit without its effect.
// - Each OSD has an OSD map of its own. Here all of them refuse a client at one moment.
// - A placement group may hang alone. Here the whole cluster answers, is slow or is silent.
// - librbd takes the lock before a first write, and waits for an owner that lives. Here only the ports take it.
// - A client may watch an image twice, has an address for each messenger, and its ticket expires.
// - A user has caps for pools and commands. Here it may do everything, read, or nothing.
// - Monitors know blocks of addresses, and who may fence. tests/lab/fence_lab.cpp has that, and users().
// - Whoever clears the blocklist takes every entry away, whatever is still under way. Here entries stay of clients that
//   could then overwrite what others wrote: no agent prevents that.
// This one is stricter too. Who opens an image before its dead clients are fenced, breaks the lock of a client that is
// not cut off, writes an image with a feature of a newer librbd, or takes an entry away, has broken a rule, which a
// test fails for. A real one refuses or obeys.
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

inline constexpr std::size_t kBlocks = 6;  ///< of an image that are written and looked at
inline constexpr std::uint64_t kBlockBytes = 4096;
/// rbd_mtime_update_interval
inline constexpr std::chrono::seconds kStampsEvery{60};
inline constexpr std::chrono::seconds kWatch{30};  ///< outlives the last sign of its client
/// How long an agent has a client blocklisted.
inline constexpr std::chrono::hours kForGood{7 * 24};

/// A LUKS header: what opens each key slot. Without any its format did not end.
struct FakeLuks {
  std::map<int, std::string> keys;
  std::string passphrase;                          ///< that it was formatted with
  bool integrity = false;                          ///< its mapping lies on one of dm-integrity
  std::uint32_t memory_kib = host::kKeyMemoryKib;  ///< to try a key
};
/// An encrypted folder of a filesystem, and what opens it.
struct FakeFolder {
  std::string secret;
  bool passphrase = false;
};
inline constexpr std::uint64_t kLuksHeader = 16 << 20;  ///< bytes
inline constexpr std::uint64_t kLuksTags = 64 << 20;    ///< bytes that integrity takes

/// Of a link whose client is cut off when the link is made.
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
  bool shared = false;                                   ///< many write: the lock goes to whoever writes
  bool secondary = false;                                ///< the mirror of another cluster's
  std::string lock_owner;                                ///< client address; "" = free
  int lock_handle = 0;        ///< which of that client's open images has it, as its cookie tells; 0: any
  bool lock_by_hand = false;  ///< by `rbd lock add`: its owner needs no watch
  std::string writer;         ///< without exclusive-lock: the client whose mark is there; "" = none
  int writer_handle = 0;      ///< which of that client's open images left it; 0: any
  bool writer_signs = true;   ///< with the key of the volume
  std::set<std::string> watchers;
  /// The client that has kept the lock for the next agent, or had: it watches for that, whatever it has open.
  std::string lock_watcher;
  static constexpr int kKept = -1;  ///< as lock_handle and writer_handle: left by an image that is closed, or closes
  /// As librbd sees it (BreakRequest): the lock has the cookie of a watch of its owner.
  bool owner_lives() const {
    return !lock_owner.empty() && (lock_handle == kKept ? lock_watcher == lock_owner : watchers.contains(lock_owner));
  }
  void lock_by(const std::string& client) { lock_owner = client, lock_handle = 0; }
  bool is_watched() const { return !watchers.empty() || !lock_watcher.empty(); }
  std::uint64_t version = 1;    ///< of the header
  std::int64_t break_time = 0;  ///< of the header: its time of change
  void changed(std::int64_t left = 0) {
    ++version;
    break_time = left;
  }
  std::uint64_t modified = 1;  ///< its modify timestamp, in nanoseconds
  std::map<std::string, std::string> metadata;
  bool data = false;            ///< any extent allocated
  bool only_formatted = false;  ///< what data there is comes from a format
  host::Probe::Kind content = host::Probe::Kind::nothing;
  std::string fstype;
  std::optional<FakeLuks> luks;        ///< its header; content and fstype are then of what it opens to
  bool encrypts = false;               ///< its filesystem can encrypt a folder
  std::optional<FakeFolder> folder;    ///< the encrypted one
  bool folder_begun = false;           ///< metadata of an encrypted folder are there
  bool plain_files = false;            ///< that folder is not encrypted, and holds files
  std::uint64_t filesystem_bytes = 0;  ///< 0: as large as the image
  int growths = 0, trims = 0;          ///< of its filesystem
  std::uint64_t generation = 0;        ///< counts formats: a second one destroyed data
  int checks = 0;                      ///< fsck runs
  bool beyond_repair = false;          ///< fsck leaves errors

  std::array<std::uint64_t, kBlocks> blocks{};  ///< the number last written to each
  /// The number that an application was told is stored, on whichever node with an agent; 0 once a played node wrote
  /// there.
  std::array<std::uint64_t, kBlocks> acked{};
  std::set<std::uint64_t> stored;                        ///< every number that an application's write brought
  std::uint64_t visits = 0;                              ///< how often another node than before began to write
  std::string served_by;                                 ///< the node whose agent did so last
  std::uint64_t our_break = 0;                           ///< the version that breaking our own dead lock made
  std::optional<time_point> taken;                       ///< since when another node may have it than before,
  std::string taken_by;                                  ///< and which, if that one has an agent
  std::string locked_at;                                 ///< the last node whose agent took its lock
  std::map<std::string, std::set<std::string>> seen_by;  ///< other clients that had it open, as a node's agent saw last
  std::set<std::string> taken_from;                      ///< of those, when that agent began to write to it
};

class Cluster {
 public:
  explicit Cluster(Loop& loop) : loop_(loop) {}
  void joined(World& node) { nodes_.push_back(&node); }
  Hazards* hazards = nullptr;  ///< its own; unset: those of its first node

  std::map<std::string, FakeImage> images;  ///< by name
  std::map<std::int64_t, std::string> pools{{1, "pool"}};
  /// A provisioner's, by pool and uuid: the keys of its omap.
  std::map<std::pair<std::int64_t, std::string>, std::map<std::string, std::string>> journals;
  /// Clients, by their very addresses, and when each entry ends; also entries that have ended.
  std::map<std::string, time_point> blocklisted;
  std::map<std::string, time_point> renewed;  ///< those that an agent keeps blocked, and until when
  std::set<std::string> living;         ///< other nodes' clients that nobody may cut off, unless their host is fenced
  std::set<std::string> ended;          ///< clients that ended well: nothing of them arrives any more
  std::set<std::string> fenced_hosts;   ///< every client there, as the monitors have it
  std::set<std::string> options_asked;  ///< of Ceph, "name=value", by any connection
  std::map<std::string, Secret> users{{"node", Secret("canary-key")}};  ///< all others are refused
  std::set<std::string> denied;                     ///< clients that go on without the rights of their user
  std::set<std::string> retired;                    ///< clients on which nothing begins any more
  std::map<std::string, std::string> cannot_fence;  ///< why not, by user
  std::set<std::string> without_caps;               ///< users that may connect, and open no image
  std::set<std::string> readers;                    ///< users that may open images, and change none
  std::string default_map_options;                  ///< rbd_default_map_options
  bool pools_cache = false;                         ///< the pools' metadata: rbd_cache is true. No client is told

  /// What a KMS outside of the cluster keeps of a volume, by its ID.
  struct KeptKey {
    std::string key;
    std::uint64_t version = 1;
  };
  std::map<std::string, KeptKey> kept_keys;
  std::set<std::string> asked_as;  ///< tenants, as its askers said
  /// What its standby answers, which lags behind; unset: nobody asks one.
  std::optional<std::map<std::string, KeptKey>> standby_keys;
  bool kms_silent = false;  ///< it answers nothing, and does later what it was told
  bool dead = false;
  duration slow{};
  int odd_error = 0;  ///< errno with which OSDs answer every read and write, and do nothing
  /// Of an entry that names no time, as of librbd and the kernel when they break a lock:
  /// mon_osd_blocklist_default_expire.
  duration default_expiry = std::chrono::hours(1);
  duration monitors_ahead{};  ///< of the nodes' clocks

  FakeImage* by_id(const std::string& image_id);
  /// A user that was removed is another refusal than a wrong key.
  result<> knows(const std::string& user, const Secret& key) const;
  void revive();
  /// A client of librbd other than ours writes: it stamps the image no more than once in a minute.
  void stamp(FakeImage& image) const;
  /// Whether such a client would stamp it now.
  bool would_stamp(const FakeImage& image) const;
  std::uint64_t clock_of_osds() const;
  /// An entry that is there keeps its end.
  void blocklist(const std::string& address, duration lasts = kForGood);
  /// As an agent has it done: it adds the entry again when one that was there ends. That is done here without a moment
  /// in between, and whether or not the agent lives then.
  void keep_blocked(const std::string& address, duration lasts);
  /// As `ceph osd blocklist rm` of each client of a node with an agent. Not of one that could write then what another
  /// one has overwritten: nobody but who takes the entry away can know that, and docs/runbook.md says not to.
  void take_entries_away();
  /// The same, that long after the next entry.
  std::optional<duration> entries_go_in;
  /// So much time passes for the entries alone.
  void entries_age(duration by);
  /// Whether an entry of its own refuses that client now.
  bool has_entry(const std::string& address) const;
  /// Whether it had one, which somebody took away.
  bool had_entry(const std::string& address) const { return taken_away_.contains(address); }
  /// Those that an entry of their own refuses now.
  std::set<std::string> cut_off_clients() const;
  /// Every client of that host is blocklisted, those to come too. OSDs go by it once they have the map that says so:
  /// after that time, or with the next entry for a client.
  void fence_host(const std::string& host, duration osds_know_in = {});
  /// Who has an entry of its own stays blocklisted.
  void unfence_host(const std::string& host);
  /// Whether OSDs refuse what that client asks.
  bool refuses(const std::string& address) const;
  void remove_image(const std::string& name);
  void resized(const std::string& image_id);
  /// As a provisioner leaves an image that is to be encrypted; one with a filesystem as its first stage left it, the
  /// filesystem inside.
  void provision_encrypted(const std::string& image, const std::string& kms_id);
  /// Whether an image whose metadata call it encrypted has a key slot that opens with the key of its KMS, and an
  /// encrypted folder with the key that a KMS keeps. True of every other.
  bool opens(const std::string& image) const;
  /// Another node's agent ends the encryption that was begun.
  void finish_encryption(FakeImage& image);

  // Other nodes.
  /// Another node opens the image and writes into some blocks. Only as the cluster allows: the lock is free or its
  /// owner's watch has expired; `by_force`: an operator has our client blocklisted first. False: it was refused.
  bool visit(FakeImage& image, const std::string& visitor, bool by_force);
  void leave(FakeImage& image, const std::string& visitor, bool cleanly);
  /// A tool of the cluster's (a flatten, a resize) has the image open and its lock, as far as the cluster allows; it
  /// writes nothing of the volume's. False: the cluster did not allow it.
  bool maintain(FakeImage& image, const std::string& by);
  /// A write of another node's client that was on its way for long. The exclusive lock is advisory: only the blocklist
  /// stops it.
  void late_write(const std::string& image_id, const std::string& by);
  /// Another node's agent wants the image: it opens it for `looks`, and closes it again as long as somebody else has it
  /// open, until it has it.
  void other_agent_waits(const std::string& image, const std::string& by,
                         duration looks = std::chrono::milliseconds(200));
  /// Its volume was detached there: it asks no more.
  void other_agent_gives_up(const std::string& by) { waiting_agents_.erase(by); }
  std::set<std::string> other_agents;  ///< those that got their image

  // For the ports.
  void submit(Work work);
  /// What the dead cluster will do once it lives.
  void hold(std::function<void()> work) { held_.push_back(std::move(work)); }
  void expire_watches(std::set<std::string> of);
  void end_watches_of(const std::string& host);
  /// Of an agent whose next one has the lock.
  void end_lock_watch(const std::string& image_id, const std::string& client);
  /// A node can be reached again: its agent hears of its clients that are cut off, and the others watch anew.
  void watch_again(const World& node);
  /// Since when another node has it than that one.
  std::optional<time_point> lost_since(const std::string& image_id, const std::string& node) const;
  bool may_write(const FakeImage& image, const std::string& address) const;
  std::map<int, FakeOpened*> opened;  ///< of this life of each node's agent
  /// Of a link, an open image, a mount.
  int new_serial() { return ++serials_; }
  /// What a write into a block puts there.
  std::uint64_t new_number() { return ++numbers_; }

 private:
  void run_work(Work work);
  void osds_get_map();
  void end_watches(const std::function<bool(const std::string& client)>& of);
  void cut_off(const std::function<bool(const std::string& client)>& is_cut_off);
  void look_whether_it_hands_over(const FakeImage& image);
  void stored(const Work& work, FakeImage& image);
  void other_agent_looks(const std::string& image, const std::string& by, duration looks);
  /// Soon, unless nobody can tell it.
  void tell_cut_off(int serial, const World& node);
  /// The node whose agent has that client; nullptr: none has.
  World* node_of(const std::string& client) const;
  Hazards* hazards_now() const;
  void trace(const std::string& event) const;
  void broke(std::string rule);

  Loop& loop_;
  std::vector<World*> nodes_;  ///< those with an agent
  int serials_ = 0;
  std::uint64_t numbers_ = 0;
  std::set<std::string> waiting_agents_;  ///< other nodes', that have not got their image yet
  std::set<std::string> refused_hosts_;   ///< fenced ones, as the OSDs have it
  std::vector<std::function<void()>> held_;
  std::map<std::string, int> under_way_;       ///< reads and writes, by their client
  std::set<std::string> taken_away_;           ///< clients whose entry somebody took away
  std::map<std::string, time_point> removed_;  ///< images by id
};

}  // namespace corbd::test
