#include "mount_steps.hpp"

#include <algorithm>

#include "corbd/cephcsi/io_limits.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

std::string option_of(const std::map<std::string, std::string>& options, const std::string& fstype) {
  const auto place = options.find(fstype);
  return place == options.end() ? std::string() : place->second;
}

std::string joined(std::string first, const std::string& then) {
  return first.empty() || then.empty() ? first + then : std::move(first) + "," + then;
}

/// Keeps an administrator's nosuid, nodev and noexec, whatever a volume asks for.
std::string protected_by(const std::string& of_the_type, std::string flags) {
  return joined(std::move(flags), host::protections(of_the_type));
}

/// Less than a handover waits for steps, so that no trim makes it leave the volume to healing.
constexpr std::chrono::seconds kPieceWithin{3};

std::string with_ro(std::string flags) { return flags.empty() ? "ro" : std::move(flags) + ",ro"; }

}  // namespace

/// Prefers the mounted type to the record's. All stagings of a volume have the same filesystem.
std::string MountSteps::fstype_of(const Volume& volume) const {
  const auto device = device_of(volume);
  const auto mounts = ports_.mounts.table();
  host::MountList::Found shown;
  if (device && mounts) add_shown(**mounts, *device, volume.id, shown);
  for (const auto& [at, mount] : shown)
    if (mount->fstype != "devtmpfs") return mount->fstype;
  return volume.record->stagings.empty() ? "" : volume.record->stagings.front().capability.fstype;
}

task<result<>> MountSteps::look(Volume& volume, const step::Look& step) {
  Facts& facts = volume.facts;
  const auto device = step.fact == Fact::unused ? device_path(volume) : data_path(volume);
  if (!device) co_return device.error();
  if (step.fact == Fact::probe) {
    auto found = co_await ports_.filesystems.probe(*device, owner(volume), while_served(volume, deadline()));
    if (!found) co_return found.error();
    facts.probe = std::move(*found);
    co_return result<>();
  }
  if (step.fact == Fact::filesystem) {
    auto found = co_await ports_.filesystems.extent(*device, fstype_of(volume), step.path, owner(volume),
                                                    while_served(volume, deadline()));
    if (!found) co_return found.error();
    facts.filesystem = *found;
    co_return result<>();
  }
  auto unused = co_await ports_.filesystems.check_unused(*device, owner(volume), while_served(volume, deadline()));
  if (!unused) co_return unused.error();
  facts.unused = true;
  co_return result<>();
}

task<result<>> MountSteps::mkfs(Volume& volume) {
  const auto device = data_path(volume);
  if (!device) co_return device.error();
  const std::string fstype = fstype_of(volume);
  // Below a LUKS mapping, and after a format that began earlier, the device does not read as zeroes.
  const host::MkfsFor made_for{.zeroes = !volume.record->encrypts_device() && volume.facts.has_data == false,
                               .files_encrypted = volume.record->encrypts_files()};
  std::string options = volume.record->source.mkfs_options;
  if (options.empty()) options = option_of(config_.filesystems.mkfs, fstype);
  auto made = co_await ports_.filesystems.mkfs(*device, fstype, std::move(options), made_for, owner(volume),
                                               while_served(volume, long_deadline()));
  if (!made) co_return made.error();
  log::info("filesystem.made", {{"volume", volume.id}, {"fstype", fstype}});
  if (!made->empty()) {
    log::warning("filesystem.for_newer_kernels", {{"volume", volume.id}, {"fstype", fstype}, {"features", *made}});
    health_.notify(volume.id, {"NeedsNewerKernel", true,
                               "The new " + fstype + " has " + *made +
                                   ". Older kernels cannot mount it. To use the volume on such a node, leave these "
                                   "features out (mkfsOptions of the StorageClass, or the agent's --mkfs-options), "
                                   "then delete and recreate the claim."});
  }
  volume.facts.probe.reset();
  volume.facts.checked = true;
  co_return result<>();
}

/// Runs the check that an operator asked for. Whatever it finds, the stage's own check decides about the mount.
task<result<>> MountSteps::check_by_hand(Volume& volume, std::string device) {
  const auto repair = checks_.begin(volume.id, device);
  if (!repair) co_return result<>();
  log::info("fsck.by_hand_begun", {{"volume", volume.id}, {"device", device}, {"repair", *repair}});
  auto found = co_await ports_.filesystems.inspect(device, fstype_of(volume), *repair, owner(volume),
                                                   while_served(volume, long_deadline()));
  if (found)
    log::warning(
        "fsck.by_hand_ended",
        {{"volume", volume.id}, {"command", found->command}, {"clean", found->clean}, {"output", found->report}});
  else
    log::warning("fsck.by_hand_failed", {{"volume", volume.id}, {"error", found.error().text}});
  const result<> done = found ? result<>() : result<>(found.error());
  checks_.end(volume.id, std::move(found));
  // A checker that works on, without an answer, still has the device.
  if (!done && !final_for_caller(done.error().code)) co_return done;
  co_return result<>();
}

