// Whether the server of a device still answers it, from what the kernel counts. Pure: the caller looks, and passes the
// time.
#pragma once

#include <cstdint>

#include "corbd/core/time.hpp"

namespace corbd::volume {

/// One slow request may take as long as Ceph needs to give an OSD up. A server that ends nothing for longer has hung.
inline constexpr std::chrono::minutes kServerSilent{2};

class Silence {
 public:
  /// `completed`, `waiting`: of device::Seen. If `completed` is that of the last look, what waited then still waits.
  void look(std::uint64_t completed, std::uint32_t waiting, time_point now);
  /// How long requests had waited at the last look while none was answered. The silence itself may have begun earlier,
  /// by the time between two looks.
  duration lasted() const { return lasted_; }

 private:
  std::uint64_t completed_ = 0;
  bool waited_ = false;  ///< at the last look
  time_point since_{};
  duration lasted_{};
};

}  // namespace corbd::volume
