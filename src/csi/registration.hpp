// When to recreate the registration socket. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "corbd/core/clock.hpp"

namespace corbd::csi {

/// What kubelet has said at one socket.
struct Heard {
  std::optional<time_point> asked;    ///< the first GetInfo without an answer on the registration since
  std::optional<time_point> refused;  ///< the last answer, if it was no
  std::uint32_t failures = 0;         ///< in a row, of this socket and those before it
};

/// When kubelet asked at a socket and then said nothing for this long, the socket is recreated.
inline constexpr std::chrono::seconds kSilence{60};

/// kubelet asks who is there. Of a driver that it has taken, it does so every 10 s, and says nothing more
/// (docs/sources.md#kubelet-registration).
void note_asked(Heard& heard, time_point now, bool registered);
/// When it is time for a new socket; max() while there is no reason for one. random: uniform in [0, 1), one for each
/// socket.
time_point renewal(const Heard& heard, double random);
/// The pause after that many failures in a row, at least one.
std::chrono::milliseconds pause_after(std::uint32_t failures, double random);

}  // namespace corbd::csi
