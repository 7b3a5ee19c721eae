// What of a volume's changes is worth telling people, and when. Pure: told the time, keeps no timer.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/kube/recorder.hpp"
#include "corbd/volume/status.hpp"

namespace corbd::heal {

/// HealedByWord, or HealByWordRefused with the reason: an operator's word in the place of a proof.
kube::Notice vouched_notice(const std::string& by, const result<>& done);

/// VolumeStalled, VolumeFenced, HealingFailed, VolumeLost, VolumeHealed; each once a stall. A stall that an agent's
/// restart heals in time is none.
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

  /// `status`: of the volume behind the change.
  std::vector<Told> changed(const volume::Change& change, const volume::Status& status, time_point now);
  /// What the time has brought.
  std::vector<Told> due(const std::vector<volume::Status>& all, time_point now);
  /// When due() may have something to say; max() if never.
  time_point next() const;

 private:
  struct Stall {
    time_point since{};
    std::set<std::string> told;  ///< reasons
  };
  Config config_;
  std::map<std::string, Stall> stalls_;
};

}  // namespace corbd::heal
