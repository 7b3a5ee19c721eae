#include "policy_parts.hpp"

namespace corbd::manager {

using At = PathState::At;

/// Leaves out what is not mounted: a mount brings its secrets. A device that does not answer counts, because its Ceph
/// user may be gone.
Action next_of_refresh(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen) {
  if (!claim || claim->phase != Claim::Phase::mounted) return {StepKind::done};
  if (claim->volume != wish.mount.volume || claim->usage != wish.mount.usage)
    return failed(errc::already_exists, claim->target + " is claimed by volume " + claim->volume.external_id +
                                            (claim->volume == wish.mount.volume ? ", used in another way" : "") +
                                            ", which keeps its key: unmount that first");
  if (!seen.stages) return {StepKind::look_plugin};
  if (!*seen.stages) return {StepKind::done};
  if (!seen.target) return {StepKind::look_target};
  const PathState& target = *seen.target;
  const bool silent = target.at == At::unknown && !target.mount.empty();
  if (target.at == At::unknown && !silent)
    return failed(errc::unavailable, "cannot tell whether " + claim->target + " is mounted: " + target.text);
  if (target.at != At::mounted && !silent) return {StepKind::done};
  if (wants_staging(*claim, seen)) return {StepKind::look_staging};
  const Whose mount = whose(*claim, seen);
  if (mount == Whose::another) return {StepKind::done};
  if (mount == Whose::untold && silent)
    return failed(errc::unavailable, "cannot tell whether the mount at " + claim->target + " is that of " +
                                         claim->volume.name + ": " + target.text);
  if (!seen.staged) return {StepKind::stage};
  return {StepKind::done};
}

}  // namespace corbd::manager
