// The threads for the calls of each cluster.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blocking_calls.hpp"

namespace corbd::rbd {

struct Connection;

/// The threads for one cluster, in eight shares. A call to a monitor ends by mon_timeout. A call on an image, or on the
/// journal that names it, may wait as long as its placement group is down. Such calls must not prevent new connections.
/// Repeated stages, and the periodic checks, must not prevent volumes from being opened. A client that cannot reach the
/// monitors waits for ever for its OSD map, without a time limit of librados, and must not prevent new connections.
/// Counts of used bytes must delay nothing.
struct ClusterThreads {
  static constexpr std::size_t kCluster = 2, kNames = 4, kImages = 8, kLooks = 2, kTrials = 1, kComparisons = 1,
                               kMaps = 2, kCounts = 1;
  ClusterThreads(executor control, Clock& clock, const std::string& cluster_id)
      : pool(control, clock, kCluster + kNames + kImages + kLooks + kTrials + kComparisons + kMaps + kCounts),
        cluster(control, clock, pool, "cluster " + cluster_id, kCluster),
        names(control, clock, pool, "names of images of cluster " + cluster_id, kNames),
        images(control, clock, pool, "images of cluster " + cluster_id, kImages),
        looks(control, clock, pool, "looks at images of cluster " + cluster_id, kLooks),
        trials(control, clock, pool, "trials with a new client of cluster " + cluster_id, kTrials),
        comparisons(control, clock, pool, "comparisons of clients of cluster " + cluster_id, kComparisons),
        maps(control, clock, pool, "OSD maps of cluster " + cluster_id, kMaps),
        counts(control, clock, pool, "counts of used bytes of cluster " + cluster_id, kCounts) {}
  bool idle() const {
    return std::ranges::all_of(shares(), [](const auto* share) { return share->idle(); });
  }
  std::array<const BlockingCalls*, 8> shares() const {
    return {&cluster, &names, &images, &looks, &trials, &comparisons, &maps, &counts};
  }
  BlockingPool pool;
  BlockingCalls cluster;
  BlockingCalls names;
  BlockingCalls images;
  BlockingCalls looks;
  BlockingCalls trials;
  BlockingCalls comparisons;
  BlockingCalls maps;
  BlockingCalls counts;
};

/// Control thread only.
class ThreadsByCluster {
 public:
  ThreadsByCluster(executor control, Clock& clock) : control_(control), clock_(clock) {}
  ClusterThreads& of(const std::string& cluster_id);
  /// Threads stay as long as a connection noted here uses them.
  void note_connection(const std::shared_ptr<Connection>& connection) { connections_.push_back(connection); }
  /// Gives the cluster new threads, because calls without an answer may keep the old ones for ever. False: the present
  /// ones are idle, or three replaced sets are still in use, because in an outage new ones do not help.
  bool renew(const std::string& cluster_id);

 private:
  void end_unused();

  executor control_;
  Clock& clock_;
  std::map<std::string, std::unique_ptr<ClusterThreads>> newest_;
  std::multimap<std::string, std::unique_ptr<ClusterThreads>> replaced_;
  std::vector<std::weak_ptr<Connection>> connections_;
};

}  // namespace corbd::rbd
