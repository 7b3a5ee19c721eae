#include "krbd.hpp"

#include <algorithm>
#include <array>

#include "corbd/plan/combination.hpp"
#include "expand.hpp"
#include "filesystem.hpp"
#include "holders.hpp"
#include "note.hpp"
#include "proof.hpp"

namespace corbd::plan {
namespace {

/// Whether others use the image. One that many nodes write may have any number of watchers.
bool has_other_users(const Situation& view) {
  const auto writes = [&](const std::string& watcher) { return !view.seen.facts.evicted.contains(watcher); };
  return !view.record->use.shared && std::ranges::any_of(view.seen.facts.ownership->foreign_watchers, writes);
}

/// Whether nothing was written through the device yet, so that it may be unmapped again.
bool is_fresh(const Situation& view) {
  const auto complete = [](const Staging& staging) { return staging.complete; };
  const auto* device = view.seen.device();
  const auto shown = [&](const host::Mount& mount) { return shows(mount, *device, view.id); };
  return std::ranges::none_of(view.record->stagings, complete) && std::ranges::none_of(view.seen.mounts, shown);
}

}  // namespace

result<device::Kind> choose_kind(Mounter wanted, std::uint64_t image_features, cephcsi::KeyType key,
                                 const result<device::Abilities>& kernel_client) {
  if (wanted == Mounter::nbd) return device::kServing;
  if (!kernel_client) return kernel_client.error();
  const std::uint64_t unknown = image_features & ~kernel_client->features;
  // An older kernel may have a backport of the type. Only using such a key would show it, and a map that fails may
  // leave things behind. corbd serves the volume in any case.
  const bool wrong_key = key == cephcsi::KeyType::aes256k && !kernel_client->aes256k;
  if (wanted == Mounter::krbd_if_able && (unknown != 0 || wrong_key)) return device::kServing;
  if (unknown == 0) return device::kMapped;
  return error_of(not_served::kFeaturesOfKernel, "the image has the features " + image::names_of(unknown) + ", which");
}

std::optional<Decision> refuse_features(const Situation& view, const image::Features& features) {
  auto refused = image::refuse(features, !view.record->use.read_only, image_of(view));
  return refused ? std::optional(refuse(*std::move(refused))) : std::nullopt;
}

bool by_kernel(const Situation& view) { return view.record && !traits(view.record->device.kind).served; }

std::optional<Decision> open_beside(const Situation& view) {
  if (!by_kernel(view)) return std::nullopt;
  if (view.seen.image_closing) return Step(step::CloseImage{});
  if (view.seen.image_open) return std::nullopt;
  if (view.seen.facts.gone) return refuse(errc::lost, image_of(view) + " does not exist any more: unstage the volume");
  if (!view.seen.key_known) return no_key(view);
  if (view.seen.facts.node_fenced) return refuse(*view.seen.facts.node_fenced);
  if (view.seen.facts.fenced != true) return Step(step::Fence{});
  return Step(step::OpenImage{});
}

std::optional<Decision> bring_up_krbd(const Situation& view) {
  if (view.seen.device() != nullptr) return std::nullopt;
  // The device that the record names is gone; the next may be another.
  if (view.record->device.index) return name_device(view, std::nullopt);
  if (!view.seen.key_known) return no_key(view);
  const bool asks = !view.record->use.read_only || view.reads_alone;
  const auto& facts = view.seen.facts;
  if (asks || view.record->provisioned)
    if (auto step = open_beside(view)) return step;
  // An image that was resolved just now, or opened, has no feature that is refused to a reader.
  const bool known = facts.resolved || view.seen.image_open;
  if (!known && !facts.header) return look(Fact::header);
  if (!known)
    if (auto refused = refuse_features(view, facts.header->features)) return refused;
  if (asks) {
    if (!facts.ownership) return look(Fact::ownership);
    if (auto refused = refuse_features(view, facts.ownership->features)) return refused;
    if (auto answer = view.record->use.read_only ? wait_for_writers(view)
                      : view.record->use.shared  ? take_left_lock(view)
                                                 : take_image(view))
      return answer;
  }
  if (auto step = note_node(view)) return step;
  return Step(step::MapKrbd{});
}

std::optional<Decision> finish_krbd_stage(const Situation& view, const Staging& staging) {
  if (!by_kernel(view)) return std::nullopt;
  const auto* device = view.seen.device();
  if (!view.record->use.read_only && !staging.complete) {
    if (device->read_only)
      return refuse(errc::failed_precondition,
                    device::path(*device) + " of volume " + view.id +
                        " is read-only, and the volume is wanted writable: run `blockdev --setrw " +
                        device::path(*device) + "`, or unstage the volume, whose next stage maps it anew");
    if (auto step = open_beside(view)) return step;
    // Two nodes may have looked before either had mapped it. Each looks again once its watch exists: at least one sees
    // the other.
    if (is_fresh(view) && !view.seen.facts.ownership) return look(Fact::ownership);
    if (is_fresh(view) && has_other_users(view)) return Step(step::UnmapKrbd{});
  }
  if (view.record->device.index != device->index) return name_device(view, device->index);
  return std::nullopt;
}

Decision leave_to_kernel(const Situation& view) {
  if (by_kernel(view) && view.seen.image_open) return Step(step::CloseImage{});
  return Done{};
}

Decision expand_krbd(const Situation& view, const Expanded& wish) {
  const auto* device = view.seen.device();
  if (device == nullptr)
    return refuse(errc::unavailable, "the device of volume " + view.id + " is gone: " + kStageAgain);
  if (device->size < wish.bytes)
    return refuse(errc::unavailable, device::path(*device) + " of volume " + view.id + " has " +
                                         std::to_string(device->size) + " bytes, and " + std::to_string(wish.bytes) +
                                         " are wanted: repeat once the image has grown and the kernel shows it");
  return expand_contents(view);
}

}  // namespace corbd::plan
