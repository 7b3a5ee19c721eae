// A node's fake kernel: devices, their requests, mappings and mounts outlive the agent, until the next boot.
//
// tests/support/kernel_contract.hpp checks the behaviour that the agent relies on, on this kernel and on real ones.
//
// A real kernel differs as follows:
// - It has a page cache and a journal. Here each application's write is a request of one block, and a mount writes
//   nothing, though the end of a writable one waits for its device.
// - Its patience with a dead link ends for rbd-nbd's devices too (reattach-timeout). Here it does for the agent's only.
// - It merges, splits and reorders requests, has several queues, and limits how many are in flight.
// - The socket has a size, and a request may be sent in part. Here only a killed thread leaves one half sent.
// - Netlink answers late, twice or not at all, and others hold its mutex. Here commands wait in one row.
// - sysfs shows a device step by step while it comes and goes. Here each look sees a whole device.
// - Mounts propagate between namespaces and may be private there. Here the node has one table.
// - Its own RBD client unmaps with EBUSY, blocks in the kernel, and logs. Here it maps or refuses (krbd.cpp).
// - Versions differ. Here it is one of 6.9 or later, with the freeze of a resize.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "corbd/device/device.hpp"
#include "corbd/host/values.hpp"
#include "support/loop.hpp"

namespace corbd::test {

class World;
class FakeLink;

/// A block request of the application, until it is answered.
struct KernelRequest {
  std::uint64_t id = 0;
  bool write = true;
  bool flush = false;                                ///< has neither block nor number
  std::map<std::size_t, std::uint64_t> covers = {};  ///< for a flush: acknowledged writes, perhaps not stored
  std::size_t block = 0;
  std::uint64_t number = 0;  ///< written number; for a read: the block's certain content when the read began
  int sent_on = 0;           ///< link; 0: waits for one
  /// Nobody read, and its thread got a signal while it slept in sendmsg(2). From Linux 6.14 on a worker sends the rest.
  /// If the socket takes no more, the request fails.
  bool half_sent = false;
};

/// Free space that each trim, or each piece of one, finds on a filesystem.
inline constexpr std::uint64_t kTrimmedBytes = std::uint64_t{256} << 20;

struct KernelDevice {
  device::Kind kind = device::Kind::nbd;
  std::uint32_t index = 0;
  std::string image_name;  ///< krbd: the name by which it was mapped
  std::string mapped_by;   ///< krbd: the Ceph user, which config_info shows; its key is shown nowhere
  std::string backend;
  std::string image_id;  ///< ID of the image that serves it
  std::uint64_t size = 0;
  bool alive = false;
  bool disconnected = false;  ///< it takes no link any more, and exists as long as somebody has it open
  int openers = 0;            ///< programs that have it open without using it
  bool unscanned = false;     ///< nbd has set its size, and whoever opens it first reads its partition table
  bool read_only = false;
  bool trim = true;
  bool flush = true;  ///< false: every write that was answered counts as stored, and no flush is sent
  std::uint64_t dead_conn_timeout_s = 0;  ///< 0: without an end
  std::uint32_t io_timeout_ms = 30000;
  bool request_timeout = false;  ///< another program set one: slow requests fail

  std::optional<std::uint64_t> mapping;  ///< bytes of the open LUKS mapping above it
  bool mapping_read_only = false;        ///< its table takes no write
  bool integrity = false;                ///< a mapping of dm-integrity is above it, below the open LUKS mapping
  bool mapping_discards = false;         ///< the open LUKS mapping lets discards through
  std::string mapped_as;                 ///< device-mapper's name of the LUKS mapping; the other's has "_dif" behind it
  std::string inner_mapping() const { return mapped_as + "_dif"; }
  void map_as(std::string name, std::uint64_t bytes, bool with_integrity) {
    mapped_as = std::move(name);
    mapping = bytes;
    integrity = with_integrity;
    mapping_discards = false;
  }

  enum class Freezer { nobody, agent, somebody_else } frozen_by = Freezer::nobody;  ///< freezer of its filesystem
  bool folder_key = false;  ///< the mounted filesystem has the key of its encrypted folder

