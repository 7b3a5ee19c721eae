#include <boost/algorithm/string/join.hpp>

#include "policy_parts.hpp"

namespace corbd::manager {

using Phase = Claim::Phase;
using At = PathState::At;

namespace {

Action claim_as(Phase phase, bool again) { return {StepKind::save_claim, phase, {}, again}; }

/// Returns why the mount at the target must stay, or the look that shows its owner; nothing if it is ours.
std::optional<Action> refuse_another(const Claim& claim, const MountFacts& seen) {
  if (wants_staging(claim, seen)) return Action{StepKind::look_staging};
  const Whose mount = whose(claim, seen);
  if (mount == Whose::another) return foreign(claim.target, *seen.target);
  if (mount == Whose::ours || !*seen.stages) return std::nullopt;
  if (seen.staging->at == At::unknown)
    return failed(errc::unavailable, "whether the mount at " + claim.target + " is that of " + claim.volume.name +
                                         " is not known: " + seen.staging->text + ". It stays claimed");
  // A raw block volume that was to be mounted in this boot need not show at its staging path.
  const bool block = claim.usage.attachment == AccessType::block;
  if (block && !seen.boot_id.empty() && claim.boot_id == seen.boot_id) return std::nullopt;
  return foreign(claim.target, *seen.target);
}

Action take_down_target(const Claim& claim, const MountFacts& seen, bool again) {
  if (!seen.target) return {StepKind::look_target};
  const PathState& target = *seen.target;
  // Nothing of the claim is mounted, and a plugin that got the path would work wherever somebody else points it.
  if (target.barred && of_another_boot(claim, seen.boot_id)) return claim_as(Phase::leaving, again);
  if (target.at == At::unknown)
    return failed(errc::unavailable,
                  "cannot tell whether " + claim.target + " is mounted: " + target.text + ". It stays claimed");
  // The plugin would unmount anything that is there.
  if (target.is_mount() && !seen.unpublished)
    if (auto refused = refuse_another(claim, seen)) return *refused;
  if (target.at == At::mounted && !seen.unpublished) {
    if (!seen.users) return {StepKind::look_users};
    if (!seen.users->empty()) return in_use(claim.target, *seen.users);
  }
  if (claim.phase != Phase::unmounting) return claim_as(Phase::unmounting, again);
  // Plugins remove the target (CSI, NodeUnpublishVolume), and one may remove its content.
  if (target.at == At::filled || target.at == At::link) return claim_as(Phase::leaving, again);
  // Unpublish even if nothing is mounted: the plugin may keep something, and a process may have died inside its
  // publish.
  if (!seen.unpublished) return {StepKind::unpublish};
  if (target.is_mount())
    return failed(errc::in_use, "the plugin says that it unpublished the volume, but " + claim.target +
                                    " is still mounted: another program may have mounted there, too. Look at "
                                    "/proc/self/mountinfo");
  return claim_as(Phase::leaving, again);
}

}  // namespace

Action failed(errc code, std::string text) { return {StepKind::fail, Phase::mounting, {code, std::move(text)}}; }

bool comparable(AccessType attachment, const PathState& staging) {
  return staging.is_mount() && (attachment == AccessType::filesystem || staging.mount.starts_with(kDevicePrefix));
}

Whose whose_by_claim(const Claim& claim, const PathState& target, const std::string& boot_id) {
  if (of_another_boot(claim, boot_id)) return Whose::another;
  if (claim.shown.empty()) return Whose::untold;
  return target.mount == claim.shown ? Whose::ours : Whose::another;
}

Whose whose(const Claim& claim, const MountFacts& seen) {
  const Whose told = whose_by_claim(claim, *seen.target, seen.boot_id);
  if (told != Whose::untold || !seen.staging || !comparable(claim.usage.attachment, *seen.staging)) return told;
  return seen.target->mount == seen.staging->mount ? Whose::ours : Whose::another;
}

bool wants_staging(const Claim& claim, const MountFacts& seen) {
  return *seen.stages && !seen.staging && whose(claim, seen) == Whose::untold;
}

bool of_another_boot(const Claim& claim, const std::string& boot_id) {
  return !claim.boot_id.empty() && !boot_id.empty() && claim.boot_id != boot_id;
}

Action foreign(const std::string& path, const PathState& target) {
  return failed(errc::failed_precondition,
                "another mount is at " + path + ": " + target.mount + ". Unmount that first, or mount elsewhere");
}

Action in_use(const std::string& target, const std::vector<std::string>& users) {
  return failed(errc::in_use,
                target + " is in use by " + boost::algorithm::join(users, ", ") + ": end these processes first");
}

Action next_of_unmount(const Claim& claim, const Goal& wish, const MountFacts& seen) {
  if (!seen.stages) return {StepKind::look_plugin};
  // An unmount that had begun was somebody's wish.
  const bool begun = !claim.again && (claim.phase == Phase::unmounting || claim.phase == Phase::leaving);
  const bool again = wish.what == Goal::What::set_down && !begun;
  // Nothing of it is mounted, and its claim is for the next mount.
  if (again && of_another_boot(claim, seen.boot_id)) return {StepKind::done};
  if (claim.again && !again) return claim_as(claim.phase, false);
  if (claim.phase != Phase::leaving) return take_down_target(claim, seen, again);
  if (*seen.stages && seen.others.empty()) {
    if (!seen.unstaged) return {StepKind::unstage};
    if (!seen.staging) return {StepKind::look_staging};
    if (seen.staging->at == At::unknown)
      return failed(errc::unavailable,
                    "cannot tell whether the staging path " + claim.staging + " is mounted: " + seen.staging->text);
    if (seen.staging->is_mount())
      return failed(errc::in_use, "the plugin says that it unstaged the volume, but " + claim.staging +
                                      " is still mounted: its log may say why");
  }
  if (!seen.cleaned) return {StepKind::clean};
  if (again) return {StepKind::done};
  return {StepKind::drop_claim};
}

std::string_view name(StepKind what) {
  switch (what) {
    case StepKind::look_plugin:
      return "look at the plugin";
    case StepKind::look_target:
      return "look at the target";
    case StepKind::look_staging:
      return "look at the staging path";
    case StepKind::look_users:
      return "look who uses the target";
    case StepKind::save_claim:
      return "save the claim";
    case StepKind::make_staging:
      return "make the staging folder";
    case StepKind::stage:
      return "stage";
    case StepKind::publish:
      return "publish";
    case StepKind::unpublish:
      return "unpublish";
    case StepKind::unstage:
      return "unstage";
    case StepKind::expand:
      return "expand";
    case StepKind::clean:
      return "remove empty folders";
    case StepKind::drop_claim:
      return "drop the claim";
    case StepKind::done:
      return "done";
    case StepKind::fail:
      return "fail";
  }
  return "?";
}

}  // namespace corbd::manager
