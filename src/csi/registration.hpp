// When the registration socket is made anew. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "corbd/core/clock.hpp"

namespace corbd::csi {

/// What kubelet has said at one socket.
struct Heard {
  std::optional<time_point> asked;    ///< the first GetInfo that no word on the registration has followed
  std::optional<time_point> refused;  ///< the last word, if it was no
  std::uint32_t failures = 0;         ///< in a row, of this socket and those before it
};

/// A socket that kubelet asked and then left alone is made anew after this.
inline constexpr std::chrono::seconds kSilence{60};

/// When it is time for a new socket; max() while there is no reason for one. random: uniform in [0, 1), one for each
/// socket.
time_point renewal(const Heard& heard, double random);
/// The pause after that many failures in a row, at least one.
std::chrono::milliseconds pause_after(std::uint32_t failures, double random);

}  // namespace corbd::csi
