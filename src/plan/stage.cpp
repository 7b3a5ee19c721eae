#include "stage.hpp"

#include <algorithm>

#include "adopt.hpp"
#include "bring_up.hpp"
#include "client.hpp"
#include "expand.hpp"
#include "filesystem.hpp"
#include "fscrypt.hpp"
#include "krbd.hpp"
#include "luks.hpp"
#include "paths.hpp"
#include "stash.hpp"
#include "volume_key.hpp"

namespace corbd::plan {
namespace {

constexpr std::uint64_t kMinBytes = 1 << 20;

/// Refuses an image that other volumes of this node use. Several may read it, but only one of them through the kernel,
/// whose device has no identifier.
std::optional<Decision> refuse_neighbours(const Situation& view, const Staged& wish) {
  if (!view.seen.facts.resolved) return std::nullopt;
  const bool readers_mix = wish.capability.read_only && wish.mounter == Mounter::nbd;
  const std::string& other =
      readers_mix || !view.seen.image_writer.empty() ? view.seen.image_writer : view.seen.image_reader;
  if (other.empty()) return std::nullopt;
  return refuse(errc::in_use, "volume " + other + " of this node has the image " +
                                  image_text(view.seen.facts.resolved->name, view.seen.facts.resolved->key) +
                                  " of volume " + view.id + ": unstage that one first");
}

Decision stage_new(const Situation& view, const Staged& wish) {
  if (auto refused = refuse_neighbours(view, wish)) return *refused;
  if (!view.seen.devices.empty()) return adopt(view, wish);
  if (mounted_at(view, staging_target(view.id, wish.path))) {
    // The kernel's device has no identifier, so it is found by ceph-csi's stash.
    if (!view.seen.facts.stash) return look(Fact::stash);
    return refuse(errc::failed_precondition, "something else is mounted at " + staging_target(view.id, wish.path) +
                                                 " and volume " + view.id + " has no record: unmount it");
  }
  if (!view.seen.facts.resolved) return look(Fact::resolved);
  if (view.seen.facts.resolved->size < kMinBytes)
    return refuse(errc::failed_precondition,
                  "image " + image_text(view.seen.facts.resolved->name, view.seen.facts.resolved->key) + " of volume " +
                      view.id + " has " + std::to_string(view.seen.facts.resolved->size) +
                      " bytes, less than 1 MiB: grow it");
  const auto& resolved = *view.seen.facts.resolved;
  if (auto refused = image::refuse(resolved.features, !wish.capability.read_only, "image " + resolved.name.text()))
    return refuse(*std::move(refused));
  const auto kind = choose_kind(wish.mounter, resolved.features.bits, cephcsi::key_type(wish.credential.key.reveal()),
                                view.seen.kernel_client);
  if (!kind) return refuse(kind.error().code, "volume " + view.id + ": " + kind.error().text);
  Record record = new_record(view, wish, *view.seen.facts.resolved);
  record.device.kind = *kind;
  record.stagings.push_back({wish.path, with_fstype(wish.capability)});
  return write(std::move(record));
}

/// Returns "a read-only filesystem ext4 at /path".
std::string use_of(const Record& record, const std::string& fstype) {
  const std::string how = record.use.read_only ? "read-only " : record.use.shared ? "shared " : "";
  std::string where = "no path any more";
  if (!record.stagings.empty())
    where = record.stagings.front().path;
  else if (!record.publishes.empty())
    where = record.publishes.front().target;
  return "a " + how + (record.use.block ? "block device" : "filesystem " + fstype) + " at " + where;
}

std::string text(const Source& source) {
  return source.pool + "/" + (source.ns.empty() ? "" : source.ns + "/") + source.image + " of cluster " +
         source.cluster_id;
}

/// Refuses another image under the same ID. The ID of a static volume is only its image's name: two PersistentVolumes,
/// or two mounts of a host, may mean images of the same name in different pools. A provisioned volume's ID identifies
/// its image, wherever that was found; a static one may have been found in a cluster that its own is mapped to, and its
/// namespace is that cluster's.
std::optional<Decision> refuse_other_image(const Record& record, const Staged& wish) {
  const Source &had = record.source, &wanted = wish.source;
  if (record.provisioned || wish.reserved || had.cluster_id != wanted.cluster_id ||
      (had.pool == wanted.pool && had.image == wanted.image))
    return std::nullopt;
  return refuse(errc::already_exists,
                "volume " + record.volume_id + " is image " + text(had) + " on this node, and cannot be image " +
                    text(wanted) + " at the same time: unstage it first, or give one of the images another name");
}

/// Stages another path. One device serves all staging paths of its volume, so they must use it alike.
Decision stage_another(const Situation& view, const Staged& wish) {
  const Record& record = *view.record;
  const Capability wanted = as_served(record, wish);
  const Capability& has = record.stagings.empty() ? wanted : record.stagings.front().capability;
  if (record.use != Use{wanted.block, wanted.read_only, wanted.shared} || has.fstype != wanted.fstype)
    return refuse(errc::failed_precondition, "volume " + view.id + " is in use as " + use_of(record, has.fstype) +
                                                 ": unstage and unpublish it there first");
  // The kernel mounts a filesystem read-only or writable, not both.
  if (wants_read_only(has) != wants_read_only(wanted))
    return refuse(errc::failed_precondition,
                  "volume " + view.id + " is mounted " + (wants_read_only(has) ? "read-only" : "writable") + " at " +
                      record.stagings.front().path + ", and cannot be mounted " +
                      (wants_read_only(has) ? "writable" : "read-only") + " beside that: unstage it there first");
  if (mounted_at(view, staging_target(view.id, wish.path)))
    return refuse(errc::failed_precondition,
                  "something else is mounted at " + staging_target(view.id, wish.path) + ": unmount it");
  Record more = record;
  more.stagings.push_back({wish.path, wanted});
  return write(std::move(more));
}

/// Decides between a mount and the end of its stage: the filesystem fills the device, and no format counts as begun any
/// more.
std::optional<Decision> finish_mount(const Situation& view, const Capability& capability, const std::string& target) {
  if (auto step = fill_mapping(view)) return step;
  if (!capability.block)
    if (auto step = fill_device(view, *our_mount_at(view, target), capability)) return step;
  // Remove the marker of a raw block volume too: a pod's data in it shows no filesystem, and must not pass for a format
  // that did not end. While rbd-nbd serves it no image is open here, and this record never began a format.
  const bool served_elsewhere = view.record->adopting && !view.seen.image_open;
  if (writes_nothing(view, capability) || served_elsewhere) return std::nullopt;
  if (auto step = note_encrypted(view)) return step;
  if (!view.seen.facts.format_marker) return look(Fact::format_marker);
  if (!view.seen.facts.format_marker->empty()) return Step(step::RemoveFormatMarker{});
  return std::nullopt;
}

/// Whether the step makes a device. ceph-csi's file exists before a device of its volume does, and not while the image
/// may be another node's.
bool makes_device(const Decision& next) {
  const auto* step = std::get_if<Step>(&next);
  return step != nullptr &&
         (std::holds_alternative<step::StartSession>(*step) || std::holds_alternative<step::KernelConnect>(*step) ||
          std::holds_alternative<step::MapKrbd>(*step));
}

/// Ensures that the device answers and that the stash names it.
std::optional<Decision> bring_up_with_stash(const Situation& view, const Staged& wish) {
  auto next = bring_up(view);
  if (view.seen.device() != nullptr || !next || makes_device(*next))
    if (auto first = keep_stash(view, wish)) return first;
  return next;
}

/// Takes this node's present names. Without a device, nothing of an earlier stage can still write.
std::optional<Step> rename_without_device(const Situation& view) {
  const AgentNames now{view.policy.driver, view.policy.node};
  const bool same = other_name(view.record->names, now).empty();
  if (same || !view.seen.devices.empty()) return std::nullopt;
  Record record = *view.record;
  record.names = now;
  record.note = view.seen.facts.noted;  // an earlier stage's note has the other name
  return write(std::move(record));
}

/// Writes the record with this staging instead of the one of the same path.
Step write_staging(Record record, Staging staging) {
  *std::ranges::find(record.stagings, staging.path, &Staging::path) = std::move(staging);
  return write(std::move(record));
}

}  // namespace

std::string conflict(const Capability& has, const Capability& wanted) {
  const auto differ = [](const std::string& is, const std::string& asked) {
    return "it is " + is + ", and wanted " + asked;
  };
  const auto choose = [&](bool first, const char* yes, const char* no) {
    return first ? differ(yes, no) : differ(no, yes);
  };
  if (has.block != wanted.block) return choose(has.block, "a raw block device", "a filesystem");
  if (has.fstype != wanted.fstype) return differ(has.fstype, wanted.fstype);
  if (has.read_only != wanted.read_only) return choose(has.read_only, "read-only", "writable");
  if (has.single_writer != wanted.single_writer) return choose(has.single_writer, "for one pod only", "for many pods");
  if (has.shared != wanted.shared) return choose(has.shared, "shared with other nodes", "for this node alone");
  return "";
}

Record new_record(const Situation& view, const Staged& wish, const image::Resolved& image) {
  Record record;
  record.volume_id = view.id;
  record.names = {view.policy.driver, view.policy.node};
  record.source = found_at(wish.source, image);
  record.user = wish.credential.user;
  record.key = image.key;
  if (encrypts_files(image))
    record.encryption = Encryption{FilesKms{image.kms_id}, image.tenant};
  else if (!image.kms_id.empty())
    record.encryption = Encryption{DeviceKms{image.kms_id}, image.tenant};
  record.device.size = image.size;
  record.device.exclusive_lock = image.exclusive_lock;
  record.use = {wish.capability.block, wish.capability.read_only, wish.capability.shared};
  record.provisioned = wish.reserved.has_value();
  record.proof.attachment_uid = wish.attachment.uid;
  record.device.boot_id = view.seen.boot_id;
  // The attributes belong to this very PersistentVolume; an image may have been given to another one since.
  record.claim = wish.claim.empty() ? cephcsi::pvc_of(image.provisioned_for) : wish.claim;
  return record;
}

std::optional<Step> note_claim(const Situation& view, const PvcRef& claim) {
  if (claim.empty() || claim == view.record->claim) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.claim = claim;
  step.may_fail = true;  // people read these names, nothing depends on them
  return step;
}

/// Nothing is mounted there yet, and the device is served.
Decision fill_target(const Situation& view, const Staged& wish, const Capability& capability,
                     const std::string& target) {
  if (auto step = open_mapping(view, wish)) return *step;
  if (capability.block) return step::Bind{target};
  auto next = make_filesystem(view, target, capability, wish.capability.fstype);
  return view.record->encrypts_files() ? with_first_key(view, std::move(next)) : next;
}

/// The volume is staged already. No image was opened, so the cluster has not yet accepted this user and key. They would
/// be lost with this process.
Decision take_credential(const Situation& view) {
  if (auto step = try_credential(view)) return *step;
  if (auto step = change_client(view)) return *step;
  return leave_to_kernel(view);
}

Decision stage(const Situation& view, const Staged& wish) {
  // A mounted volume stays as it is, whatever an older version allowed.
  if (!mounted_at(view, staging_target(view.id, wish.path)))
    if (const auto allowed = host::check_mount_options(wish.capability.mount_flags); !allowed)
      return refuse(allowed.error().code, "volume " + view.id + ": " + allowed.error().text);
  if (!view.record) return stage_new(view, wish);
  const Record& record = *view.record;
  if (auto refused = refuse_other_image(record, wish)) return *refused;
  if (auto step = rename_without_device(view)) return *step;
  const Staging* staging = staging_at(record, wish.path);
  if (staging == nullptr) return stage_another(view, wish);
  const Capability& capability = staging->capability;
  const Capability wanted = as_served(record, wish);
  if (const std::string other = conflict(capability, wanted); !other.empty())
    return refuse(errc::already_exists, "volume " + view.id + " is staged at " + wish.path +
                                            ", and this request differs: " + other +
                                            ": end its pods on this node, so that it is unstaged first");
  if (auto step = note_claim(view, wish.claim)) return *step;
  if (record.failed) return given_up(view);
  const std::string target = staging_target(view.id, wish.path);
  if (!mounted_at(view, target) && (capability != wanted || record.source.on_damage != wish.source.on_damage)) {
    Record anew = record;
    anew.source.on_damage = wish.source.on_damage;
    return write_staging(std::move(anew), {wish.path, wanted, staging->complete});
  }
  const bool keeps_stash = !staging->complete || !mounted_at(view, target);
  if (auto step = keeps_stash ? bring_up_with_stash(view, wish) : bring_up(view)) return *step;
  if (auto step = finish_krbd_stage(view, *staging)) return *step;
  if (mounted_at(view, target) && !ours_at(view, target))
    return refuse(errc::failed_precondition, "something else is mounted at " + target + ": unmount it");
  if (!mounted_at(view, target)) return fill_target(view, wish, capability, target);
  if (auto step = open_folder(view, target, capability)) return *step;
  if (staging->complete) return take_credential(view);
  if (auto step = finish_mount(view, capability, target)) return *step;
  Record staged = record;
  staged.format.reset();
  return write_staging(std::move(staged), {wish.path, capability, true});
}

}  // namespace corbd::plan