task<result<>> MountSteps::fsck(Volume& volume) {
  const auto device = data_path(volume);
  if (!device) co_return device.error();
  if (auto done = co_await check_by_hand(volume, *device); !done) co_return done;
  const std::string fstype = fstype_of(volume);
  if (volume.record->source.on_damage != plan::OnDamage::fsck) {
    auto found =
        co_await ports_.filesystems.check(*device, fstype, owner(volume), while_served(volume, long_deadline()));
    if (!found) co_return found.error();
    volume.facts.damage = std::move(*found);
    volume.facts.checked = true;
    co_return result<>();
  }
  auto checked = co_await ports_.filesystems.fsck(*device, fstype, option_of(config_.filesystems.fsck, fstype),
                                                  owner(volume), while_served(volume, long_deadline()));
  if (checked) volume.facts.checked = true;
  if (!checked && checked.error().code == errc::failed_precondition)
    co_return Error{errc::failed_precondition, checked.error().text + ". " + command_for_damage(volume.id)};
  co_return checked;
}

task<result<>> MountSteps::mount(Volume& volume, std::string target, const Wish& wish) {
  const auto device = data_path(volume);
  if (!device) co_return device.error();
  const std::string fstype = fstype_of(volume);
  const std::string first = option_of(config_.filesystems.mount, fstype);
  std::string flags = protected_by(first, joined(first, std::get<Staged>(wish).capability.mount_flags));
  if (volume.record->reads_only()) flags = with_ro(std::move(flags));
  if (volume.record->damaged) flags = joined(std::move(flags), host::option_without_journal(fstype));
  co_return co_await ports_.mounts.mount(*device, fstype, std::move(target), flags, owner(volume),
                                         while_served(volume, long_deadline()));
}

task<result<>> MountSteps::unmount(Volume& volume, std::string path, bool sync) {
  const auto mounted = [&] {
    const auto mounts = ports_.mounts.table();
    return !mounts || !(*mounts)->at(path).empty();
  };
  volume.facts.unused.reset();
  // For an unknown volume only an empty folder is removed. Without a busy file, nothing of ours is left behind.
  HelperOwner works = owner(volume);
  if (!volume.record && !mounted()) works.busy_file.clear();
  // A call that does not use the device must not end with its link.
  const Until until = sync && mounted() ? while_served(volume, long_deadline()) : deadline();
  auto done = co_await ports_.mounts.unmount(path, sync, std::move(works), until);
  const bool stays = !done && done.error().code == errc::failed_precondition && !mounted();
  if (!done && !stays) co_return done;
  volume.facts.cleared.insert_or_assign(path, std::move(done));
  co_return result<>();
}

task<result<>> MountSteps::grow(Volume& volume, std::string target, const Wish& wish) {
  const auto device = data_path(volume);
  if (!device) co_return device.error();
  auto grown = co_await ports_.filesystems.grow(*device, fstype_of(volume), std::move(target), owner(volume),
                                                while_served(volume, long_deadline()));
  if (grown) {
    log::info("filesystem.grown", {{"volume", volume.id}, {"device", *device}});
  } else if (std::holds_alternative<Staged>(wish) && final_for_caller(grown.error().code)) {
    // A stage prefers a volume that could not grow to none. An expand reports the error.
    log::warning("filesystem.not_grown", {{"volume", volume.id}, {"error", grown.error().text}});
    grown = result<>();
  }
  volume.facts.grown = grown.has_value();
  co_return grown;
}

task<result<>> MountSteps::trim(Volume& volume, const step::Trim& step) {
  if (step.from) co_return co_await trim_piece(volume, step.path, *step.from);
  const auto trimmed = co_await ports_.mounts.trim(step.path, owner(volume), while_served(volume, long_deadline()));
  if (!trimmed) co_return not_trimmed(volume, trimmed.error());
  log::info("filesystem.trimmed", {{"volume", volume.id}, {"bytes", *trimmed}});
  volume.facts.trimmed = true;
  volume.history.counts.trimmed_bytes += *trimmed;
  volume.history.counts.trimmed_at = clock_.wall();
  co_return result<>();
}

