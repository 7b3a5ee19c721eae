// The thin shell around the planner. It turns wishes into operations: equal ones become one, and the volume's lock
// orders the others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "corbd/device/link_socket.hpp"
#include "corbd/volume/capacity.hpp"
#include "corbd/volume/ports.hpp"

namespace corbd::volume {

/// The node's options for every filesystem of a type.
struct FilesystemOptions {
  std::map<std::string, std::string> mkfs;   ///< for volumes whose attributes name none
  std::map<std::string, std::string> fsck;   ///< instead of -a
  std::map<std::string, std::string> mount;  ///< before the volume's own, which may override
};

struct Config {
  Policy policy;
  FilesystemOptions filesystems;
  std::string boot_id;
  std::uint64_t dead_conn_timeout_s = 86400;
  std::chrono::seconds step_limit{60};         ///< for one step against the cluster or the kernel
  std::chrono::seconds long_step_limit{1800};  ///< for one mkfs, fsck or proof of emptiness
  std::chrono::seconds trim_every{0};          ///< each filesystem is trimmed so often; 0: only when a caller asks
  std::chrono::seconds secrets_every{300};     ///< the Secrets of all volumes are read so often
  bool quiesce = false;                        ///< snapshots freeze the filesystem of volumes that do not say
  std::chrono::seconds freeze_limit{5};        ///< a filesystem stays frozen for so long at most
};

/// Result of handing a volume to the next agent. A few volumes at a time wait for this, while the others are served.
enum class Taken {
  served,  ///< the next agent serves it
  later,   ///< the next agent has it, and has not yet said that it serves it
  refused  ///< nobody has it
};
using Recipient = std::function<task<Taken>(device::LinkSocket)>;

/// Control thread only.
class Shell final : public Volumes {
 public:
  Shell(executor control, Clock& clock, Ports ports, Config config);
  ~Shell() override;

  /// Prepares, before start() and beside the agent that serves the volumes: makes the connections that they will need,
  /// and opens each image once to read. Returns the volumes whose images it could not open in time. An error: their
  /// records cannot be read.
  task<result<std::vector<std::string>>> preopen(Until until);
  /// Reads the records. Call it once, before anything but preopen().
  task<result<>> start();
  /// Does start()'s work after the present agent has handed over the state directory, while it still serves. First it
  /// reads again which Ceph clients that agent has; last it notes the clients of preopen(), by `noted`. After an error
  /// it notes nothing: the present agent serves on, and this one ends.
  task<result<>> start_beside(Until noted);
  /// Connects to the clusters of the devices that nobody serves, after start(), and fences dead clients there. Healing
  /// finds that done or under way, and meets the same errors.
  task<> fence_early(Until until);
  task<result<>> want(std::string volume_id, Wish wish, Until until) override;
  task<Users> users(std::string cluster_id, Until until) override;
  task<result<Holding>> holders(ImageAt at, Until until) override;
  task<result<Holding>> take_image(ImageAt at, Until until) override;
  task<result<host::Usage>> usage(std::string volume_id, std::string path, Until until) override;
  void count_used() override;
  result<ManualCheck> check_by_hand(const std::string& volume_id, const std::string& token, bool repair) override;
  std::vector<Status> status() const override;
  std::optional<Status> status(const std::string& volume_id) const override;
  std::vector<Unclaimed> unclaimed() const override;
  std::vector<Unclaimed> left_to_kernel() const override;
  Overview overview() const override;
  /// Returns the last changes of the volume's health, oldest first.
  std::vector<Change> timeline(const std::string& volume_id) const;
  /// Sets the listeners, in the order of their calls. Call it before start(). Without it nobody is told.
  void set_listeners(std::vector<Listener*> listeners);
  /// Cordons the agent (`corbd drain`): a volume without a record is not staged (unavailable). kubelet asks again, and
  /// other nodes are free to take the volume.
  void set_cordoned(bool on);
  /// Above this number a volume without a record is not staged (exhausted). Until the first call there is no limit.
  void set_capacity(Capacity capacity);
  /// Leaves: refuses new wishes and further steps, answers the requests that were read from every link, all at once,
  /// and then waits for the steps under way. Locks stay held, because they are the next start's proof of ownership.
  task<> stop(Until until);
  /// Returns those of these volumes that are served here, and answer.
  std::vector<std::string> answering(const std::vector<std::string>& volume_ids) const;
  /// Writes the key files of these volumes again, from memory, if they are gone or damaged. The next agent reads them
  /// when it asks again.
  task<> restore_keys(std::vector<std::string> volume_ids, Until until);
  /// Returns those of these served volumes that this agent could not open again after releasing them, and why: its user
  /// or key is refused by now, or their image would be. Volumes that were not checked in time are left out.
  task<std::map<std::string, std::string>> not_again(std::vector<std::string> volume_ids, Until until) const;
  /// Returns the served volumes whose pool is full by the monitors' word, with the text that names the pool, the cause
  /// and the remedy: the next agent could not open them for writing. Those whose monitors did not answer are left out.
  task<std::map<std::string, std::string>> in_full_pools(Until until) const;
  /// Prepares a planned restart: refuses new wishes and further steps, and waits some seconds for the steps under way,
  /// while devices are served. Afterwards no record changes. An error: a record is still being written after half a
  /// minute, or one without which the next agent could prove nothing cannot be written.
  task<result<>> quiesce();
  /// Undoes quiesce(): accepts wishes again. Interrupted operations are healed or repeated.
  void resume();
  /// Hands volumes over, after quiesce(): every volume that was served then, and had no operation under way, passes its
  /// link to the recipient once the requests read from it are answered and its image is closed. Its lock stays. The
  /// others end as after stop(). Returns how many were handed over.
  task<std::size_t> hand_over(Recipient recipient);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::volume
