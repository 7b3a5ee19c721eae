// Fences the dead incarnations of this agent, and changes the blocklist of a cluster.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/image/image.hpp"
#include "earlier_agents.hpp"
#include "incarnation.hpp"
#include "renewal.hpp"

namespace corbd::rbd {

struct Attempt;
struct Connection;

/// Implements rule 2: fence before you write. Each call is about the cluster of the connection that it gets. Control
/// thread only.
class Fencing {
 public:
  /// `all` owns it.
  Fencing(Connections& all, BlockingPool& files, Incarnations& incarnations, const EarlierAgents& earlier,
          Renewals& renewals);
  /// Blocklists the dead incarnations. Joins a fencing that is under way.
  task<result<>> fence(Lease lease, Until until);
  /// unavailable as long as a dead incarnation of that cluster is not fenced.
  result<> all_fenced(const std::string& fsid);
  /// Implements image::Clusters::inherit.
  task<result<>> inherit(Lease lease, std::string address);
  /// Implement image::Clusters::blocklist, block and unblock.
  task<result<image::Blocklist>> blocklist(Lease lease);
  task<result<std::vector<result<>>>> change_blocklist(Lease lease, std::vector<image::BlocklistEntry> entries,
                                                       std::optional<std::chrono::seconds> block_for);
  /// Implements image::Clusters::end_refused.
  task<result<image::OwnClients>> end_refused(Lease lease, Until until);
  /// Returns the number of the last fencing. A connection that is made later has its OSD map.
  std::uint64_t last() const { return last_; }
  /// Waits until the connection has the OSD map of the last fencing.
  task<result<>> await_map(const Lease& lease, Until until);

 private:
  void drop_refused(const image::Blocklist& now);
  void fence_anew(const image::Blocklist& now);
  image::OwnClients own_clients(const std::string& fsid) const;
  task<> fence_all(Lease lease, std::shared_ptr<Attempt> attempt);
  task<result<>> fence_dead_of(const Connection& through);
  /// Waits until every connection to that cluster has the OSD map of the last fencing.
  task<result<>> await_maps(std::string fsid);
  task<> record_fenced(Incarnation incarnation);

  Connections& all_;
  BlockingPool& files_;
  Incarnations& incarnations_;
  const EarlierAgents& earlier_;
  Renewals& renewals_;
  std::uint64_t last_ = 0;
};

}  // namespace corbd::rbd
