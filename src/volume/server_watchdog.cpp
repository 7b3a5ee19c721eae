#include "server_watchdog.hpp"

namespace corbd::volume {

void ServerWatchdog::look(std::uint64_t completed, std::uint32_t waiting, time_point now) {
  const bool same = waited_ && waiting > 0 && completed == completed_;
  if (!same) since_ = now;
  lasted_ = now - since_;
  waited_ = waiting > 0;
  completed_ = completed;
}

}  // namespace corbd::volume
