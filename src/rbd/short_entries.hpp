// Entries of a cluster's blocklist that somebody else made, and that end before ours would. Ceph keeps the end of an
// existing entry, so ours is added once it has gone (renewal.cpp). A file for each tells the next agent.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/clock.hpp"
#include "corbd/core/fields.hpp"
#include "corbd/image/blocklist.hpp"

namespace corbd::rbd {

struct ShortEntry {
  std::string uuid;  ///< name of the file
  std::string fsid, cluster_id;
  std::string client;  ///< "10.0.0.1:0/123"
  std::chrono::sys_seconds until = {};
  bool saved = true;                                 ///< its file exists
  static constexpr bool has_unsaved_members = true;  ///< saved is of this process
  static constexpr std::tuple fields{
      fields::required("uuid", &ShortEntry::uuid), fields::required("fsid", &ShortEntry::fsid),
      fields::added("cluster_id", &ShortEntry::cluster_id), fields::required("client", &ShortEntry::client),
      fields::required("until", &ShortEntry::until)};
};

std::string to_json(const ShortEntry& entry);
/// state_corrupt with the reason.
result<ShortEntry> parse_short_entry(std::string_view json);

/// Writes into the folder of the incarnation files, with a suffix of their own. Durable when it returns.
result<> save_short_entry(const std::string& dir, const ShortEntry& entry);
result<> forget_short_entry(const std::string& dir, const std::string& uuid);
struct LoadedShortEntries {
  std::vector<ShortEntry> all;
  bool lost = false;            ///< one cannot be understood: nobody knows whose entry ends early
  std::optional<Error> unread;  ///< one cannot be read now, so the same may be true
};
/// Files that cannot be understood are logged and stay.
LoadedShortEntries load_short_entries(const std::string& dir);

/// A reading of the monitors' clock, and this node's clocks at that moment.
struct MonitorsClock {
  std::chrono::system_clock::time_point showed;
  time_point at;
  std::chrono::system_clock::time_point wall_at;
  /// While a machine sleeps only its wall clock goes on. Being ahead is safe: then an entry is added in vain.
  std::chrono::system_clock::time_point now(time_point steady, std::chrono::system_clock::time_point wall) const {
    const auto awake = std::chrono::duration_cast<std::chrono::system_clock::duration>(steady - at);
    return showed + std::max(awake, wall - wall_at);
  }
};

/// Action for a short entry, by the present blocklist.
struct Renewal {
  enum class Step {
    wait,
    add,    ///< it has gone
    forget  ///< it lasts long enough now, or somebody removed it before its end
  } step = Step::wait;
  std::chrono::milliseconds look_again{};  ///< after this time
};
/// `now`: of the monitors' clock. If it is not known (`exact`), nobody can say that an entry went before its end.
Renewal next_renewal(const ShortEntry& entry, const std::vector<image::BlocklistEntry>& listed,
                     std::chrono::system_clock::time_point now, bool exact);

}  // namespace corbd::rbd
