// A node and a cluster that obey the rules of the real ones, for running the whole control plane on a virtual clock:
// the kernel keeps devices, requests and mounts when the agent dies, the cluster keeps locks of dead clients until they
// are fenced and broken. One file for each outside thing: world_cluster, world_image, world_kernel, world_devices,
// world_host, world_store.
#pragma once

#include <array>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/volume/shell.hpp"
#include "support/loop.hpp"

namespace corbd::test {

inline constexpr std::size_t kBlocks = 6;  ///< of an image that are written and looked at
inline constexpr std::uint64_t kBlockBytes = 4096;

/// A LUKS header: what opens each key slot. Without any its format did not end.
struct FakeLuks {
  std::map<int, std::string> keys;
  std::string passphrase;  ///< that it was formatted with
};
inline constexpr std::uint64_t kLuksHeader = 16 << 20;  ///< bytes

struct FakeImage {
  std::string id;
  std::int64_t pool_id = 1;
  std::uint64_t size = 1 << 30;
  bool exclusive = true;
  std::uint64_t features = 5;  ///< layering and exclusive-lock
  bool shared = false;         ///< many write: the lock goes to whoever writes
  bool secondary = false;      ///< the mirror of another cluster's
  std::string lock_owner;      ///< client address; "" = free
  int lock_handle = 0;         ///< which of that client's open images has it, as its cookie tells; 0: any
  std::set<std::string> watchers;
  std::uint64_t version = 1;    ///< of the header
  std::int64_t break_mark = 0;  ///< of the header: its time of change
  void changed(std::int64_t left = 0) {
    ++version;
    break_mark = left;
  }
  std::map<std::string, std::string> metadata;
  bool data = false;            ///< any extent allocated
  bool only_formatted = false;  ///< what data there is comes from a format
  host::Probe::Kind content = host::Probe::Kind::nothing;
  std::string fstype;
  std::optional<FakeLuks> luks;        ///< its header; content and fstype are then of what it opens to
  std::uint64_t filesystem_bytes = 0;  ///< 0: as large as the image
  int growths = 0, trims = 0;          ///< of its filesystem
  std::uint64_t generation = 0;        ///< counts formats: a second one destroyed data
  int checks = 0;                      ///< fsck runs
  bool beyond_repair = false;          ///< fsck leaves errors

  std::array<std::uint64_t, kBlocks> blocks{};  ///< the number last written to each
  std::array<std::uint64_t, kBlocks>
      acked{};                  ///< the number that the application was told is stored; 0 once another node wrote there
  std::uint64_t visits = 0;     ///< of other nodes that wrote
  std::uint64_t our_break = 0;  ///< the version that breaking our own dead lock made
  std::optional<time_point> taken;  ///< since when another node may have it
};

/// A block request of the application, until it is answered.
struct KernelRequest {
  std::uint64_t id = 0;
  bool write = true;
  std::size_t block = 0;
  std::uint64_t number = 0;  ///< written; for a read: what the block held for certain when it was asked
  int sent_on = 0;           ///< link; 0: waits for one
};

struct KernelDevice {
  device::Kind kind = device::Kind::nbd;
  std::uint32_t index = 0;
  std::string image_name;  ///< of krbd: by which it was mapped
  std::string backend;
  std::string image_id;  ///< of what serves it
  std::uint64_t size = 0;
  bool alive = false;
  bool disconnected = false;  ///< it takes no link any more, and is there as long as somebody has it open
  int openers = 0;            ///< programs that have it open without using it
  bool read_only = false;
  bool trim = true;
  std::uint64_t dead_conn_timeout_s = 0;
  std::uint32_t io_timeout_ms = 30000;
  bool request_timeout = false;  ///< another program set one: requests that are slow fail

  std::optional<std::uint64_t> mapping;  ///< bytes of the open LUKS mapping above it

  int link = 0;              ///< whose socket it has
  std::uint64_t visits = 0;  ///< of its image when the device was made: pages above it are as old
  std::list<KernelRequest> requests;
};

/// What the world does to one call of a port.
struct Fate {
  duration before = std::chrono::milliseconds(1);  ///< until it takes effect
  duration after{};                                ///< until the caller hears of it
  bool crash_before = false, crash_after = false;
  std::optional<Error> fail, fail_after;  ///< without and with its effect
};

/// How the world behaves beyond its rules. Nothing is set: at once and well.
struct Hazards {
  virtual ~Hazards() = default;
  virtual Fate fate(const std::string& call) = 0;
  /// Between the end of a link and the moment in which the kernel sees it.
  virtual duration until_seen_dead() = 0;
  /// Until the agent is told of it; nothing: never.
  virtual std::optional<duration> until_told_dead() = 0;
  /// Below `limit`, any.
  virtual duration any(duration limit) = 0;
  virtual void trace(const std::string& event) = 0;
};

/// device-mapper's major number; the minor is the index of the device below.
inline constexpr std::uint32_t kMappingMajor = 253;
/// Whether it is of the device or of the mapping above it.
bool shows_device(const host::Mount& mount, std::uint32_t index);

enum class Client { live, dead, fenced };

class World {
 public:
  explicit World(Loop& loop);
  ~World();

