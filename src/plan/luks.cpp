#include "luks.hpp"

#include <algorithm>

#include "bring_up.hpp"
#include "corbd/plan/combination.hpp"
#include "filesystem.hpp"
#include "krbd.hpp"
#include "paths.hpp"
#include "volume_key.hpp"

namespace corbd::plan {
namespace {

/// Makes a header by rule 10: only on an image that is proven empty, or that our own marker says was.
Decision make_header(const Situation& view, const Staged& wish) {
  if (writes_nothing(view, as_served(*view.record, wish)))
    return refuse(error_of(not_served::kHeaderForReader, image_of(view)));
  if (view.record->use.shared) return refuse(error_of(not_served::kHeaderForMany, image_of(view)));
  if (*view.seen.facts.encryption == kEncrypted)
    return refuse(errc::not_empty,
                  image_of(view) +
                      " is encrypted by its metadata, but has no LUKS header: it is not formatted. Find out what "
                      "happened to its first 16 MiB");
  if (!wish.luks.refused.empty())
    return refuse_format(view, errc::invalid_argument, image_of(view) + " cannot be encrypted: " + wish.luks.refused);
  return with_first_key(view, format(view, step::LuksFormat{}));
}

/// Completes a header. Nothing can ever open one without a key. Until the metadata calls the image encrypted, it is our
/// own format that did not end.
Decision finish_header(const Situation& view, const Staged& wish) {
  if (*view.seen.facts.encryption != kEncrypted) {
    if (!view.seen.facts.format_marker) return look(Fact::format_marker);
    if (!view.seen.facts.format_marker->empty()) return make_header(view, wish);
  }
  return refuse_format(view, errc::failed_precondition,
                       image_of(view) + " has a LUKS header that no key opens: restore it from a backup of the header");
}

/// Closes mappings that a death left, before the stage opens the volume: between the two that integrity needs, or while
/// a format writes the tags. No key opens a header until its format has closed them.
std::optional<Decision> close_leftovers(const Situation& view) {
  const auto* device = view.seen.device();
  if (device == nullptr || top_mapping(*device, view.id) == nullptr) return std::nullopt;
  if (luks_mapping(view) == nullptr) return Step(step::LuksClose{});
  if (integrity_of(*device, view.id) == nullptr || !view.record->format) return std::nullopt;
  if (!view.seen.facts.luks) return look(Fact::luks);
  return view.seen.facts.luks->key_slots.empty() ? std::optional<Decision>(Step(step::LuksClose{})) : std::nullopt;
}

/// Whether the note must wait: a format of the kernel's device is recognised by the version of the image's header
/// (begun_by_kernel), which the note in the image's metadata changes.
bool is_noted_later(const Situation& view) {
  return by_kernel(view) && view.record->encrypts_device() && view.record->format.has_value();
}

/// Whether the mapping takes writes and the volume must not, or the other way round, after a check. Its table decides:
/// a device that turns read-only below it stops no write.
bool is_opened_otherwise(const Situation& view, const device::UpperDevice& mapping) {
  const auto& device = *view.seen.device();
  const Record& record = *view.record;
  if (record.use.read_only || record.adopting || by_kernel(view)) return false;
  return device.read_only == record.damaged && mapping.read_only != record.damaged &&
         std::ranges::none_of(view.seen.mounts, [&](const auto& mount) { return shows(mount, device, view.id); });
}

std::optional<Decision> refuse_integrity(const Situation& view, const Staged& wish) {
  // dm-integrity keeps tags in memory, and would not see another node's writes.
  if (view.record->use.shared) return refuse(error_of(not_served::kIntegrityForMany, image_of(view)));
  if (wish.luks.discard)
    return refuse(errc::failed_precondition,
                  image_of(view) + " has integrityMode, which cannot discard: leave out encryptionDiscard");
  return std::nullopt;
}

}  // namespace

const device::UpperDevice* luks_mapping(const Situation& view) {
  const auto* device = view.seen.device();
  return device == nullptr ? nullptr : mapping_of(*device, view.id);
}

std::optional<Decision> open_mapping(const Situation& view, const Staged& wish) {
  if (!view.record->encrypts_device()) return std::nullopt;
  if (auto step = close_leftovers(view)) return step;
  if (const auto* mapping = luks_mapping(view))
    return is_opened_otherwise(view, *mapping) ? std::optional<Decision>(Step(step::LuksClose{})) : std::nullopt;
  if (const auto* device = view.seen.device())
    if (auto refused = refuse_held(view, *device, true)) return *refused;
  if (auto step = open_beside(view)) return *step;
  if (!view.seen.image_open)
    return refuse(errc::unavailable, "rbd-nbd serves volume " + view.id +
                                         ", which ceph-csi has not opened: end its stage, or take the volume over "
                                         "with `corbd heal --adopt`");
  const auto& facts = view.seen.facts;
  if (!facts.encryption) return look(Fact::encryption);
  const std::string& state = *facts.encryption;
  if (!state.empty() && state != kPrepared && state != kEncrypted)
    return refuse(errc::failed_precondition,
                  image_of(view) + " has an unknown state of encryption in its metadata: it is not opened");
  if (!facts.luks) return look(Fact::luks);
  const auto& found = facts.luks->found;
  if (found.kind == host::Probe::Kind::nothing) return make_header(view, wish);
  if (!is_luks(found))
    return refuse(
        error_of(not_served::kUnencrypted, image_of(view),
                 (found.type.empty() ? "" : " (" + found.type + ")") + ": it is neither opened nor formatted"));
  if (facts.luks->key_slots.empty()) return finish_header(view, wish);
  if (facts.luks->integrity)
    if (auto refused = refuse_integrity(view, wish)) return *refused;
  if (state != kEncrypted && !writes_nothing(view, as_served(*view.record, wish)) && !is_noted_later(view))
    return Step(step::LuksNote{});
  return Step(step::LuksOpen{});
}

std::optional<Decision> note_encrypted(const Situation& view) {
  if (!is_noted_later(view)) return std::nullopt;
  if (!view.seen.facts.encryption) return look(Fact::encryption);
  if (*view.seen.facts.encryption != kEncrypted) return Step(step::LuksNote{});
  return std::nullopt;
}

std::optional<Decision> fill_mapping(const Situation& view) {
  if (!view.record->encrypts_device() || view.record->reads_only() || view.seen.facts.fits) return std::nullopt;
  if (luks_mapping(view) == nullptr)
    return refuse(errc::unavailable, "volume " + view.id + " is encrypted and not open: " + kStageAgain);
  if (integrity_of(*view.seen.device(), view.id) != nullptr)
    return std::nullopt;  // its tags have the layout of its format
  return Step(step::LuksResize{});
}

std::optional<Decision> refuse_growth(const Situation& view) {
  const auto* device = view.seen.device();
  if (!view.record->encrypts_device() || device == nullptr || integrity_of(*device, view.id) == nullptr)
    return std::nullopt;
  return refuse(error_of(not_served::kIntegrityGrows, "volume " + view.id));
}

std::optional<Decision> close_mapping(const Situation& view) {
  const auto* device = view.seen.device();
  if (!view.record->encrypts_device() || device == nullptr || top_mapping(*device, view.id) == nullptr)
    return std::nullopt;
  if (!view.seen.facts.disconnected)
    if (auto step = bring_up(view)) return step;
  return Step(step::LuksClose{});
}

}  // namespace corbd::plan
