#include "policy_parts.hpp"

namespace corbd::manager {

using At = PathState::At;

/// Only a volume that is mounted and answers can grow.
Action next_of_expand(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen) {
  const std::string& path = wish.mount.target;
  if (!claim) return failed(errc::not_found, "nothing was mounted at " + path + " through a plugin");
  if (claim->phase != Claim::Phase::mounted)
    return failed(errc::failed_precondition,
                  "a mount or an unmount of " + path + " was begun and did not end: `corbd mounts` says how to go on");
  if (!seen.stages) return {StepKind::look_plugin};
  if (!seen.target) return {StepKind::look_target};
  const PathState& target = *seen.target;
  if (target.at == At::unknown)
    return failed(errc::unavailable, "cannot tell whether " + path + " is mounted: " + target.text);
  if (target.at == At::dead)
    return failed(errc::failed_precondition,
                  "the device under " + path + " is gone (" + target.text + "): end who uses it, then mount it again");
  if (target.at != At::mounted)
    return failed(errc::failed_precondition, path + " is not mounted: mount it, and it gets the size of its image");
  if (wants_staging(*claim, seen)) return {StepKind::look_staging};
  if (whose(*claim, seen) == Whose::another) return foreign(path, target);
  if (!seen.expanded) return {StepKind::expand};
  return {StepKind::done};
}

}  // namespace corbd::manager
