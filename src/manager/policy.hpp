// Decides the next step of a mount, an unmount, a refresh or an expansion. Pure: every step follows from the claim, the
// wish, and what was seen, so a crash needs no code of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/manager/node.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

struct Goal {
  enum class What {
    mount,
    unmount,
    expand,    ///< grows the device and its filesystem to the size of the image
    refresh,   ///< repeats the stage of what is mounted, with the present secrets; mounts nothing
    set_down,  ///< unmounts, but keeps the claim for another mount; an unmount that had begun is completed
  };
  What what = What::mount;
  Mount mount;  ///< only of a mount or a refresh
};

/// Known facts. An absent fact is looked up before it is needed (I2).
struct MountFacts {
  std::string boot_id = {};    ///< the running boot; empty: unknown
  std::optional<bool> stages;  ///< STAGE_UNSTAGE_VOLUME
  std::optional<PathState> target, staging;
  std::optional<std::vector<std::string>> users;  ///< processes on the target
  std::vector<std::string> others;                ///< targets of the other users of the same staging path
  /// Calls that succeeded in this operation.
  bool staged = false, published = false, unpublished = false, unstaged = false, cleaned = false, expanded = false;
};

enum class StepKind {
  look_plugin,
  look_target,
  look_staging,
  look_users,
  save_claim,  ///< with `phase` and `again`
  make_staging,
  stage,
  publish,
  unpublish,
  unstage,
  expand,
  clean,  ///< removes our empty folders, and restores what was at the target
  drop_claim,
  done,
  fail,
};

struct Action {
  StepKind what = StepKind::fail;
  Claim::Phase phase = Claim::Phase::mounting;  ///< for save_claim
  Error error = {};                             ///< for fail
  bool again = false;                           ///< for save_claim
};

Action next_step(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen);

std::string_view name(StepKind what);

}  // namespace corbd::manager