  std::map<std::size_t, std::uint64_t> unflushed;  ///< writes acknowledged out of a cache, without a flush since
  bool cache_died = false;                         ///< it had a server that may have died with a cache

  int link = 0;  ///< link whose socket it has
  /// Visits of its image when its first link was made that was no kNoVisit: pages above it are as old.
  std::uint64_t visits = 0;
  std::list<KernelRequest> requests;
  std::uint64_t completed = 0;  ///< requests that ended since the device was made
};

/// device-mapper's major number; the minor is the index of the device below.
inline constexpr std::uint32_t kMappingMajor = 253;
/// Whether the mount is of the device or of the mapping above it.
bool shows_device(const host::Mount& mount, std::uint32_t index);
/// Returns them as sysfs shows them: by device-mapper's names, whoever opened them.
std::vector<device::UpperDevice> holders_of(const KernelDevice& device);

/// Reply that a dead server or a predecessor made and did not send.
struct Reply {
  std::uint64_t request = 0;
  int failed = 0;
  std::uint64_t number = 0;
  bool tombstone = false;
  bool cached = false;  ///< a write that is only in its server's memory
};
/// The agent's end of a link without an agent: on its way to the next one, or in its keeper.
struct InheritedLink {
  int link = 0;
  const World* of = nullptr;  ///< process that has it, or whose keeper has it
  bool of_keeper = false;
  bool taken = true;             ///< false: still on its way
  std::vector<Reply> owed = {};  ///< by its books
};

class Kernel {
 public:
  explicit Kernel(World& world) : world_(world) {}

  std::string boot_id = "boot-1";
  std::vector<KernelDevice> devices;
  std::vector<host::Mount> mounts;
  bool can_freeze = true;                                             ///< its filesystems can be frozen
  bool takes_limits = true;                                           ///< pods have cgroups that take limits
  std::map<std::string, std::string> bind_flags;                      ///< by target, also if that is gone
  std::map<std::string, std::set<std::string>> io_max;                ///< the lines of each pod's cgroup, by its UID
  enum class Driver { there, missing, full } driver = Driver::there;  ///< state of nbd, and of its table of devices
  int key_derivations = 0, key_derivations_at_once = 0;               ///< under way; and the most there ever were
  std::uint64_t key_memory_kib = 0, key_memory_kib_at_once = 0;       ///< memory that they take
  int keys_left = 0;  ///< filesystems that ended with the key of an encrypted folder
  /// Numbers with BLKROSET, for example by rbd-nbd: a flag that stays with a number when its device is disconnected.
  std::set<std::uint32_t> read_only_numbers;
  bool takes_no_write(const KernelDevice& device) const {
    return device.read_only || read_only_numbers.contains(device.index);
  }
  /// `queue/io_timeout`, by number: the value of the device before.
  std::map<std::uint32_t, std::uint32_t> timers;
  KernelDevice* by_index(std::uint32_t index);
  void boot();

  // Actions of the application.
  void application_writes(KernelDevice& device, std::size_t block);
  void application_reads(KernelDevice& device, std::size_t block);
  /// While one is under way the next waits for its end, and further ones join that (block/blk-flush.c).
  void application_flushes(KernelDevice& device);
  std::uint64_t answered = 0, errors = 0;  ///< requests that succeeded, and that failed with EIO
  std::uint64_t flushed = 0, flushes_failed = 0;
  std::uint64_t losses_told = 0;  ///< part of flushes_failed: those after a loss of a cache's writes

  /// A resize waits for a device's requests in flight, under the driver's mutex, as kernels from 6.9 do: no other
  /// command is carried out, and the process that gave it cannot end.
  struct Frozen {
    std::uint32_t device = 0;
    const World* by = nullptr;  ///< nullptr: a helper
    std::function<void()> then;
  };
  std::optional<Frozen> frozen;
  std::function<void()> on_freeze;  ///< called at the next freeze
  /// False: nothing is in flight.
  bool freeze(std::uint32_t index, const World* by, std::function<void()> then);
  void after_thaw(std::function<void()> action) { waiting_.push_back(std::move(action)); }
  /// Whether nothing but a boot ends the freeze: only a command could give the device a link.
  bool stands() const;

