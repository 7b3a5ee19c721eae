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

  /// Asks for a check, or tells how far it is. A `token` names one run of the command. `refused`: why none may begin.
  result<ManualCheck> ask(const std::string& id, const std::string& token, bool repair,
                          const std::optional<Error>& refused = std::nullopt);
  /// Called by the stage. Returns whether to repair; nothing: no check was asked for, or nobody waits for it any more.
  std::optional<bool> begin(const std::string& id, const std::string& device);
  void end(const std::string& id, result<host::Inspection> found);

 private:
  struct Asked {
    std::string token;
    bool repair = false;
    ManualCheck::State state = ManualCheck::State::waits;
    time_point since{}, asked_at{};
    std::string device;
    std::optional<result<host::Inspection>> found;
  };
  void forget_old();
  Clock& clock_;
  std::map<std::string, Asked> asked_;  ///< by volume ID
};

}  // namespace corbd::volume
