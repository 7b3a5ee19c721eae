#include "filesystem.hpp"

#include <algorithm>
#include <boost/algorithm/string/join.hpp>

#include "corbd/plan/combination.hpp"
#include "corbd/plan/outcome.hpp"
#include "krbd.hpp"

namespace corbd::plan {
namespace {

Step write_format(const Situation& view, std::optional<Format> format) {
  step::WriteRecord step{*view.record};
  step.record.format = std::move(format);
  return step;
}

/// Whether a format on the kernel's device may be repeated. The kernel gives its lock to a client that asks, and keeps
/// its device whoever had the image in between. Taking a lock and releasing it both change the header. So nobody else
/// wrote as long as the header has the version that it had when the format began. Marker and record agree.
std::optional<Decision> begun_by_kernel(const Situation& view, const Step& how) {
  const bool proven = view.seen.facts.has_data == false;  // in this operation
  if (!view.seen.exclusive_lock) return proven ? std::optional<Decision>(how) : std::nullopt;
  if (!view.seen.facts.ownership) return look(Fact::ownership);
  const auto& who = *view.seen.facts.ownership;
  const bool same = view.record->format->version == who.version && who.owner == view.seen.device()->client;
  if (same) return how;
  if (!proven) return std::nullopt;
  if (view.record->format->version == who.version) return how;
  step::WriteRecord step{*view.record};
  step.record.format->version = who.version;
  return step;
}

/// All stagings of a volume have one filesystem. Its type is recorded before anything works on it, because every later
/// step takes the type from there.
std::optional<Decision> name_type(const Situation& view, const std::string& type) {
  step::WriteRecord step{*view.record};
  for (auto& staging : step.record.stagings) staging.capability.fstype = type;
  if (step.record == *view.record) return std::nullopt;
  return step;
}

/// Returns why the existing filesystem cannot be mounted; empty: it can.
std::string misfit(const Situation& view, const std::string& there, const std::string& wanted) {
  if (!wanted.empty() && there != wanted)
    return ", the request wants " + wanted + ": " + std::string(not_served::kOtherFilesystem.why);
  const auto offered = host::offered_filesystems();
  if (std::ranges::find(offered, there) == offered.end())
    return ", which this agent does not mount: it mounts " + boost::algorithm::join(offered, ", ");
  if (view.record->encrypts_files() && !host::encrypts_files(there))
    return ", " + std::string(not_served::kFilesystemWithoutFolders.why);
  return "";
}

Step note_damaged(const Situation& view, bool damaged) {
  step::WriteRecord step{*view.record};
  step.record.damaged = damaged;
  return step;
}

/// Returns nothing if the filesystem may be mounted. Each of these mounts begins with a check: somebody may have
/// repaired the image since the last one.
std::optional<Decision> check_filesystem(const Situation& view) {
  const auto& facts = view.seen.facts;
  // A filesystem that was unmounted while it was frozen stays in the kernel, and takes its device. Only a mount shows
  // it again, for the thaw.
  if (view.record->freeze) return std::nullopt;
  if (facts.checked != true) return view.record->damaged ? note_damaged(view, false) : Step(step::Fsck{});
  if (facts.damage.empty() || view.record->damaged) return std::nullopt;
  // Another program's device, or the kernel client's, may stay writable.
  const bool served = view.seen.link == Observation::Link::serving && !view.record->adopting;
  if (view.record->source.on_damage == OnDamage::read_only && served) return note_damaged(view, true);
  return refuse(errc::failed_precondition, text_of_damage(*view.record, facts.damage));
}

}  // namespace

bool writes_nothing(const Situation& view, const Capability& capability) {
  return view.record->reads_only() || wants_read_only(capability);
}

Decision refuse_format(const Situation& view, errc code, std::string text) {
  if (view.record->format) return write_format(view, std::nullopt);
  return refuse(code, std::move(text));
}

Decision format(const Situation& view, const Step& how) {
  const auto& facts = view.seen.facts;
  if (auto step = open_beside(view)) return *step;
  if (!facts.format_marker) return look(Fact::format_marker);
  // This is the very format that this record began, on this device, after the proof: nobody used the image since, or
  // its stage had removed the marker.
  const auto& begun = view.record->format;
  if (begun && *facts.format_marker == begun->marker) {
    if (!by_kernel(view)) return how;
    if (auto step = begun_by_kernel(view, how)) return *step;
  }
  if (!facts.has_data) return look(Fact::has_data);
  if (*facts.has_data)
    return refuse_format(
        view, errc::not_empty,
        image_of(view) + " shows no filesystem but holds data" +
            (facts.format_marker->empty()
                 ? ""
                 : ", and its format marker (" + *facts.format_marker + ") is from another try") +
            ": it is not formatted. Look at the data. If it is worthless, make the filesystem by hand");
  std::string wanted = (how == Step(step::Mkfs{}) ? "mkfs by " : "luksFormat by ") + view.seen.client;
  if (begun && begun->marker == wanted) return Step(step::SetFormatMarker{});
  return write_format(view, Format{std::move(wanted)});
}

const host::Mount* our_mount_at(const Situation& view, const std::string& path) {
  const auto* device = view.seen.device();
  if (device == nullptr) return nullptr;
  const auto& mounts = view.seen.mounts;
  const auto place = std::ranges::find_if(
      mounts, [&](const auto& mount) { return mount.target == path && shows(mount, *device, view.id); });
  return place == mounts.end() ? nullptr : &*place;
}

bool goes_with_mount_at(const Situation& view, const host::Mount& mount, const std::string& path) {
  return std::ranges::any_of(view.seen.mounts,
                             [&](const auto& there) { return there.target == path && goes_with(mount, there); });
}

std::optional<Decision> refuse_mounted(const Situation& view, const std::string& target) {
  for (const auto& mount : view.seen.mounts)
    if (mount.target != target && shows(mount, *view.seen.device(), view.id) &&
        !goes_with_mount_at(view, mount, target))
      return refuse(
          errc::failed_precondition,
          "volume " + view.id + " is still mounted at " + mount.target +
              ": unpublish it there, then unstage it. If no pod uses it there, for example because kubelet's folder is "
              "bound a second time, run `umount " +
              mount.target + "`");
  return std::nullopt;
}

std::optional<Decision> fill_device(const Situation& view, const host::Mount& mount, const Capability& capability) {
  const auto& facts = view.seen.facts;
  if (writes_nothing(view, capability) || mount.filesystem_read_only || facts.grown) return std::nullopt;
  if (!facts.filesystem) return step::Look{Fact::filesystem, mount.target};
  if (!host::has_room(*facts.filesystem, usable_bytes(*view.seen.device(), view.id))) return std::nullopt;
  return step::Grow{mount.target};
}

Decision make_filesystem(const Situation& view, const std::string& target, const Capability& capability,
                         const std::string& wanted) {
  const auto& facts = view.seen.facts;
  const step::Mount mount{target};
  const auto* device = view.seen.device();
  const auto& mounts = view.seen.mounts;
  // It is mounted at another staging path already: in use, so neither probed nor checked.
  if (std::any_of(mounts.begin(), mounts.end(), [&](const auto& entry) { return shows(entry, *device, view.id); }))
    return mount;
  // Neither mkfs nor a mount could open it, and their errors do not say why.
  if (auto refused = refuse_held(view, *device, view.record->encrypts_device())) return *refused;
  if (!facts.probe) return look(Fact::probe);
  const std::string image = image_of(view);
  switch (facts.probe->kind) {
    case host::Probe::Kind::nothing:
      if (writes_nothing(view, capability)) return refuse(error_of(not_served::kNothingToRead, image));
      if (auto step = name_type(view, wanted.empty() ? std::string(host::kDefaultFilesystem) : wanted)) return *step;
      // Check the options only now: an image that has a filesystem is mounted whatever its mkfsOptions are.
      if (const auto allowed = host::check_mkfs_options(view.record->stagings.front().capability.fstype,
                                                        view.record->source.mkfs_options);
          !allowed)
        return refuse_format(view, allowed.error().code, "volume " + view.id + ": " + allowed.error().text);
      return format(view, step::Mkfs{});
    case host::Probe::Kind::filesystem:
      break;
    case host::Probe::Kind::partitions:
      return refuse(errc::failed_precondition,
                    image + " has a partition table, not a filesystem: it is neither mounted nor formatted");
    case host::Probe::Kind::ambivalent:
      return refuse(errc::failed_precondition,
                    image + " shows two signatures at once: it is neither mounted nor formatted; see wipefs(8)");
    case host::Probe::Kind::other:
      return refuse(errc::failed_precondition,
                    image + " holds " + facts.probe->type + ", not a filesystem: it is neither mounted nor formatted");
  }
  if (const std::string why = misfit(view, facts.probe->type, wanted); !why.empty())
    return refuse(errc::failed_precondition, image + " holds " + facts.probe->type + why);
  if (auto step = name_type(view, facts.probe->type)) return *step;
  if (!view.record->use.read_only && !wants_read_only(capability))
    if (auto first = check_filesystem(view)) return *first;
  return mount;
}

}  // namespace corbd::plan
