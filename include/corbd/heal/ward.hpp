// Who is tried next. Pure: told the time and how tries ended, it says whom to try and when to ask again.
//
// Requests that wait in the kernel come first, then the device whose dead-connection time ends next. At most `at_once`
// are tried together; each volume has its own backoff, which starts over only after two minutes of health; each cluster
// has a breaker, so that hundreds of volumes of a dead cluster cost it one question at a time.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "corbd/heal/breaker.hpp"

namespace corbd::heal {

struct Patient {
  std::string volume_id;
  std::string cluster_id;
  std::string why;             ///< what made it one
  bool blocked = false;        ///< requests wait in the kernel
  time_point since{};          ///< unserved since; the dead-connection time counts from there
  std::uint32_t attempts = 0;  ///< tries that failed
  time_point due{};            ///< not tried before
  time_point unheard{};  ///< when a try of it ended without an answer of its cluster; the one that asks for all is
                         ///< another each time
  bool under_way = false;
};

enum class Outcome {
  healed,      ///< the cluster answered
  well,        ///< nothing had to be done
  failed,      ///< the cluster answered; the next try comes after the volume's backoff
  not_asked,   ///< something of this node failed first
  unreachable  ///< the cluster did not answer
};
std::string_view name(Outcome outcome);

class Ward {
 public:
  struct Config {
    std::size_t at_once = 16;
    Backoff backoff{};
    std::chrono::seconds reset_after{120};
    std::chrono::seconds at_once_again{
        5};  ///< what is down again within this time after it was healed counts as a try that failed
  };
  explicit Ward(Config config) : config_(config) {}

  /// `found`: volume_id, cluster_id, why, blocked and since count. One that is known already keeps its attempts and its
  /// due time.
  void admit(Patient found, time_point now);
  /// By hand: tried at once, whatever failed before.
  void hurry(const std::string& volume_id, time_point now);
  /// The volume is healthy or gone.
  void discharge(const std::string& volume_id, time_point now);

  /// Whom to try now; they count as under way until ended().
  std::vector<std::string> start(time_point now);
  void ended(const std::string& volume_id, Outcome outcome, time_point now, double random);
  /// When start() may have more to say without an admit() or ended() before; max() if never.
  time_point next(time_point now) const;

  const std::map<std::string, Patient>& patients() const { return patients_; }
  /// Whether that cluster's breaker is open: nobody but one asks it.
  bool waits_for_cluster(const std::string& cluster_id) const;
  /// Tries that ended, by Outcome.
  using Counts = std::array<std::uint64_t, static_cast<std::size_t>(Outcome::unreachable) + 1>;
  const Counts& ended() const { return ended_; }

 private:
  struct Past {
    std::uint32_t attempts;
    time_point healed_at;
    bool by_a_try = false;  ///< otherwise it was well without one
  };
  Breaker& breaker(const std::string& cluster_id);

  Config config_;
  std::size_t under_way_ = 0;
  Counts ended_{};
  std::map<std::string, Patient> patients_;
  std::map<std::string, Past> healed_;       ///< not yet healthy for long enough to be forgotten
  std::map<std::string, Breaker> breakers_;  ///< by cluster id
};

}  // namespace corbd::heal
