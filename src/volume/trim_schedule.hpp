// Decides which volume of the node is trimmed next, when, and why not. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/time.hpp"

namespace corbd::volume {

using WallTime = std::chrono::system_clock::time_point;

/// A volume with more than this is busy, and no trim disturbs it.
inline constexpr std::uint64_t kBusyRequestsPerSecond = 200;
inline constexpr std::uint64_t kBusyInFlight = 8;
inline constexpr std::chrono::milliseconds kBusyOldest{500};
/// A volume that was found busy, or whose helper still works, is trimmed no earlier than this. One whose trim failed
/// gets the longer time.
inline constexpr std::chrono::minutes kTrimHeldFor{5}, kTrimRetriedAfter{60};

/// The facts about a volume that decide whether it is trimmed.
struct TrimCandidate {
  std::string id;
  // Facts that last as long as the volume is staged.
  bool block = false, read_only = false;
  bool in_pieces = true;  ///< host::trims_in_pieces()
  bool discards = true;   ///< its device offers discards
  // Facts of this moment.
  bool staged = true;      ///< and its device has a server of ours, or the kernel's client
  bool operation = false;  ///< an operation is under way, or a helper works
  std::string hangs = {};  ///< volume of this node whose last piece has not ended yet; empty: none
  std::uint64_t requests_per_second = 0, in_flight = 0;  ///< reads and writes
  duration oldest{};                                     ///< age of the oldest request
  std::optional<WallTime> trimmed_at = {};               ///< last whole trim, whoever asked for it
};

/// A volume's place in the schedule.
struct TrimTurn {
  std::optional<std::int64_t> ended;  ///< number of the last turn that is over; nothing: the volume was not seen before
  std::uint64_t from = 0;             ///< where the present turn goes on, in bytes of the filesystem
  time_point held_until{};            ///< not earlier, because it was busy
};

/// Returns why the scheduled trim leaves the volume out; empty: it does not.
std::string why_never_trimmed(const TrimCandidate& of);
/// Returns why it waits now; empty: it does not.
std::string why_trim_waits(const TrimCandidate& of);
/// Returns the number of the volume's present turn. A turn begins once in `every`, at a moment that the volume's ID
/// chooses, so the volumes of a node and of a cluster are spread over that time, and a restart of the agent moves none.
std::int64_t trim_turn(const std::string& volume_id, std::chrono::seconds every, WallTime now);
/// Whether the volume's turn has come: it has begun since the volume was seen first, and nobody trimmed the volume in
/// the last half of the period. Updates a turn that came while it could not.
bool trim_is_due(const TrimCandidate& of, TrimTurn& turn, std::chrono::seconds every, WallTime now);
/// Returns the time to leave the volume alone after a piece that took so long: four times as long, so that a trim takes
/// a fifth of the time at most.
duration trim_pause(duration took);

}  // namespace corbd::volume
