#include "expand.hpp"

#include "bring_up.hpp"
#include "corbd/plan/combination.hpp"
#include "filesystem.hpp"
#include "krbd.hpp"
#include "luks.hpp"
#include "paths.hpp"

namespace corbd::plan {
namespace {

/// The kernel's own client needs no link of ours.
bool answers(const Situation& view) {
  if (by_kernel(view)) return view.seen.device() != nullptr;
  return view.seen.connected && view.seen.link == Observation::Link::serving;
}

struct StagedMount {
  const Staging* staging;
  const host::Mount* mount;
};

/// One filesystem is behind all stagings, so any of them will do.
std::optional<StagedMount> staged_mount(const Situation& view) {
  for (const Staging& staging : view.record->stagings)
    if (const auto* mount = our_mount_at(view, staging_target(view.id, staging.path)))
      return StagedMount{&staging, mount};
  return std::nullopt;
}

Decision not_mounted(const Situation& view) {
  return refuse(errc::failed_precondition, "the filesystem of volume " + view.id + " is not staged: " + kStageAgain);
}

Decision unknown_at(const Situation& view, const std::string& path) {
  if (!view.record && mounted_at(view, path)) return without_record(view, path);
  return refuse(errc::not_found, "volume " + view.id + " is neither staged nor published at " + path);
}

bool is_here(const Situation& view, const std::string& path) {
  return view.record && (is_at(*view.record, path) || our_mount_at(view, path) != nullptr);
}

Decision without_server(const Situation& view) {
  return refuse(errc::unavailable, "the device of volume " + view.id + " has no server now: repeat when it is healed");
}

Decision expand_filesystem(const Situation& view) {
  const auto at = staged_mount(view);
  if (!at) return not_mounted(view);
  const Capability& capability = at->staging->capability;
  if (at->mount->filesystem_read_only && !writes_nothing(view, capability))
    return refuse(errc::failed_precondition, "the filesystem of volume " + view.id +
                                                 " turned read-only and cannot grow: end its pods and " +
                                                 "stage it again, which runs fsck");
  if (auto step = fill_device(view, *at->mount, capability)) return *step;
  return Done{};
}

/// rbd-nbd makes its device larger by itself.
Decision expand_elsewhere(const Situation& view, const Expanded& wish) {
  if (view.seen.device()->size < wish.bytes)
    return refuse(errc::unavailable, "rbd-nbd, which still serves volume " + view.id +
                                         ", has not made its device larger yet: repeat later");
  return expand_contents(view);
}

}  // namespace

Decision expand_contents(const Situation& view) {
  if (auto step = fill_mapping(view)) return *step;
  return view.record->use.block ? Decision(Done{}) : expand_filesystem(view);
}

Decision expand(const Situation& view, const Expanded& wish) {
  // Nomad 1.7 to 1.9 may name a staging path in a form that it does not use for staging (docs/sources.md#nomad).
  if (!is_here(view, wish.path) && !is_here(view, wish.target)) return unknown_at(view, wish.path);
  if (view.record->failed) return given_up(view);
  if (auto refused = refuse_growth(view)) return *refused;
  if (by_kernel(view)) return expand_krbd(view, wish);
  if (!answers(view)) {
    const bool elsewhere = view.record->adopting && view.seen.device() != nullptr && !view.seen.other_dead_for;
    if (elsewhere && !view.seen.facts.served_by_other) return look(Fact::served_by_other);
    if (elsewhere && *view.seen.facts.served_by_other) return expand_elsewhere(view, wish);
    return without_server(view);
  }
  const std::uint64_t bytes = view.seen.image_size;
  if ((wish.bytes == 0 || bytes < wish.bytes) && !view.seen.facts.image_size_asked) return look(Fact::image_size);
  if (bytes < wish.bytes)
    return refuse(errc::out_of_range, image_of(view) + " has " + std::to_string(bytes) + " bytes, and " +
                                          std::to_string(wish.bytes) + " are wanted: grow the image first");
  if (auto step = bring_up(view)) return *step;
  return expand_contents(view);
}

Decision trim(const Situation& view, const Trimmed& wish) {
  if (!is_here(view, wish.path)) return unknown_at(view, wish.path);
  if (view.record->failed) return given_up(view);
  if (view.record->use.block) return refuse(error_of(not_served::kBlockReclaims, "volume " + view.id));
  if (!answers(view)) return without_server(view);
  if (view.seen.facts.trimmed) return Done{};
  const auto staged = staged_mount(view);
  if (!staged) return not_mounted(view);
  if (writes_nothing(view, staged->staging->capability) || staged->mount->filesystem_read_only)
    return refuse(error_of(not_served::kReaderReclaims, "the filesystem of volume " + view.id));
  const auto* device = view.seen.device();
  if (device != nullptr && integrity_of(*device, view.id) != nullptr)
    return refuse(error_of(not_served::kIntegrityReclaims, "volume " + view.id));
  return step::Trim{staged->mount->target, wish.from};
}

}  // namespace corbd::plan
