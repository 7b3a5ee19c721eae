// The watch of a lock that is kept for the next agent. Other clients take a lock's owner for alive if it has the watch
// that the lock's cookie names, and librbd's own watch ends with the image.
#pragma once

#include <mutex>
#include <string_view>

#include "image_handle.hpp"

namespace corbd::rbd {

/// Whether librbd's notification is for the lock's owner, who answers it, and not for everybody.
bool asks_owner(std::string_view notification);

/// A plain watch on an image's header. It acknowledges what is for everybody. A client that asks the lock's owner has
/// no answer: it asks again after librbd's 5 s, or once the watch ends, instead of at once. So it hardly ever finds the
/// lock free while the next agent has broken it and not taken it yet. The watch lasts until end_watch(), or until its
/// client ends.
struct LockWatch {
  ~LockWatch() { silence(); }
  /// Stops the acknowledgements. Any thread.
  void silence() {
    const std::lock_guard sole(answering);
    pool.io = IoCtx();
  }
  OpenPool pool;
  std::string image;  ///< its key, as text
  std::string header;
  std::uint64_t handle = 0;  ///< 0: not set yet
  std::mutex answering;      ///< guards `pool` once the watch is set
};

/// Sets the watch, unless it is set. Pool thread. The connection has `watch` from before this call until its client has
/// ended.
result<> set_watch(const ImageHandle& opened, LockWatch& watch);
/// Ends the watch and takes it from the connection. Control thread.
task<> end_watch(executor control, Clock& clock, const ImageHandle& opened, std::shared_ptr<LockWatch> watch);

}  // namespace corbd::rbd
