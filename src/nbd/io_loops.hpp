// The io threads of all devices. A link stays on the thread that it began on.
#pragma once

#include <memory>
#include <vector>

#include "corbd/device/device.hpp"
#include "io_loop.hpp"

namespace corbd::nbd {

/// Each io thread has an equal part of the budget and of the kept memory, so that no thread reads another's. All parts
/// together are no more than one thread alone would have.
class IoLoops {
 public:
  /// `threads`: 0 counts as one. `bytes_in_flight`: over all threads.
  IoLoops(std::size_t threads, std::uint64_t bytes_in_flight, std::uint32_t max_request_bytes,
          std::uint32_t reserved_bytes = 1u << 20, device::FdStore* fd_store = nullptr);

  /// Returns the io thread for the next link: the first of those that serve the fewest. Control thread.
  IoLoop& next();

  /// Whether no link is served, and the kernel has seen the end of each. Any thread.
  bool all_ended() const;

  /// Adds the present values of all threads, in bytes. Any thread.
  void add_to(device::Counters& counters) const;

  const std::vector<std::unique_ptr<IoLoop>>& all() const { return loops_; }

 private:
  std::vector<std::unique_ptr<IoLoop>> loops_;
};

}  // namespace corbd::nbd
