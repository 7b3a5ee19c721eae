// Port to the rbd-nbd processes of this node.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/helper_pool.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::host {

class Daemons {
 public:
  virtual ~Daemons() = default;
  /// The IDs of the rbd-nbd processes that serve /dev/nbd<index>; empty: none does. A process' command line shows it
  /// (the device, or the cookie, which is the device's identifier), or the kernel names it as the process that
  /// connected the device. It must be one that can serve a device at all, by its capabilities.
  virtual task<result<std::vector<int>>> serving(std::uint32_t index, std::string backend, Until until) = 0;
  /// Asks them to end (SIGTERM: what they have read is answered and stored, and the image is closed) and waits for
  /// their end. Succeeds too when there is none.
  virtual task<result<>> dismiss(std::uint32_t index, std::string backend, Until until) = 0;
};

std::unique_ptr<Daemons> make_daemons(HelperPool& helpers);

/// The IDs of the processes that serving() looks for, from <root>/proc and <root>/sys; `root` is empty for this host.
/// Reading the command line of a process may wait for its memory.
result<std::vector<int>> find_daemons(const std::string& root, std::uint32_t index, const std::string& backend);

}  // namespace corbd::host
