// Renews blocklist entries that somebody else made for too short a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "blocklist.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/wait.hpp"

namespace corbd::rbd {

class Connections;
class Lease;

/// Control thread only.
class Renewals {
 public:
  /// `all` owns it. `files`: for the notes.
  Renewals(Connections& all, BlockingPool& files);
  /// Renews what earlier agents have noted, too.
  void take_notes(const std::vector<ShortEntry>& notes);
  /// Writes notes of entries that end early, and learns the monitors' clock from the change. state_write: the next
  /// agent would not know all of them.
  task<result<>> note_ending_early(std::string fsid, std::string cluster_id, BlocklistChange change);
  /// Forgets clients that somebody unblocked: an entry of ours for them is not wanted.
  task<> forget_unblocked(std::string fsid, std::vector<image::BlocklistEntry> entries, std::vector<result<>> results);
  /// Returns the clients of that cluster whose entries end early.
  std::vector<std::string> clients(const std::string& fsid) const;
  /// Wakes the renewals, because something that they wait for has changed.
  void look_again();
  /// The agent leaves.
  void stop() { pauses_.cancel(); }

 private:
  void renew_noted();
  task<> renew(std::string fsid);
  /// Leases one of the cluster's connections, each in its turn.
  std::optional<Lease> lease_of(const std::string& fsid, std::size_t turn);
  task<RenewalLook> look_at_short(Lease lease);
  task<> forget_short(std::string uuid);

  Connections& all_;
  BlockingPool& files_;
  std::vector<ShortEntry> entries_;
  std::set<std::string> renewing_;               ///< fsids of clusters
  std::map<std::string, MonitorsClock> clocks_;  ///< by fsid; needed because this node's own clock may be set
  CancelScope pauses_;
  std::shared_ptr<Event> looks_again_;  ///< wakes renewals before their time
};

}  // namespace corbd::rbd
