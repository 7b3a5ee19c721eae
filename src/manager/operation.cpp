#include "operation.hpp"

#include <filesystem>

#include "corbd/core/log.hpp"

namespace corbd::manager {
namespace {

// A mount takes about ten steps, and replacing a dead one about ten more.
constexpr int kMostSteps = 60;
constexpr unsigned kStagingMode = 0700;  // Nomad's mode

Claim new_claim(const Mount& mount, const std::string& root) {
  Claim claim;
  claim.volume = mount.volume;
  claim.usage = mount.usage;
  claim.user = mount.user;
  claim.staging = staging_path(root, mount.volume, mount.usage);
  claim.target = mount.target;
  claim.volume_context = mount.volume_context;
  claim.publish_context = mount.publish_context;
  claim.notes = mount.notes;
  return claim;
}

/// Lists "clusterID a", for attributes that only `own` has, or that it has with another value.
std::string own_attributes(const Texts& own, const Texts& other) {
  std::string all;
  for (const auto& [key, value] : own) {
    const auto found = other.find(key);
    if (found == other.end() || found->second != value) all += (all.empty() ? "" : ", ") + key + " " + value;
  }
  return all.empty() ? "fewer attributes" : all;
}

/// A plugin may identify a volume by its id alone (a static image by its name), and then returns what it staged first.
result<> check_identity(const Claim& claim, const Mount& wanted) {
  const bool same_id =
      claim.volume.external_id == wanted.volume.external_id && claim.volume.plugin == wanted.volume.plugin;
  if (!same_id || claim.volume_context == wanted.volume_context) return {};
  return Error{errc::already_exists,
               claim.volume.name + " is mounted at " + claim.target + " with " +
                   own_attributes(claim.volume_context, wanted.volume_context) + ", and " + wanted.volume.name +
                   ", wanted at " + wanted.target + " with " +
                   own_attributes(wanted.volume_context, claim.volume_context) + ", has the same volume id " +
                   claim.volume.external_id +
                   ": its plugin could not tell the two apart. Unmount the first, or give one of two images another "
                   "name"};
}

/// Whether the plugin's error is final: another call would have the same answer.
bool is_final(errc code) {
  return code != errc::unavailable && code != errc::timed_out && code != errc::cancelled && code != errc::exhausted &&
         code != errc::in_use && code != errc::busy;
}

}  // namespace

task<result<>> MountRun::run() {
  if (auto known = co_await reload(); !known) co_return known.error();
  claimed_before_ = claim_.has_value();
  seen_.boot_id = base_.config.boot_id;
  co_return co_await steps();
}

/// Reads the files each time, because another process may have ended an operation since.
task<result<>> MountRun::reload() {
  auto loaded = co_await base_.ports.claims.load();
  if (!loaded) co_return loaded.error();
  claim_.reset();
  if (wish_.what == Goal::What::mount || wish_.what == Goal::What::refresh)
    for (const auto& claim : loaded->claims)
      if (auto checked = check_identity(claim, wish_.mount); !checked) co_return checked;
  for (const auto& claim : loaded->claims)
    if (claim.target == target_) claim_ = claim;
  const std::string staging =
      claim_ ? claim_->staging : staging_path(base_.config.root, wish_.mount.volume, wish_.mount.usage);
  const PluginVolume& volume = claim_ ? claim_->volume : wish_.mount.volume;
  seen_.others.clear();
  for (const auto& claim : loaded->claims) {
    if (claim.staging != staging || claim.target == target_) continue;
    if (claim.volume != volume)
      co_return Error{errc::already_exists, "the name " + volume.name + " is taken by volume " +
                                                claim.volume.external_id + " of " + claim.volume.plugin +
                                                ", mounted at " + claim.target + ": give this one another name"};
    if (uses(claim)) seen_.others.push_back(claim.target);
  }
  co_return result<>();
}

task<result<>> MountRun::steps() {
  for (int made = 0; made < kMostSteps; ++made) {
    const Action step = next_step(claim_, wish_, seen_);
    if (step.what == StepKind::done) co_return result<>();
    if (step.what == StepKind::fail) co_return step.error;
    log::debug("manager.step", {{"target", target_}, {"step", name(step.what)}});
    if (auto acted = co_await act(step); !acted) co_return acted.error();
  }
  co_return Error{errc::internal, "the operation on " + target_ + " did not end after " + std::to_string(kMostSteps) +
                                      " steps: this is a bug in corbd"};
}

task<result<>> MountRun::act(Action step) {
  switch (step.what) {
    case StepKind::look_plugin:
      co_return co_await look_plugin();
    case StepKind::look_target:
      seen_.target = co_await base_.ports.node.look(target_, Reach::here, look_until());
      if (!tried_publish_) found_mounted_ = seen_.target->is_mount();
      co_return result<>();
    case StepKind::look_staging: {
      const std::string path =
          claim_ ? claim_->staging : staging_path(base_.config.root, wish_.mount.volume, wish_.mount.usage);
      seen_.staging = co_await base_.ports.node.look(path, Reach::below, look_until());
      co_return result<>();
    }
    case StepKind::look_users:
      co_return co_await look_users();
    case StepKind::save_claim:
      co_return co_await save(step.phase, step.again);
    case StepKind::make_staging:
      seen_.staging.reset();
      co_return co_await base_.ports.node.make_folder(claim_->staging, kStagingMode, look_until());
    case StepKind::stage:
      co_return co_await stage();
    case StepKind::publish:
      co_return co_await publish();
    case StepKind::unpublish:
      co_return co_await unpublish();
    case StepKind::unstage:
      co_return co_await unstage();
    case StepKind::expand:
      co_return co_await expand();
    case StepKind::clean:
      co_return co_await clean();
    case StepKind::drop_claim: {
      auto dropped = co_await base_.ports.claims.drop(target_);
      if (dropped) claim_.reset();
      co_return dropped;
    }
    default:
      co_return Error{errc::internal, "no such step"};
  }
}

task<result<>> MountRun::look_plugin() {
  const auto stages = co_await repeat<bool>(
      base_, [this](Until until) { return base_.ports.plugin.stages(until); }, "asking the plugin what it can do",
      about(""), until_);
  if (!stages) co_return stages.error();
  seen_.stages = *stages;
  co_return result<>();
}

/// Looks for users before the unmount, to name them. A look that fails hides nobody: a user who is not found here still
/// keeps the plugin from unmounting.
task<result<>> MountRun::look_users() {
  const auto users = co_await base_.ports.node.users(target_, look_until());
  if (!users) log::warning("manager.users_unknown", {{"target", target_}, {"error", users.error().text}});
  seen_.users = users.has_value() ? *users : std::vector<std::string>();
  co_return result<>();
}

task<result<>> MountRun::save(Claim::Phase phase, bool again) {
  Claim claim = claim_ ? *claim_ : new_claim(wish_.mount, base_.config.root);
  claim.phase = phase;
  claim.again = again;
  if (phase == Claim::Phase::mounting || phase == Claim::Phase::mounted) {
    claim.boot_id = seen_.boot_id;
    claim.shown = phase == Claim::Phase::mounted ? seen_.target->mount : "";
  }
  const bool there =
      seen_.target && (seen_.target->at == PathState::At::folder || seen_.target->at == PathState::At::file);
  if (!claim_ && there) {
    claim.mode_before = seen_.target->mode;
    claim.owner_before = seen_.target->owner;
    claim.folder_before = seen_.target->folder;
  }
  auto saved = co_await base_.ports.claims.save(claim);
  if (saved) claim_ = std::move(claim);
  co_return saved;
}

task<result<>> MountRun::stage() {
  tried_stage_ = true;
  seen_.staging.reset();
  base_.say(about("staging volume " + claim_->volume.external_id));
  auto staged = co_await repeat<void>(
      base_, [this](Until until) { return base_.ports.plugin.stage(wish_.mount, claim_->staging, until); },
      "staging volume " + claim_->volume.external_id, about(""), until_);
  seen_.staged = staged.has_value();
  co_return staged;
}

task<result<>> MountRun::publish() {
  // The target is in our folder. A caller's own target is resolved already, so its parent exists.
  if (target_.starts_with(base_.config.root + "/")) {
    const std::string parent = std::filesystem::path(target_).parent_path();
    if (auto made = co_await base_.ports.node.make_folder(parent, kStagingMode, look_until()); !made)
      co_return made.error();
  }
  tried_publish_ = true;
  seen_.target.reset();
  base_.say(about("publishing it at " + target_));
  auto published = co_await repeat<void>(
      base_,
      [this](Until until) {
        return base_.ports.plugin.publish(wish_.mount, *seen_.stages ? claim_->staging : std::string(), until);
      },
      "publishing volume " + claim_->volume.external_id + " at " + target_, about(""), until_);
  seen_.published = published.has_value();
  co_return published;
}

task<result<>> MountRun::unpublish() {
  seen_.target.reset();
  base_.say(about("unpublishing " + target_));
  auto answer = co_await repeat<void>(
      base_, [this](Until until) { return base_.ports.plugin.unpublish(claim_->volume.external_id, target_, until); },
      "unpublishing " + target_, about(""), until_);
  auto unpublished = ignoring_not_found(std::move(answer));
  if (!unpublished && is_final(unpublished.error().code)) {
    // Look first, as Nomad's client does: a plugin may not know, or not be able to say, that nothing is left to do.
    const PathState there = co_await base_.ports.node.look(target_, Reach::here, look_until());
    if (there.at == PathState::At::nothing || there.at == PathState::At::folder || there.at == PathState::At::file) {
      log::warning("manager.unpublish_ignored", {{"target", target_}, {"error", unpublished.error().text}});
      unpublished = result<>();
    }
  }
  seen_.unpublished = unpublished.has_value();
  co_return unpublished;
}

task<result<>> MountRun::unstage() {
  seen_.staging.reset();
  base_.say(about("unstaging volume " + claim_->volume.external_id));
  auto answer = co_await repeat<void>(
      base_,
      [this](Until until) { return base_.ports.plugin.unstage(claim_->volume.external_id, claim_->staging, until); },
      "unstaging volume " + claim_->volume.external_id, about(""), until_);
  auto unstaged = ignoring_not_found(std::move(answer));
  seen_.unstaged = unstaged.has_value();
  co_return unstaged;
}

task<result<>> MountRun::expand() {
  base_.say(about("expanding volume " + claim_->volume.external_id));
  const std::string staging = *seen_.stages ? claim_->staging : std::string();
  auto expanded = co_await repeat<std::uint64_t>(
      base_, [this, staging](Until until) { return base_.ports.plugin.expand(*claim_, staging, until); },
      "expanding volume " + claim_->volume.external_id, about(""), until_);
  if (!expanded) co_return expanded.error();
  capacity_ = *expanded;
  seen_.expanded = true;
  co_return result<>();
}

/// Restores the target. The volume is gone by now, so if somebody changed the parent folder, that is only reported, and
/// keeps no claim alive.
task<result<>> MountRun::put_back(unsigned mode) {
  const bool file = claim_->usage.attachment == AccessType::block;
  auto done = co_await base_.ports.node.put_back(target_, {file, mode, claim_->owner_before, claim_->folder_before},
                                                 look_until());
  if (done) co_return done;
  if (done.error().code != errc::invalid_argument) co_return done;
  log::warning("manager.not_put_back", {{"target", target_}, {"error", done.error().text}});
  base_.say(about("what was at " + target_ + " before the mount is not made again: " + done.error().text));
  co_return result<>();
}

task<result<>> MountRun::clean() {
  auto& node = base_.ports.node;
  const std::string& root = base_.config.root;
  if (seen_.others.empty())
    if (auto removed = co_await node.remove_folder(claim_->staging, root + "/staging", look_until()); !removed)
      co_return removed.error();
  if (claim_->mode_before) {
    if (auto made = co_await put_back(*claim_->mode_before); !made) co_return made.error();
  } else if (target_.starts_with(root + "/")) {
    if (auto removed = co_await node.remove_folder(target_, root + "/per-alloc", look_until()); !removed)
      co_return removed.error();
  }
  seen_.cleaned = true;
  co_return result<>();
}

task<result<>> MountRun::undo(Until until) {
  const bool fresh = !claimed_before_;
  if (!claim_ || (!fresh && !tried_stage_ && !tried_publish_)) co_return result<>();
  if (found_mounted_) {
    if (!fresh) co_return result<>();
    auto dropped = co_await base_.ports.claims.drop(target_);
    if (dropped) claim_.reset();
    co_return dropped;
  }
  wish_.what = fresh ? Goal::What::unmount : Goal::What::set_down;
  until_ = until;
  const auto stages = seen_.stages;
  const auto others = seen_.others;
  seen_ = MountFacts();
  seen_.boot_id = base_.config.boot_id;
  seen_.others = others;
  // A publish that was not called needs no unpublish: anything that is there is another's.
  if (fresh && !tried_publish_) claim_->phase = Claim::Phase::leaving;
  if (fresh && !tried_stage_ && !tried_publish_) seen_.stages = false;
  if (stages && !*stages) seen_.stages = false;
  co_return co_await steps();
}

result<> MountRun::ignoring_not_found(result<> answer) {
  if (!answer && answer.error().code == errc::not_found) return {};
  return answer;
}

Event MountRun::about(std::string message) const {
  const PluginVolume& volume = claim_ ? claim_->volume : wish_.mount.volume;
  return {Event::What::progress, volume.external_id, target_, true, std::move(message)};
}

}  // namespace corbd::manager
