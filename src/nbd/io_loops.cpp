#include "io_loops.hpp"

#include <algorithm>

namespace corbd::nbd {

IoLoops::IoLoops(std::size_t threads, std::uint64_t bytes_in_flight, std::uint32_t max_request_bytes,
                 std::uint32_t reserved_bytes, device::FdStore* fd_store) {
  threads = std::max<std::size_t>(threads, 1);
  for (std::size_t i = 0; i < threads; ++i)
    loops_.push_back(std::make_unique<IoLoop>(bytes_in_flight / threads, max_request_bytes, reserved_bytes,
                                              kKeptBuffers / threads, fd_store));
}

IoLoop& IoLoops::next() {
  return **std::ranges::min_element(loops_, {}, [](const auto& loop) { return loop->serving.load(); });
}

/// A session counts as `ending` before it leaves `serving`.
bool IoLoops::all_ended() const {
  return std::ranges::all_of(loops_, [](const auto& loop) { return loop->serving == 0 && loop->ending == 0; });
}

void IoLoops::add_to(device::Counters& counters) const {
  for (const auto& loop : loops_) {
    counters.budget += loop->budget.bytes();
    counters.reserved += loop->sessions * loop->budget.per_device();
    counters.in_flight += loop->budget.used();
    counters.buffers += loop->buffers.resident();
  }
}

}  // namespace corbd::nbd