  /// Ports of a fresh agent, with a client address of its own.
  void start_agent(bool with_healer = false);
  /// The agent's process is gone: links die, its clients are dead.
  void kill_agent();
  /// It leaves as on SIGTERM.
  void stop_agent();
  /// Until its process would end.
  task<> leave_well();
  void reboot();
  bool running() const { return life_ != nullptr; }
  volume::Shell& shell();
  result<> want(const std::string& id, plan::Wish wish);

  /// Before the Nth port call from now the agent dies (0: never); after it, once it had its effect.
  int crash_at = 0, crash_after_at = 0;
  /// Before the next port call of that name ("acquire lock") the agent dies.
  std::string crash_in;
  /// The Nth port call from now fails with `error` (0: never); after it had its effect.
  int fail_at = 0, fail_after_at = 0;
  Error error{errc::unavailable, "made to fail"};
  std::function<void(const std::string& call)> before_call;
  /// The next port call of that name takes effect after 90 s.
  std::string delayed;
  int calls = 0;
  Hazards* hazards = nullptr;

  std::map<std::string, FakeImage> images;  ///< by name
  std::map<std::int64_t, std::string> pools{{1, "pool"}};
  /// A provisioner's, by pool and uuid: the keys of its omap.
  std::map<std::pair<std::int64_t, std::string>, std::map<std::string, std::string>> journals;
  std::set<std::string> clusters{"lab"};  ///< names in config.json: all of the one cluster
  std::vector<image::Place> mapped;       ///< in cluster-mapping.json, for every volume
  std::string crush_location;             ///< of this node, where config.json wants read affinity
  std::set<std::string> options_asked;    ///< of Ceph, "name=value", by any connection
  std::vector<KernelDevice> devices;
  std::vector<host::Mount> mounts;
  std::set<std::string> places;  ///< folders and files that mounts were made on: they outlive mounts, agents and boots
  std::set<std::string> filled_places;  ///< those that hold something else
  std::vector<plan::Record> records;
  std::map<std::string, Secret> keys;
  std::set<std::string> blocklisted;
  std::map<std::string, Client> clients;  ///< of this node, as its incarnation files tell
  plan::Attachment attachment;            ///< what the orchestrator says of every volume
  bool fencing = false;
  std::string node_address = "10.0.0.1";  ///< of this node's clients
  /// The disk with the state folder; the runtime folder is memory. A full one takes nothing new, but lets go.
  enum class Disk { good, full, read_only } disk = Disk::good;
  std::map<std::string, int> refused;  ///< writes of a volume's record that failed one after another in this life
  int spares = 16;                     ///< files made before, for the addresses of so many clients more
  std::set<std::string> torn_records, newer_records;  ///< volumes whose file is damaged, or of a newer version
  std::vector<std::string> set_aside;                 ///< volumes whose damaged file was found
  bool no_descriptor = false;                         ///< the agent's process can open nothing
  enum class Driver { there, missing, full } driver = Driver::there;  ///< the kernel's, and its table of devices
  std::string boot_id = "boot-1";
  std::map<std::string, kms::Kind> kms{{"default", kms::Kind::shared}, {"own", kms::Kind::per_volume}};
  /// As a provisioner leaves an image that is to be encrypted; one with a filesystem as its first stage left it, the
  /// filesystem inside.
  void provision_encrypted(const std::string& image, const std::string& kms_id);
  /// Whether an image whose metadata call it encrypted has a key slot that opens with the key of its KMS. True of every
  /// other.
  bool opens(const std::string& image) const;
  /// Another node's agent ends the encryption that was begun.
  void finish_encryption(FakeImage& image);
  int key_derivations = 0, key_derivations_at_once = 0;  ///< under way; the most there ever were
  std::vector<std::string> broken_rules;                 ///< what must never happen, and did
  void broke(std::string rule);
  void trace(const std::string& event) {
    if (hazards != nullptr) hazards->trace(event);
  }

