#include "evidence.hpp"

#include <algorithm>

#include "adopt.hpp"

namespace corbd::plan {
namespace {

using enum Means;

constexpr Meaning kRefuses{refuses, ""}, kTaken{taken, ""};
constexpr Meaning kReads{nothing, "it writes nothing, and shows what it read"};
constexpr Meaning kShares{nothing, "its users expect other writers"};
constexpr Meaning kHolds{nothing, "whoever takes the lock fences our client first, which ends the link"};
constexpr Meaning kFresh{nothing, "a new device has no pages above it that could be stale"};
constexpr Meaning kLocked{nothing, "whoever writes takes the lock first, and then it is not ours any more"};
constexpr Meaning kSaid{nothing, "that is what the operator answers for"};

using Row = std::array<Meaning, kTraces.size()>;

/// One row for each Ground, one column for each Trace: dirty cache, watch, lock, mark, stamp.
constexpr std::array<Row, kGrounds> kMeanings{{
    {kRefuses, kReads, kReads, kReads, kReads},          // reader
    {kRefuses, kShares, kTaken, kShares, kShares},       // shared
    {kRefuses, kHolds, kHolds, kHolds, kHolds},          // held
    {kRefuses, kTaken, kTaken, kTaken, kFresh},          // fresh
    {kRefuses, kRefuses, kRefuses, kRefuses, kLocked},   // own_lock
    {kRefuses, kRefuses, kRefuses, kRefuses, kRefuses},  // handed_over
    {kRefuses, kRefuses, kRefuses, kTaken, kRefuses},    // dismissed: rbd-nbd replaced no older mark
    {kRefuses, kRefuses, kRefuses, kRefuses, kRefuses},  // attached
    {kRefuses, kRefuses, kRefuses, kTaken, kRefuses},    // attached_other: the same
    {kRefuses, kRefuses, kTaken, kRefuses, kRefuses},    // left_lock
    {kRefuses, kRefuses, kRefuses, kRefuses, kSaid},     // operator_says
}};

/// Whether another client wrote since this node served the volume. librbd stamps an image when it writes, and our
/// clients do not, so another stamp than the record's shows it. rbd-nbd of this node may have written; it leaves its
/// own timeout at the device, and then the stamp proves nothing.
bool was_written_since(const Situation& view) {
  const auto& modified = view.record->proof.modified;
  const auto* device = view.seen.device();
  if (!modified || device == nullptr || device->io_timeout_ms != kIoTimeoutMs) return false;
  // By its mapOptions, rbd-nbd's devices of this volume have corbd's timeout.
  if (view.record->adopting && view.record->source.serving.same_timeout) return false;
  const auto& who = view.seen.facts.ownership;
  if (who) return who->modified && who->modified != modified;
  if (view.seen.lock_held || view.seen.writer_marked) return view.seen.modified && view.seen.modified != modified;
  return true;
}

}  // namespace

Meaning meaning(Ground ground, Trace trace) {
  return kMeanings.at(static_cast<std::size_t>(ground)).at(static_cast<std::size_t>(trace));
}

bool shows(const Situation& view, Trace trace) {
  const auto& who = view.seen.facts.ownership;
  if (trace == Trace::stamp) return was_written_since(view);
  if (!who) return true;
  switch (trace) {
    case Trace::dirty_cache:
      return (who->features.bits & image::kDirtyCache) != 0;
    case Trace::watch:
      return !who->foreign_watchers.empty();
    case Trace::lock:
      return who->lock == image::Ownership::Lock::other;
    case Trace::mark:
      return !who->writer.empty() && !on_this_node(*who, who->writer);
    case Trace::stamp:
      break;
  }
  return true;
}

bool is_clear(const Situation& view, Ground ground) {
  return std::ranges::none_of(
      kTraces, [&](Trace trace) { return meaning(ground, trace).means == Means::refuses && shows(view, trace); });
}

}  // namespace corbd::plan
