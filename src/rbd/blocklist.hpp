// Changes the cluster's blocklist by commands to its monitors, and looks at the result. Pool threads.
#pragma once

#include <rados/librados.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "corbd/image/blocklist.hpp"
#include "short_entries.hpp"

namespace corbd::rbd {

/// Each command waits for a commit of the monitors, and commands that are under way together share one.
inline constexpr std::size_t kCommandsAtOnce = 64;

/// `unknown`: gets the entries that are not understood; null: they are an error.
result<std::vector<image::BlocklistEntry>> list_blocklist(rados_t cluster, std::vector<std::string>* unknown = nullptr);

/// Results of a change of the blocklist.
struct BlocklistChange {
  std::vector<result<>> results;                    ///< in the order of the entries
  std::vector<image::BlocklistEntry> ending_early;  ///< clients whose existing entry ends too early
  std::optional<std::chrono::system_clock::time_point> monitors_now = {};  ///< by the monitors' clock, if it is known
};

/// Adds these entries for that long, or removes them (nullopt), and verifies the result in the monitors' list. `wall`:
/// this node's clock, for monitors that do not show theirs.
result<BlocklistChange> change_and_look(rados_t cluster, const std::vector<image::BlocklistEntry>& entries,
                                        std::optional<std::chrono::seconds> block_for,
                                        std::chrono::system_clock::time_point wall);

/// Result of one check of short entries.
struct RenewalLook {
  std::vector<std::string> forget = {};  ///< their uuids
  std::vector<std::string> added = {};   ///< their clients
  std::optional<Error> failed = {};      ///< error of the one that could not be added
  std::chrono::milliseconds again_in = std::chrono::seconds(30);
  std::optional<std::chrono::system_clock::time_point> monitors_now = {};  ///< learnt by this check
};
/// Adds our own entries for those that have gone. `monitors_now`: if it is known. `wall`: this node's clock.
result<RenewalLook> look_at_short_entries(rados_t cluster, const std::vector<ShortEntry>& entries,
                                          std::optional<std::chrono::system_clock::time_point> monitors_now,
                                          std::chrono::system_clock::time_point wall);

}  // namespace corbd::rbd