  /// The client that the next image would be opened on; "" before one is made.
  std::string client() const { return client_; }
  FakeImage* by_id(const std::string& image_id);
  KernelDevice* by_index(std::uint32_t index);
  Loop& loop() { return loop_; }

  // The cluster: world_cluster.cpp
  Secret cluster_key{"canary-key"};  ///< any other is refused
  bool cluster_dead = false;
  duration cluster_slow{};
  int odd_error = 0;               ///< errno with which OSDs answer every read and write, and do nothing
  std::set<std::string> given_up;  ///< volumes failed by hand
  void revive_cluster();
  void blocklist(const std::string& address);
  /// Another node opens the image and writes into some blocks. Only as the cluster allows: the lock is free or its
  /// owner's watch has expired; `by_force`: an operator has our client blocklisted first. False: it was refused.
  bool visit(FakeImage& image, const std::string& visitor, bool by_force);
  void leave(FakeImage& image, const std::string& visitor, bool cleanly);
  /// A tool of the cluster's (a flatten, a resize) has the image open and its lock, as far as the cluster allows; it
  /// writes nothing of the volume's. False: the cluster did not allow it.
  bool maintain(FakeImage& image, const std::string& by);
  /// Another node's agent wants the image: it opens it for `looks`, and closes it again as long as somebody else has it
  /// open, until it has it.
  void other_agent_waits(const std::string& image, const std::string& by,
                         duration looks = std::chrono::milliseconds(200));
  /// Its volume was detached there: it asks no more.
  void other_agent_gives_up(const std::string& by) { waiting_agents_.erase(by); }
  std::set<std::string> other_agents;  ///< those that got their image
  void remove_image(const std::string& name);
  void resized(const std::string& image_id);

  // rbd-nbd on this node, as ceph-csi runs it: world_other.cpp
  std::map<std::uint32_t, std::string> others;    ///< client address by the index of the device that it serves
  std::map<std::string, cephcsi::Stash> stashes;  ///< by staging path
  std::set<std::string> logs;                     ///< files of rbd-nbd's
  /// The image is mapped by rbd-nbd, and its filesystem staged at the path. The device's index.
  std::uint32_t other_stages(const std::string& image, const std::string& staging_path, std::string volume_id = {});
  /// What ceph-csi's healer does with a device that nobody serves: rbd-nbd serves it, once the cluster has given its
  /// last client up.
  void other_heals(std::uint32_t index);
  /// By SIGKILL (its lock stays, its watch for a while), or cleanly as on SIGTERM.
  void other_ends(std::uint32_t index, bool cleanly);

  // The kernel's own client: world_krbd.cpp
  bool rbd_module = true;
  std::uint64_t kernel_features = 0x1bf;  ///< all but journaling
  std::string kernel_options;             ///< of the last map by the agent
  std::string kernel_client() const { return "10.0.0.1:0/7" + std::to_string(boot_id.size()); }
  result<> krbd_maps(const std::string& image, bool read_only);
  result<> krbd_unmaps(std::uint32_t index);
  /// As ceph-csi stages with krbd. The device's index.
  std::uint32_t krbd_stages(const std::string& image, const std::string& staging_path, std::string volume_id);
  void used_by_kernel(const KernelDevice& device);

  // The application: world_kernel.cpp
  void application_writes(KernelDevice& device, std::size_t block);
  void application_reads(KernelDevice& device, std::size_t block);
  /// By whomever. Its requests get errors; it is gone once nobody has it open.
  void disconnect(std::uint32_t index);
  void open_device(std::uint32_t index);
  void close_device(std::uint32_t index);
  /// By somebody who may, if there is a server and a filesystem. Nothing in the kernel would keep him from what is
  /// being disconnected; he does not come then.
  void mount_by_hand(std::uint32_t index, const std::string& target);
  /// Once what the device owes is stored, if it was the last.
  void unmount_by_hand(std::uint32_t index, const std::string& target);
  /// Where another program mounts a device as soon as nobody has it mounted any more.
  std::map<std::uint32_t, std::string> automounts;
  /// After something of the device was closed.
  void let_go(std::uint32_t index);
  std::uint64_t answered = 0, errors = 0;  ///< requests that ended well, and with EIO

