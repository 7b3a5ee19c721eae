// Checks of filesystems that operators ask for (`corbd fsck`). A check needs what a mount needs: an image that is ours
// alone, and its device, which no mount shows. So the next stage of the volume carries it out, right before its own
// check.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "volume_map.hpp"

namespace corbd::volume {

/// Returns why no check of the volume may begin, for as long as it is as it is now: who uses it.
std::optional<Error> why_not_checked(const Volume& volume, const Ports& ports);

class ManualChecks {
 public:
  explicit ManualChecks(Clock& clock) : clock_(clock) {}

  /// Asks for a check, or tells how far it is. A `token` names one run of the command; several may wait for the same
  /// check, and each gets its result. A run that wants no repair takes back a repair that has not begun, and those that
  /// wanted it get no result of another check. busy: another run's check without a repair is due, and this run wants a
  /// repair; or another's check has begun, and is not what this run wants. `refused`: why none may begin.
  result<ManualCheck> ask(const std::string& id, const std::string& token, bool repair,
                          const std::optional<Error>& refused = std::nullopt);
  /// Called by the stage. Returns whether to repair; nothing: no check was asked for, or nobody waits for it any more.
  std::optional<bool> begin(const std::string& id, const std::string& device);
  void end(const std::string& id, result<host::Inspection> found);

 private:
  /// The check that the next stage makes, or that it is making.
  struct Due {
    bool repair = false, begun = false;
    time_point since{};
    std::string device = {};
  };
  struct Run {
    time_point asked_at{};
    std::optional<ManualCheck> done = {};  ///< `lasts` is not set
    time_point done_at{};
  };
  struct Checks {
    std::optional<Due> due;
    std::map<std::string, Run> runs;  ///< by token
  };
  void forget_old();
  static Error busy(const std::string& id, const Due& due, time_point now);
  Clock& clock_;
  std::map<std::string, Checks> all_;  ///< by volume ID
};

}  // namespace corbd::volume
