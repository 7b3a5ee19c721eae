#include "policy.hpp"

#include <boost/algorithm/string/join.hpp>

#include "policy_parts.hpp"

namespace corbd::manager {

using Phase = Claim::Phase;
using At = PathState::At;

namespace {

Action save(Phase phase) { return {StepKind::save_claim, phase, {}}; }

/// Returns why nothing may be mounted at the target; nothing if it may.
std::optional<Action> refuse_target(const Goal& wish, const PathState& target) {
  const std::string& path = wish.mount.target;
  const bool block = wish.mount.usage.attachment == AccessType::block;
  switch (target.at) {
    case At::unknown:
      return failed(errc::unavailable, "what is at " + path + " is not known: " + target.text);
    case At::link:
      return failed(errc::invalid_argument,
                    path + " is a symbolic link: give the path that it leads to, or remove the link");
    case At::filled:
      return failed(errc::failed_precondition, path + " is not empty: it holds " + target.text +
                                                   ", which a mount would hide. Move that away, or mount elsewhere");
    case At::file:
      if (block) return std::nullopt;
      return failed(errc::failed_precondition,
                    path + " is a file, and a filesystem needs a folder: remove the file, or mount elsewhere");
    case At::folder:
      if (!block) return std::nullopt;
      return failed(errc::failed_precondition, path +
                                                   " is a folder, and a raw block volume is bound on a file: remove "
                                                   "the folder, or give a path where nothing is");
    default:
      return std::nullopt;
  }
}

/// Judges a mount without a claim. It is ours only if it shows what is staged: its claim may have been lost.
std::optional<Action> judge_unclaimed(const Goal& wish, const MountFacts& seen) {
  const AccessType attachment = wish.mount.usage.attachment;
  if (!*seen.stages) return foreign(wish.mount.target, *seen.target);
  if (!seen.staging) return Action{StepKind::look_staging};
  if (!comparable(attachment, *seen.staging) || seen.staging->mount != seen.target->mount)
    return foreign(wish.mount.target, *seen.target);
  return std::nullopt;
}

/// Unmounts a staging mount whose device is gone, if nobody else uses it, because nothing can be served by it.
Action replace_dead_staging(const MountFacts& seen, const std::string& path) {
  if (seen.target->is_mount()) {
    if (!seen.users) return {StepKind::look_users};
    if (!seen.users->empty()) return in_use(path, *seen.users);
    if (!seen.unpublished) return {StepKind::unpublish};
    return failed(errc::failed_precondition, "the device under " + path + " is gone (" + seen.target->text +
                                                 "), and the plugin does not unmount it: its log says why");
  }
  if (!seen.others.empty())
    return failed(errc::failed_precondition,
                  "the device of the volume is gone (" + seen.staging->text + "), and it is still mounted at " +
                      boost::algorithm::join(seen.others, ", ") + ": unmount that first, then mount all again");
  if (!seen.unstaged) return {StepKind::unstage};
  return failed(errc::failed_precondition, "the device of the volume is gone (" + seen.staging->text +
                                               "), and the plugin does not unstage it: its log says why");
}

/// Returns the next missing step below the target. Nothing once the volume is staged.
std::optional<Action> bring_up_staging(const Claim& claim, const MountFacts& seen) {
  if (!seen.staging) return Action{StepKind::look_staging};
  const bool block = claim.usage.attachment == AccessType::block;
  switch (seen.staging->at) {
    case At::unknown:
      return failed(errc::unavailable,
                    "what is at the staging path " + claim.staging + " is not known: " + seen.staging->text);
    case At::link:
    case At::file:
      return failed(errc::failed_precondition,
                    "the staging path " + claim.staging + " is not a folder: find out who made it, and remove it");
    case At::dead:
      return replace_dead_staging(seen, claim.target);
    case At::nothing:
      return Action{StepKind::make_staging};
    case At::mounted:
      // A plugin is free in what it keeps there for a raw block volume, so a mount proves nothing.
      if (!block || seen.staged) return std::nullopt;
      return Action{StepKind::stage};
    default:
      if (seen.staged) return std::nullopt;
      return Action{StepKind::stage};
  }
}

/// Requires that the volume is staged, or that its plugin does not stage.
Action bring_up_target(const Claim& claim, const MountFacts& seen) {
  const PathState& target = *seen.target;
  if (target.at == At::dead) {
    if (!seen.users) return {StepKind::look_users};
    if (!seen.users->empty()) return in_use(claim.target, *seen.users);
    if (!seen.unpublished) return {StepKind::unpublish};
    return failed(errc::failed_precondition, "the mount at " + claim.target + " is dead (" + target.text +
                                                 "), and the plugin does not unmount it: its log says why");
  }
  if (target.at == At::mounted) {
    const Whose mount = whose(claim, seen);
    if (mount == Whose::another) return foreign(claim.target, target);
    if (claim.phase == Phase::mounted) {
      // An older claim has neither.
      const bool tells = claim.boot_id == seen.boot_id && claim.shown == target.mount;
      if (tells || mount == Whose::untold) return {StepKind::done};
      return save(Phase::mounted);
    }
    if (seen.published) return save(Phase::mounted);
    // A process that died in between may have published it. Publish is idempotent, so ask the plugin.
    return {StepKind::publish};
  }
  if (seen.published)
    return failed(errc::internal, "the plugin says that it published the volume, but nothing is mounted at " +
                                      claim.target + ": its log may say why. Nothing may write there");
  // Another device may be mounted there next.
  if (claim.phase == Phase::mounted) return save(Phase::mounting);
  return {StepKind::publish};
}

Action next_of_mount(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen) {
  if (claim && (claim->volume != wish.mount.volume || claim->usage != wish.mount.usage))
    return failed(errc::already_exists, claim->target + " is claimed by volume " + claim->volume.external_id +
                                            (claim->volume == wish.mount.volume ? ", used in another way" : "") +
                                            ": unmount that first, or mount elsewhere");
  if (!seen.stages) return {StepKind::look_plugin};
  if (!seen.target) return {StepKind::look_target};
  if (auto refused = refuse_target(wish, *seen.target)) return *refused;
  if (!claim) {
    if (seen.target->is_mount())
      if (auto step = judge_unclaimed(wish, seen)) return *step;
    return save(Phase::mounting);
  }
  const bool mounted = seen.target->is_mount();
  if (mounted && whose_by_claim(*claim, *seen.target, seen.boot_id) == Whose::another)
    return foreign(claim->target, *seen.target);
  const bool begun_now = mounted || claim->boot_id == seen.boot_id;
  if (claim->phase == Phase::unmounting || claim->phase == Phase::leaving || !begun_now) return save(Phase::mounting);
  if (*seen.stages)
    if (auto step = bring_up_staging(*claim, seen)) return *step;
  return bring_up_target(*claim, seen);
}

}  // namespace

Action next_step(const std::optional<Claim>& claim, const Goal& wish, const MountFacts& seen) {
  if (wish.what == Goal::What::mount) return next_of_mount(claim, wish, seen);
  if (wish.what == Goal::What::expand) return next_of_expand(claim, wish, seen);
  if (wish.what == Goal::What::refresh) return next_of_refresh(claim, wish, seen);
  if (!claim) return {StepKind::done};
  return next_of_unmount(*claim, wish, seen);
}

}  // namespace corbd::manager