  // For the ports.
  struct Ports;
  class FakeLink;
  class FakeOpened;
  struct Reply;
  struct HelperJob;
  struct Work;  ///< an operation of an image on its way through the cluster
  using Effect = std::function<result<>()>;
  /// A call that reaches the cluster as client `by`, and what it does there. It goes on when the caller's wait ends
  /// first. `header`: of the image with that id, one after the other.
  task<result<>> ask_cluster(std::string call, std::string by, Until until, Effect effect, std::string header = {});
  /// The same of the kernel or of a file.
  task<result<>> ask_node(std::string call, Until until, Effect effect);
  /// The same of the kernel's nbd driver: a command that nobody takes back. It has its effect also after the caller has
  /// left, and until its end is told it is under way. `ended`: when it is told.
  task<result<>> ask_driver(std::string call, std::string backend, Until until, Effect effect,
                            std::function<void(const result<>&)> ended = {});
  /// The same of a helper process, which waits as long as the device has no server, and outlives the agent.
  task<result<>> ask_helper(std::string call, std::optional<std::uint32_t> device, HelperOwner owner, Until until,
                            Effect effect);
  std::string connection();  ///< a client that is not known to be cut off
  /// Why nobody may use that client with this key; nothing: it may be used.
  result<> admits(const std::string& client, const Secret& key) const;
  void note_cut(const std::string& address);
  bool mark_refused(const std::string& image_id) const;
  void submit(Work work);
  void link_ended(int link);
  void connect_link(KernelDevice& device, int link);
  void answer(std::uint32_t index, std::uint64_t request, int error, std::uint64_t number, bool tombstone);
  bool busy(const std::string& file) const;
  std::optional<time_point> lost_since(const std::string& image_id) const;
  bool may_write(const FakeImage& image, const std::string& address) const;
  std::map<int, FakeLink*> links;     ///< of this life
  std::map<int, FakeOpened*> opened;  ///< of this life
  int made = 0;                       ///< links and opened images, ever
  bool fenced_once = false;           ///< in this life
  bool leaving = false;               ///< this life was told to end
  std::function<void(std::uint32_t)> tell_dead;
  struct UnderWay {
    std::string backend;
    device::Command told;
  };
  std::list<UnderWay> under_way;  ///< commands to the driver, of this life
  std::set<std::pair<std::uint32_t, int>>
      disconnected_by_us;  ///< devices, by index and link, of which this life knows it

 private:
  task<result<std::optional<cephcsi::Stash>>> stash_at(std::string path);
  static task<plan::Attachment> told(plan::Attachment attachment);
  task<result<>> leave_stash(std::string path, cephcsi::Stash stash);
  task<result<>> forget_stash(std::string path, std::string log);
  struct Asked;
  Fate next_fate(const std::string& call);
  task<> die();
  void perform(std::shared_ptr<Asked> asked);
  void end_syscalls();
  void deliver(const std::shared_ptr<Asked>& asked, result<> value);
  void run_work(Work work);
  void stored(const Work& work, FakeImage& image);
  void send(KernelDevice& device, KernelRequest& request);
  void replay(std::uint32_t index, int link, std::uint64_t request);
  void other_serves(std::uint32_t index, int link, std::uint64_t request);
  void ask_device(KernelDevice& device, KernelRequest request);
  void seen_dead(int link);
  void run_helper(const std::shared_ptr<HelperJob>& job);
  void wake_helpers(std::uint32_t index);
  void expire_watches(std::set<std::string> of);
  void other_agent_looks(const std::string& image, const std::string& by, duration looks);

  struct Life;
  Loop& loop_;
  int lives_ = 0;
  std::set<std::string> unwritten_;  ///< clients whose addresses the disk did not take
  std::uint64_t numbers_ = 0, requests_ = 0;
  std::string client_;
  std::set<std::string> waiting_agents_;  ///< other nodes', that have not got their image yet
  std::set<std::string> cut_;             ///< clients of the agent that lives, which the cluster cut off
  int clients_made_ = 0;
  std::unique_ptr<Life> life_;
  std::vector<std::shared_ptr<Asked>> in_syscall_;
  std::vector<std::shared_ptr<HelperJob>> helpers_;
  std::map<std::string, time_point> last_asked_;  ///< when the last operation on a header takes effect, by client
  std::vector<std::function<void()>> held_;       ///< what the dead cluster will do once it lives
  std::map<std::string, time_point> removed_;     ///< images by id
};

plan::Staged staged_wish(const std::string& image);
/// The same of an encrypted volume.
plan::Staged encrypted_wish(const std::string& image, const std::string& kms_id = "default");
/// The index of a device, or of that below a mapping, in the world's mounts and calls.
std::uint32_t index_of(const World& world, const std::string& path);

}  // namespace corbd::test
