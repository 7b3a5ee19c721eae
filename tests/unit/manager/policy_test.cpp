// The policy alone: from what is known to the next step.
#include "policy.hpp"

#include "support/catch.hpp"

using namespace corbd;
using manager::Claim;
using manager::Goal;
using manager::MountFacts;
using manager::PathState;
using manager::StepKind;
using At = PathState::At;
using Phase = Claim::Phase;

namespace {

PathState at(At what, const std::string& mount = "") { return {what, mount, "", 0}; }

/// Of a plugin that stages.
MountFacts seen_of(std::optional<PathState> target, std::optional<PathState> staging) {
  MountFacts seen;
  seen.stages = true;
  seen.target = std::move(target);
  seen.staging = std::move(staging);
  return seen;
}

Goal mount_wish() {
  Goal wish;
  wish.mount.volume = {"p", "id", "default", "name"};
  wish.mount.target = "/srv/a";
  return wish;
}

Claim claim_in(Phase phase) {
  Claim claim;
  claim.phase = phase;
  claim.volume = mount_wish().mount.volume;
  claim.target = "/srv/a";
  claim.staging = "/s";
  return claim;
}

/// As a mount saves it at its end.
Claim mounted_claim(const std::string& shown) {
  Claim claim = claim_in(Phase::mounted);
  claim.shown = shown;
  return claim;
}

StepKind mount_step(const std::optional<Claim>& claim, const MountFacts& seen) {
  return next_step(claim, mount_wish(), seen).what;
}
StepKind unmount_step(const std::optional<Claim>& claim, const MountFacts& seen) {
  return next_step(claim, {Goal::What::unmount, {}}, seen).what;
}

}  // namespace

TEST_CASE("a mount looks before it claims, and claims before it stages") {
  MountFacts seen;
  CHECK(mount_step({}, seen) == StepKind::look_plugin);
  seen.stages = true;
  CHECK(mount_step({}, seen) == StepKind::look_target);
  seen.target = at(At::nothing);
  CHECK(mount_step({}, seen) == StepKind::save_claim);
  const Claim claim = claim_in(Phase::mounting);
  CHECK(mount_step(claim, seen) == StepKind::look_staging);
  seen.staging = at(At::nothing);
  CHECK(mount_step(claim, seen) == StepKind::make_staging);
  seen.staging = at(At::folder);
  CHECK(mount_step(claim, seen) == StepKind::stage);
  seen.staging = at(At::mounted, "d");
  CHECK(mount_step(claim, seen) == StepKind::publish);
  seen.published = true;
  seen.target = at(At::mounted, "d");
  CHECK(mount_step(claim, seen) == StepKind::save_claim);
  CHECK(mount_step(mounted_claim("d"), seen) == StepKind::done);
}

TEST_CASE("a volume mounted at its staging path is not staged again, but a raw block volume is") {
  MountFacts seen = seen_of(at(At::nothing), at(At::mounted, "d"));
  CHECK(mount_step(claim_in(Phase::mounting), seen) == StepKind::publish);
  Goal wish = mount_wish();
  Claim claim = claim_in(Phase::mounting);
  wish.mount.usage.attachment = claim.usage.attachment = manager::AccessType::block;
  CHECK(next_step(claim, wish, seen).what == StepKind::stage);
}

TEST_CASE("a half-made mount at the target is published again, because publishing is idempotent") {
  MountFacts seen = seen_of(at(At::mounted, "d"), at(At::mounted, "d"));
  CHECK(mount_step(claim_in(Phase::mounting), seen) == StepKind::publish);
  CHECK(mount_step(mounted_claim("d"), seen) == StepKind::done);
}

TEST_CASE("a mount at the target that is not the staged one counts as foreign, with and without a claim") {
  MountFacts seen = seen_of(at(At::mounted, "other"), at(At::mounted, "d"));
  CHECK(mount_step(claim_in(Phase::mounted), seen) == StepKind::fail);
  CHECK(mount_step({}, seen) == StepKind::fail);
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::fail);
  seen.target = at(At::mounted, "d");
  CHECK(mount_step({}, seen) == StepKind::save_claim);
}

