// Whether the server of a device still answers it, by the kernel's counts. Pure: the caller reads them, and passes the
// time.
#pragma once

#include <cstdint>

#include "corbd/core/time.hpp"

namespace corbd::volume {

/// One slow request may take as long as Ceph needs to give an OSD up. A server that completes nothing for longer has
/// hung.
inline constexpr std::chrono::minutes kServerSilent{2};

class ServerWatchdog {
 public:
  /// `completed`, `waiting`: from device::Seen. If `completed` has not changed since the last look, the same requests
  /// still wait.
  void look(std::uint64_t completed, std::uint32_t waiting, time_point now);
  /// Returns how long requests had waited at the last look while none was answered. The silence itself may have begun
  /// earlier, by the time between two looks.
  duration lasted() const { return lasted_; }

 private:
  std::uint64_t completed_ = 0;
  bool waited_ = false;  ///< requests waited at the last look
  time_point since_{};
  duration lasted_{};
};

}  // namespace corbd::volume
