// Port to the rbd-nbd processes of this node.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/helper_pool.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::host {

/// The rbd-nbd processes of one device.
struct OtherServer {
  std::vector<int> pids = {};  ///< all serving processes
  /// The only serving process, by its ID and start, if it acknowledges no write before that is stored, and has run so
  /// long that no watch of an earlier one is left. Empty: unknown, or no such process.
  std::string uncached = {};

  bool serving() const { return !pids.empty(); }
  static constexpr std::tuple fields{fields::required("pids", &OtherServer::pids),
                                     fields::required("uncached", &OtherServer::uncached)};
};

class Daemons {
 public:
  virtual ~Daemons() = default;
  /// Returns the rbd-nbd processes that serve /dev/nbd<index>. A process counts if its command line names the device
  /// (or the cookie, which is the device's identifier), or if the kernel names it as the process that connected the
  /// device. By its capabilities it must be able to serve a device at all.
  virtual task<result<OtherServer>> serving(std::uint32_t index, std::string backend, Until until) = 0;
  /// Asks them to end (SIGTERM: requests that they have read are answered and stored, and the image is closed) and
  /// waits for their end. Succeeds too if there is none.
  virtual task<result<>> dismiss(std::uint32_t index, std::string backend, Until until) = 0;
};

std::unique_ptr<Daemons> make_daemons(HelperPool& helpers);

/// Returns the IDs of the processes that serving() looks for, from <root>/proc and <root>/sys; `root` is empty for this
/// host. Reading the command line of a process may wait for its memory.
result<std::vector<int>> find_daemons(const std::string& root, std::uint32_t index, const std::string& backend);

/// Configuration with which an rbd-nbd process was started.
struct DaemonSeen {
  std::vector<std::string> arguments;
  result<std::vector<std::string>> environment = std::vector<std::string>();  ///< "NAME=value"
  result<std::string> conf = std::string();  ///< text of its /etc/ceph/ceph.conf; empty: there is none
};
/// Whether it acknowledges a write only when that is stored: its cache is off, or writes through
/// (docs/sources.md#librbd-cache). An error: the configuration does not show it.
result<bool> is_uncached(const DaemonSeen& daemon);
/// Does the same for a process of find_daemons(). It reads the ceph.conf that the process sees.
result<bool> is_uncached(const std::string& root, int pid);
/// Returns a process's start in clock ticks since the boot, from the text of /proc/PID/stat.
std::optional<long long> start_ticks(std::string_view process);
/// Returns the start of a process, from /proc/PID/stat, /proc/stat and the clock ticks in a second.
std::optional<std::chrono::system_clock::time_point> started_at(std::string_view process, std::string_view system,
                                                                long ticks);

}  // namespace corbd::host
