// The requests of a session: those that the image has, in the order in which they began, and free slots.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "codec.hpp"
#include "link_state.hpp"

namespace corbd::nbd {

class Session;
struct Slot;

/// Io thread, except where noted.
class RequestSlots {
 public:
  RequestSlots(Session& of, LinkState& shown);
  ~RequestSlots();
  Slot& take(const Request& request);
  void give_back(Slot& slot);
  std::size_t used() const { return used_; }
  /// The image has the slot's request since `read_us`.
  void begin(Slot& slot, std::int64_t read_us);
  /// The image has another piece of the slot's request now.
  void next_piece(const Slot& slot);
  void end(Slot& slot);
  Slot* oldest() const { return oldest_; }
  /// Callable from any thread.
  std::uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  void show(const Slot* oldest);
  Session& of_;
  LinkState& shown_;
  std::atomic<std::uint64_t> in_flight_{0};
  Slot *oldest_ = nullptr, *newest_ = nullptr;
  std::vector<std::unique_ptr<Slot>> all_;
  Slot* free_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace corbd::nbd
