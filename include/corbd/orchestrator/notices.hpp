// Decides which changes of a volume are worth an Event, and when. Pure: the caller passes the time and keeps the timer.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/kube/recorder.hpp"
#include "corbd/plan/wish.hpp"
#include "corbd/volume/status.hpp"

namespace corbd::orchestrator {

/// Makes HealedByOverride or LossAccepted, by the operator's words; or OverrideRefused with the reason.
kube::Notice override_notice(const plan::Healed& word, const std::string& by, const result<>& done);

/// Makes VolumeStalled, VolumeFenced, NodeFenced, HealingFailed, VolumeLost and VolumeHealed, each at most once per
/// stall. A stall that ends within stalled_after, as after a restart of the agent, is not worth a notice.
class Notices {
 public:
  struct Config {
    std::chrono::seconds stalled_after{10}, failed_after{60};
  };
  struct Told {
    std::string volume_id;
    kube::Notice notice;
  };
  Notices() = default;
  explicit Notices(Config config) : config_(config) {}

  /// `status`: the changed volume's.
  std::vector<Told> changed(const volume::Change& change, const volume::Status& status, time_point now);
  /// Returns the notices that are due because a stall has lasted long enough.
  std::vector<Told> due(const std::vector<volume::Status>& all, time_point now);
  /// Returns when due() may have something; max() if never.
  time_point next() const;

 private:
  struct Stall {
    time_point since{};
    std::set<std::string> told;  ///< reasons already reported
  };
  Config config_;
  std::map<std::string, Stall> stalls_;
};

}  // namespace corbd::orchestrator
