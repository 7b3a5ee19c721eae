// Decides which volumes are tried next. Pure: the caller passes the time and how tries ended. The queue says which
// volume to try and when to ask again.
//
// Volumes with requests that wait in the kernel come first, then the device whose dead-connection time ends next. At
// most `at_once` volumes are tried together. Each volume has its own backoff, which starts over only after two minutes
// of health. Each cluster has a breaker, so that hundreds of volumes of a dead cluster ask it one question at a time.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/breaker.hpp"
#include "corbd/core/result.hpp"

namespace corbd::heal {

/// A volume that waits for healing.
struct HealEntry {
  std::string volume_id;
  std::string cluster_id;
  std::string why;             ///< reason why it needs healing
  bool blocked = false;        ///< requests wait in the kernel
  time_point since{};          ///< start of the outage; the dead-connection time counts from there
  std::uint32_t attempts = 0;  ///< failed tries
  time_point due{};            ///< earliest time of the next try
  time_point unheard{};        ///< time of its last try without an answer; the cluster's other volumes then ask first
  bool under_way = false;
  errc failed_with = errc::ok;        ///< the cluster's answer to its last try, if that failed
  std::optional<time_point> own_due;  ///< while it is due because another volume was healed: when its backoff ends
  bool was_hurried = false;           ///< such a try failed, and none at the end of its own backoff has ended since
};

enum class Outcome {
  healed,      ///< the cluster answered
  well,        ///< nothing had to be done
  failed,      ///< the cluster answered, but the volume is not served; the volume's backoff decides when to try again
  not_asked,   ///< something on this node failed first
  unreachable  ///< the cluster did not answer
};
std::string_view name(Outcome outcome);

class HealQueue {
 public:
  struct Config {
    std::size_t at_once = 16;
    Backoff backoff{};
    std::chrono::seconds reset_after{120};
    /// If a volume is down again within this time after it was healed, the try counts as failed.
    std::chrono::seconds at_once_again{5};
  };
  explicit HealQueue(Config config) : config_(config) {}

  /// Uses only found's volume_id, cluster_id, why, blocked and since. A known entry keeps its attempts and due time.
  void add(HealEntry found, time_point now);
  /// Makes the volume due now, whatever failed before.
  void retry_now(const std::string& volume_id, time_point now);
  /// Removes a volume that is healthy or gone.
  void remove(const std::string& volume_id, time_point now);

  /// Returns the volumes to try now. They count as under way until ended().
  std::vector<std::string> start(time_point now);
  /// `answer`: the cluster's, after Outcome::failed. Once a volume is healed, the others of its cluster that failed
  /// with the same answer are due: the cause may have been common, such as a fence of the node.
  void ended(const std::string& volume_id, Outcome outcome, time_point now, double random, errc answer = errc::ok);
  /// Returns when start() may have more without an add() or ended() before; max() if never.
  time_point next(time_point now) const;

  const std::map<std::string, HealEntry>& entries() const { return entries_; }
  /// Whether the cluster's breaker is open, so that one volume asks for all.
  bool waits_for_cluster(const std::string& cluster_id) const;
  /// Number of tries that ended with each Outcome.
  using Counts = std::array<std::uint64_t, static_cast<std::size_t>(Outcome::unreachable) + 1>;
  const Counts& ended() const { return ended_; }

 private:
  struct Past {
    std::uint32_t attempts;
    time_point healed_at;
    bool by_a_try = false;  ///< false: it needed no try
  };
  Breaker& breaker(const std::string& cluster_id);
  void hurry_others(const HealEntry& healed, time_point now);

  Config config_;
  std::size_t under_way_ = 0;
  Counts ended_{};
  std::map<std::string, HealEntry> entries_;
  std::map<std::string, Past> healed_;       ///< volumes whose health has lasted less than reset_after
  std::map<std::string, Breaker> breakers_;  ///< by cluster ID
};

}  // namespace corbd::heal