TEST_CASE("a mount after an unfinished unmount starts over and makes the claim valid again") {
  MountFacts seen = seen_of(at(At::nothing), at(At::mounted, "d"));
  const auto step = next_step(claim_in(Phase::leaving), mount_wish(), seen);
  CHECK(step.what == StepKind::save_claim);
  CHECK(step.phase == Phase::mounting);
}

TEST_CASE("an unmount unpublishes, then frees the claim, then unstages, then forgets it") {
  MountFacts seen;
  CHECK(unmount_step({}, seen) == StepKind::done);
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::look_plugin);
  seen.stages = true;
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::look_target);
  seen.target = at(At::mounted, "d");
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::look_staging);
  seen.staging = at(At::mounted, "d");
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::look_users);
  seen.users.emplace();
  CHECK(unmount_step(claim_in(Phase::mounted), seen) == StepKind::save_claim);
  CHECK(unmount_step(claim_in(Phase::unmounting), seen) == StepKind::unpublish);
  seen.unpublished = true;
  seen.target = at(At::nothing);
  const auto freed = next_step(claim_in(Phase::unmounting), {Goal::What::unmount, {}}, seen);
  CHECK(freed.what == StepKind::save_claim);
  CHECK(freed.phase == Phase::leaving);
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::unstage);
  seen.unstaged = true;
  seen.staging = at(At::folder);
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::clean);
  seen.cleaned = true;
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::drop_claim);
}

TEST_CASE("a staging path that others use is not unstaged") {
  MountFacts seen = seen_of({}, {});
  seen.others = {"/srv/b"};
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::clean);
}

TEST_CASE("a mount that is still there after the plugin's success is an error, and the claim stays") {
  MountFacts seen = seen_of(at(At::mounted, "d"), {});
  seen.unpublished = true;
  CHECK(unmount_step(claim_in(Phase::unmounting), seen) == StepKind::fail);
  seen = seen_of({}, at(At::mounted, "d"));
  seen.unstaged = true;
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::fail);
  seen.staging = at(At::unknown);
  CHECK(unmount_step(claim_in(Phase::leaving), seen) == StepKind::fail);
}

TEST_CASE("a dead mount that stays after a successful unstage is an error, not unstaged again") {
  MountFacts seen = seen_of(at(At::nothing), at(At::dead, "d"));
  seen.unstaged = true;
  CHECK(mount_step(claim_in(Phase::mounted), seen) == StepKind::fail);
  seen.unstaged = false;
  CHECK(mount_step(claim_in(Phase::mounted), seen) == StepKind::unstage);
}

TEST_CASE("an expansion looks first, and asks the plugin only for what is mounted and answers") {
  Goal wish = mount_wish();
  wish.what = Goal::What::expand;
  const auto step = [&](const std::optional<Claim>& claim, const MountFacts& seen) {
    return next_step(claim, wish, seen);
  };
  const Claim mounted = claim_in(Phase::mounted);
  MountFacts seen;
  CHECK(step({}, seen).error.code == errc::not_found);
  for (const Phase begun : {Phase::mounting, Phase::unmounting, Phase::leaving})
    CHECK(step(claim_in(begun), seen).error.code == errc::failed_precondition);
  CHECK(step(mounted, seen).what == StepKind::look_plugin);
  seen.stages = true;
  CHECK(step(mounted, seen).what == StepKind::look_target);
  const auto code_at = [&](At what) {
    seen.target = at(what, "d");
    return step(mounted, seen).error.code;
  };
  CHECK(code_at(At::unknown) == errc::unavailable);
  CHECK(code_at(At::dead) == errc::failed_precondition);
  CHECK(code_at(At::folder) == errc::failed_precondition);
  seen.target = at(At::mounted, "d");
  CHECK(step(mounted, seen).what == StepKind::look_staging);
  seen.staging = at(At::mounted, "other");
  CHECK(step(mounted, seen).error.code == errc::failed_precondition);
  seen.staging = at(At::mounted, "d");
  CHECK(step(mounted, seen).what == StepKind::expand);
  seen.expanded = true;
  CHECK(step(mounted, seen).what == StepKind::done);
}

