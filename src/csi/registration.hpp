// Decides when to recreate the registration socket. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "corbd/core/clock.hpp"

namespace corbd::csi {

/// kubelet's messages at one socket.
struct Heard {
  std::optional<time_point> asked;    ///< the first GetInfo since the last answer on the registration
  std::optional<time_point> refused;  ///< time of the last answer, if that refused us
  std::uint32_t failures = 0;         ///< failures in a row, at this socket and those before it
};

/// The socket is recreated if kubelet called GetInfo there and then said nothing for this long.
inline constexpr std::chrono::seconds kSilence{60};

/// Call this when kubelet calls GetInfo. For a driver that it has accepted, it does so every 10 s, and says nothing
/// more (docs/sources.md#kubelet-registration).
void note_asked(Heard& heard, time_point now, bool registered);
/// Returns when it is time for a new socket; max() while there is no reason for one. random: uniform in [0, 1), one for
/// each socket.
time_point renewal(const Heard& heard, double random);
/// Returns the pause after that many failures in a row, at least one.
std::chrono::milliseconds pause_after(std::uint32_t failures, double random);

}  // namespace corbd::csi
