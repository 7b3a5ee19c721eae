#include "stash.hpp"

namespace corbd::plan {
namespace {

Stash wanted_stash(const Situation& view, const Staged& wish) {
  const Source& source = view.record->source;
  Stash stash = wish.stash;
  stash.pool = source.pool;
  stash.ns = source.ns;
  stash.image = source.image;
  stash.encrypted = view.record->encrypts_device();
  stash.attachment = view.record->proof.attachment_uid;
  stash.cache_lost = view.record->cache_lost;
  stash.nbd = traits(view.record->device.kind).rbd_nbd;
  if (!stash.nbd) {
    // ceph-csi notes neither device nor log for a device that the kernel maps.
    stash.unmap_options = source.kernel.unmap;
    stash.log_dir = stash.log_strategy = "";
    return stash;
  }
  const auto* device = view.seen.device();
  stash.device = device == nullptr ? "" : device::path(*device);
  return stash;
}

}  // namespace

std::optional<Decision> keep_stash(const Situation& view, const Staged& wish) {
  if (!view.seen.facts.stash) return look(Fact::stash);
  Stash wanted = wanted_stash(view, wish);
  if (*view.seen.facts.stash == wanted) return std::nullopt;
  return step::WriteStash{wish.path, std::move(wanted)};
}

std::optional<Decision> note_loss_in_stash(const Situation& view, bool lost) {
  const Record& record = *view.record;
  const auto* device = view.seen.device();
  if (!record.cache_lost || record.stagings.empty() || device == nullptr) return std::nullopt;
  if (!view.seen.facts.stash) return look(Fact::stash);
  const auto& stash = *view.seen.facts.stash;
  if (!stash || stash->image != record.source.image || stash->device != device::path(*device) ||
      stash->cache_lost == lost)
    return std::nullopt;
  step::WriteStash step{record.stagings.front().path, *stash};
  step.stash.cache_lost = lost;
  return step;
}

std::optional<Decision> sign_stash(const Situation& view) {
  const Record& record = *view.record;
  if (record.stagings.empty()) return std::nullopt;
  if (!view.seen.facts.stash) return look(Fact::stash);
  const auto& stash = *view.seen.facts.stash;
  // A stash that is damaged, or another's, is not ours to sign.
  if (!stash || stash->image != record.source.image || stash->attachment == record.proof.attachment_uid)
    return std::nullopt;
  step::WriteStash step{record.stagings.front().path, *stash};
  step.stash.attachment = record.proof.attachment_uid;
  return step;
}

Decision without_stash(const Situation& view, const Unstaged& wish, Decision then) {
  if (!view.seen.facts.stash) return look(Fact::stash);
  if (*view.seen.facts.stash) return step::DropStash{wish.path};
  return then;
}

}  // namespace corbd::plan