TEST_CASE("a mount of another boot than its claim's counts as foreign, whatever the staging path shows") {
  Claim claim = claim_in(Phase::mounted);
  claim.boot_id = "before";
  claim.shown = "d";
  MountFacts seen = seen_of(at(At::mounted, "d"), at(At::mounted, "d"));
  seen.boot_id = "now";
  CHECK(unmount_step(claim, seen) == StepKind::fail);
  CHECK(mount_step(claim, seen) == StepKind::fail);
  seen.boot_id = "before";
  CHECK(unmount_step(claim, seen) == StepKind::look_users);
  CHECK(mount_step(claim, seen) == StepKind::done);
}

TEST_CASE("a claim's record of the mount decides, also with nothing staged and for a raw block volume") {
  for (const auto attachment : {manager::AccessType::filesystem, manager::AccessType::block}) {
    Claim claim = claim_in(Phase::mounted);
    claim.usage.attachment = attachment;
    claim.boot_id = "now";
    claim.shown = "the device nbd1";
    MountFacts seen = seen_of(at(At::mounted, "the device nbd1"), at(At::folder));
    seen.boot_id = "now";
    CHECK(unmount_step(claim, seen) == StepKind::look_users);
    seen.target = at(At::mounted, "the device sdb");
    CHECK(unmount_step(claim, seen) == StepKind::fail);
  }
}

TEST_CASE("a mount that an older claim does not describe is ours only if the staging path shows it") {
  for (const auto attachment : {manager::AccessType::filesystem, manager::AccessType::block}) {
    Claim claim = claim_in(Phase::mounted);
    claim.usage.attachment = attachment;
    MountFacts seen = seen_of(at(At::mounted, "the device nbd1"), {});
    seen.boot_id = "now";
    CHECK(unmount_step(claim, seen) == StepKind::look_staging);
    seen.staging = at(At::mounted, "the device nbd1");
    CHECK(unmount_step(claim, seen) == StepKind::look_users);
    for (const auto& staging : {at(At::folder), at(At::nothing), at(At::mounted, "the device nbd2")}) {
      seen.staging = staging;
      CHECK(next_step(claim, {Goal::What::unmount, {}}, seen).error.code == errc::failed_precondition);
    }
    seen.staging = at(At::unknown);
    CHECK(next_step(claim, {Goal::What::unmount, {}}, seen).error.code == errc::unavailable);
  }
}

TEST_CASE("a raw block volume whose plugin shows nothing at the staging path is unmounted if this boot mounted it") {
  Claim claim = claim_in(Phase::unmounting);
  claim.usage.attachment = manager::AccessType::block;
  claim.boot_id = "now";
  MountFacts seen = seen_of(at(At::mounted, "the device nbd1"), at(At::folder));
  seen.boot_id = "now";
  CHECK(unmount_step(claim, seen) == StepKind::look_users);
}

TEST_CASE("a mount claims its boot before it stages, and forgets what was mounted before it publishes anew") {
  Claim claim = claim_in(Phase::mounted);
  claim.boot_id = "before";
  MountFacts seen = seen_of(at(At::folder), at(At::folder));
  seen.boot_id = "now";
  CHECK(next_step(claim, mount_wish(), seen).what == StepKind::save_claim);
  CHECK(next_step(claim, mount_wish(), seen).phase == Phase::mounting);
  claim.boot_id = "now";
  seen.staging = at(At::mounted, "d");
  CHECK(next_step(claim, mount_wish(), seen).phase == Phase::mounting);
  claim.phase = Phase::mounting;
  CHECK(mount_step(claim, seen) == StepKind::publish);
}

TEST_CASE("setting down a mount of an earlier boot does nothing") {
  Claim claim = claim_in(Phase::mounted);
  claim.boot_id = "before";
  MountFacts seen = seen_of(at(At::mounted, "d"), {});
  seen.boot_id = "now";
  CHECK(next_step(claim, {Goal::What::set_down, {}}, seen).what == StepKind::done);
}