  // Actions of other programs of the node.
  /// Disconnects the device. Its requests get errors; it is gone once nobody has it open.
  void disconnect(std::uint32_t index);
  void open_device(std::uint32_t index);
  void close_device(std::uint32_t index);
  /// Mounts by hand, if there is a server and a filesystem. Nothing in the kernel would keep a person from a device
  /// that is being disconnected; this one does not mount then.
  void mount_by_hand(std::uint32_t index, const std::string& target);
  /// Unmounts by hand, once the device's dirty data are stored, if it was the last mount.
  void unmount_by_hand(std::uint32_t index, const std::string& target);
  /// A program opens a file below that mount: it is busy.
  void open_file(const std::string& target) { open_files.insert(target); }
  void close_file(const std::string& target);
  std::set<std::string> open_files;
  /// Plays `umount -l`: the filesystem goes with its last open file.
  void unmount_lazily(const std::string& target);
  std::map<std::string, std::uint32_t> detached;  ///< devices of such filesystems, by target
  /// Whether anything has it mounted or mapped, in a table or not.
  bool is_claimed(std::uint32_t index);
  /// Targets on which another program mounts a device as soon as nobody has it mounted any more.
  std::map<std::uint32_t, std::string> automounts;

  // The kernel's own RBD client: krbd.cpp.
  bool rbd_module = true;
  std::uint64_t rbd_features = 0x1bf;  ///< all but journaling
  bool rbd_aes256k = false;            ///< it knows keys of that type
  std::string rbd_options;             ///< options of the agent's last map
  std::string rbd_client() const;
  result<> krbd_maps(const std::string& image, bool read_only);
  result<> krbd_unmaps(std::uint32_t index);
  /// Writes or reads a device of krbd.
  void krbd_used(const KernelDevice& device);
  void krbd_serves(std::uint32_t index, std::uint64_t request);

  // Used by the ports.
  std::vector<const World*> processes;  ///< the agents of this node
  /// Ends a filesystem with its last mount, and so its keyring.
  void unmounted(std::uint32_t index);
  /// Call this after something of the device was closed.
  void let_go(std::uint32_t index);
  /// Its server, or the link's holder, takes the bytes that are being sent.
  void link_ended(int link);
  /// The link's process is gone, by its own will or not.
  void link_cut(int link, bool well);
  void connect_link(KernelDevice& device, int link);
  void begin_visit(KernelDevice& device);
  /// Another process goes on with the socket: its bytes are read now.
  void resume_link(KernelDevice& device, int link);
  std::map<std::uint32_t, InheritedLink> inherited;  ///< by device
  /// Closes the agent's end.
  void discard_inherited(std::uint32_t index);
  /// Whether a process reads from its link. A link that a keeper has is alive, and nobody reads from it.
  bool is_served(const KernelDevice& device) const;
  /// False while its link is kept, on its way to the next agent, or drained.
  bool is_read(const KernelDevice& device) const;
  int deaths = 0;  ///< links that it saw dead
  /// Answers as the present holder of that link.
  void answer(std::uint32_t index, int link, const Reply& reply);
  std::map<int, FakeLink*> links;                                        ///< in this life of the agent
  std::map<const World*, std::function<void(std::uint32_t)>> tell_dead;  ///< by process
  /// Processes that know it of a device, by its index and link.
  std::set<std::tuple<const World*, std::uint32_t, int>> disconnected_by_us;
  int inventories = 0;  ///< number of reads of every device

 private:
  void send(KernelDevice& device, KernelRequest& request);
  void replay(std::uint32_t index, int link, std::uint64_t request);
  void look_at_data(const KernelDevice& device, const KernelRequest& request, std::uint64_t number);
  void ask_device(KernelDevice& device, KernelRequest request);
  void flush_answered(KernelDevice& device, const KernelRequest& request, const Reply& reply);
  void seen_dead(int link);
  /// A request on a dead link waits that long for the next one (dead_conn_timeout), and then fails.
  void begin_patience(const KernelDevice& device, std::uint64_t request);
  void thaw_if_idle(std::uint32_t index);

  World& world_;
  std::vector<std::function<void()>> waiting_;  ///< called at the end of a freeze
  std::uint64_t requests_ = 0;
};

}  // namespace corbd::test