/// Leaves a helper alone that hangs. The Trimmer begins no other piece until that helper has ended.
task<result<>> MountSteps::trim_piece(Volume& volume, std::string target, std::uint64_t from) {
  const auto piece = co_await ports_.mounts.trim_from(std::move(target), from, owner(volume),
                                                      while_served(volume, {clock_.now() + kPieceWithin}));
  if (!piece) co_return not_trimmed(volume, piece.error());
  volume.facts.trimmed = true;
  volume.history.counts.trimmed_bytes += piece->bytes;
  volume.next_trim = piece->next;
  co_return result<>();
}

/// An error leaves the record's note of the freeze, because the helper may still freeze.
task<result<>> MountSteps::freeze(Volume& volume, std::string target, const Wish& wish) {
  const auto& wanted = std::get<Frozen>(wish);
  volume.freeze_refused = clock_.now() >= wanted.until;
  if (volume.freeze_refused) {
    volume.facts.freeze_answer = "the time for it has passed";
    co_return result<>();
  }
  auto answer = co_await ports_.mounts.freeze(std::move(target), owner(volume), while_served(volume, {wanted.until}));
  if (!answer) co_return answer.error();
  volume.freeze_refused = !answer->empty();
  volume.facts.freeze_answer = std::move(*answer);
  co_return result<>();
}

task<result<>> MountSteps::thaw(Volume& volume, std::string target) {
  const auto thawed = co_await ports_.mounts.thaw(std::move(target), owner(volume), while_served(volume, soon()));
  if (!thawed) co_return thawed.error();
  if (!*thawed)
    log::info("filesystem.was_not_frozen",
              {{"volume", volume.id}, {"cause", "its freeze had not begun, or somebody else has ended it"}});
  volume.facts.thawed = true;
  co_return result<>();
}

Error MountSteps::not_trimmed(const Volume& volume, Error error) {
  if (error.code == errc::unimplemented && volume.record->encrypts_device())
    error.text +=
        ": its LUKS mapping lets no discards through, because it was opened without the volume's attribute "
        "encryptionDiscard (docs/encryption.md#discards)";
  return error;
}

/// Retries: kubelet may publish a volume before it has made the pod's cgroup. No helper waits for that, because the
/// cluster's other volumes need it.
task<result<>> MountSteps::limit_io(Volume& volume, const step::LimitIo& step) {
  constexpr std::chrono::milliseconds made_within{5000}, looks_again{500};
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  const std::string line = cephcsi::io_max(step.limits, device->dev_major, device->dev_minor);
  const Until until = while_served(volume, deadline());
  const auto control = co_await asio::this_coro::executor;
  const time_point last_look = clock_.now() + made_within;
  auto limited = co_await ports_.mounts.limit_io(step.pod_uid, line, owner(volume), until);
  while (!limited && limited.error().code == errc::not_found && clock_.now() < last_look) {
    const Waited waited = co_await sleep_until(control, clock_, clock_.now() + looks_again, until.scope);
    if (waited == Waited::cancelled) co_return wait_error(waited, "limiting the I/O of pod " + step.pod_uid);
    limited = co_await ports_.mounts.limit_io(step.pod_uid, line, owner(volume), until);
  }
  if (!limited && limited.error().code == errc::cancelled) co_return limited;
  volume.facts.io_limited = limited.has_value();
  if (limited)
    log::info("pod.io_limited", {{"volume", volume.id}, {"pod_uid", step.pod_uid}, {"io_max", line}});
  else
    log::warning("pod.io_not_limited", {{"volume", volume.id},
                                        {"pod_uid", step.pod_uid},
                                        {"io_max", line},
                                        {"error", limited.error().text},
                                        {"effect", "the pod runs without the limits of its VolumeAttributesClass"}});
  co_return result<>();
}

task<result<>> MountSteps::bind(Volume& volume, std::string target, const Wish& wish) {
  const HelperOwner work = owner(volume);
  if (const auto* published = std::get_if<Published>(&wish)) {
    const auto device = data_path(volume);
    if (!device) co_return device.error();
    const std::string of_the_type = option_of(config_.filesystems.mount, fstype_of(volume));
    std::string flags = protected_by(of_the_type, published->capability.mount_flags);
    if (published->read_only) flags = with_ro(std::move(flags));
    std::string source = staging_target(volume.id, published->path);
    if (volume.record->encrypts_files()) source += std::string("/") + host::kEncryptedFolder;
    co_return co_await ports_.mounts.bind(std::move(source), target, volume.record->use.block, flags, work,
                                          while_served(volume, deadline()));
  }
  const auto device = data_path(volume);
  if (!device) co_return device.error();
  co_return co_await ports_.mounts.bind(*device, target, true, "", work, while_served(volume, deadline()));
}

}  // namespace corbd::volume
