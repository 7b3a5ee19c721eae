#include "freeze.hpp"

#include <algorithm>

#include "bring_up.hpp"
#include "krbd.hpp"
#include "paths.hpp"

namespace corbd::plan {
namespace {

bool has_server(const Situation& view) { return view.seen.connected && view.seen.link == Observation::Link::serving; }

/// Returns any mount of the filesystem: a freeze is of the whole filesystem.
const host::Mount* mount_of_filesystem(const Situation& view) {
  const auto* device = view.seen.device();
  if (device == nullptr) return nullptr;
  const auto place = std::ranges::find_if(view.seen.mounts, [&](const host::Mount& mount) {
    return mount.fstype != "devtmpfs" && shows(mount, *device, view.id);
  });
  return place == view.seen.mounts.end() ? nullptr : &*place;
}

Step note_thawed(const Situation& view) {
  Record record = *view.record;
  record.freeze.reset();
  return write(std::move(record));
}

/// Needs a record that names a freeze. Nothing: nobody can thaw it now.
std::optional<Step> thaw_step(const Situation& view) {
  // The filesystem went with its device.
  if (view.seen.facts.thawed || view.seen.freeze_refused || view.seen.device() == nullptr) return note_thawed(view);
  // Without a mount it may be frozen still: the kernel keeps a frozen filesystem that was unmounted, and the next
  // stage's mount shows it again.
  const auto* mount = mount_of_filesystem(view);
  // After a rollback while it was frozen, rbd-nbd may serve it.
  const bool is_served = has_server(view) || view.seen.facts.served_by_other == true;
  if (mount == nullptr || (!is_served && !view.seen.facts.disconnected)) return std::nullopt;
  return step::Thaw{mount->target};
}

std::string why_not_frozen(const Situation& view) {
  const Record& record = *view.record;
  if (record.use.block) return "it is a raw block device, without a filesystem that corbd knows";
  if (record.reads_only()) return "it is read-only here";
  if (by_kernel(view)) return "the kernel serves it";
  if (record.failed) return "it was given up";
  if (record.adopting) return "rbd-nbd serves it, or did";
  if (!has_server(view)) return "its device has no server now";
  const auto* mount = mount_of_filesystem(view);
  if (mount == nullptr) return "its filesystem is not mounted";
  const auto reads = [](const Staging& staging) { return wants_read_only(staging.capability); };
  if (mount->filesystem_read_only && std::ranges::none_of(record.stagings, reads))
    return "its filesystem turned read-only after an error";
  return "";
}

Decision begin_freeze(const Situation& view, const Frozen& wish) {
  // It was answered, and the record no longer names it.
  if (view.seen.facts.freeze_answer)
    return refuse(errc::failed_precondition,
                  "volume " + view.id + " cannot be frozen: " + *view.seen.facts.freeze_answer);
  if (const std::string why = why_not_frozen(view); !why.empty())
    return refuse(errc::failed_precondition, "volume " + view.id + " cannot be frozen: " + why);
  Record record = *view.record;
  record.freeze = Freeze{wish.id};
  return write(std::move(record));
}

}  // namespace

Decision freeze(const Situation& view, const Frozen& wish) {
  if (!view.record) return refuse(errc::failed_precondition, "volume " + view.id + " is not staged here");
  const auto& noted = view.record->freeze;
  if (!noted) return begin_freeze(view, wish);
  if (noted->id != wish.id)
    return refuse(errc::unavailable, "volume " + view.id + " is not thawed yet after an earlier freeze");
  const auto& answer = view.seen.facts.freeze_answer;
  if (answer) return answer->empty() ? Decision(Done{}) : Decision(note_thawed(view));
  const auto* mount = mount_of_filesystem(view);
  if (!has_server(view) || mount == nullptr) return note_thawed(view);
  return step::Freeze{mount->target};
}

Decision thaw(const Situation& view) {
  if (!view.record || !view.record->freeze) return Done{};
  if (view.record->adopting && !view.seen.facts.served_by_other) return Step(step::Look{Fact::served_by_other});
  if (auto step = thaw_step(view)) return *step;
  return refuse(errc::unavailable, "the filesystem of volume " + view.id +
                                       " may be frozen, and is thawed when it is mounted and its device has a server");
}

std::optional<Decision> thaw_if_served(const Situation& view) {
  if (!view.record || !view.record->freeze) return std::nullopt;
  return thaw_step(view);
}

std::optional<Decision> refuse_frozen(const Situation& view) {
  if (!view.record || !view.record->freeze || !has_server(view)) return std::nullopt;
  return refuse(errc::unavailable, "the filesystem of volume " + view.id + " is frozen for a snapshot: repeat later");
}

std::optional<Decision> thaw_before_end(const Situation& view) {
  if (!view.record || !view.record->freeze) return std::nullopt;
  if (!view.seen.facts.disconnected)
    if (auto first = bring_up(view)) return first;
  return thaw_step(view);
}

}  // namespace corbd::plan
