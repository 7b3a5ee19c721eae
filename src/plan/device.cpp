#include "device.hpp"

#include "adopt.hpp"
#include "krbd.hpp"
#include "note.hpp"
#include "proof.hpp"

namespace corbd::plan {
namespace {

constexpr std::uint32_t kIoTimeoutMs = 1000;

Step note_break(const Situation& view, std::optional<std::uint64_t> breaking, std::optional<std::uint64_t> freed) {
  step::WriteRecord step{*view.record};
  step.record.breaking = breaking;
  step.record.freed = freed;
  // Without it a second death before the lock is ours leaves the volume unproven; with a full disk it would stay
  // without a server now.
  step.may_fail = true;
  return step;
}

/// Whether our own break is the last that happened to the header. To be seen before the image is opened.
std::optional<Step> read_mark(const Situation& view) {
  const auto& breaking = view.record->breaking;
  if (!breaking || view.record->freed) return std::nullopt;
  const auto& header = view.seen.facts.header;
  if (!header) return look(Fact::header);
  if (header->break_mark != break_mark(*breaking)) return std::nullopt;
  return note_break(view, breaking, header->version);
}

/// The volume was given up under its attachment. What somebody else staged since was not.
Decision offer_tombstone(const Situation& view) {
  if (auto step = ask_restaged(view)) return *step;
  const auto& attachment = view.seen.facts.attachment;
  if (attachment && attachment->state == Attachment::State::unknown)
    return fail(errc::unproven, "volume " + view.id +
                                    " was given up, and its image-meta.json is not this agent's any more: whether it "
                                    "was staged anew since, only its VolumeAttachment tells: " +
                                    attachment->why);
  return Step(step::OpenTombstone{});
}

std::optional<Decision> bring_up_image(const Situation& view) {
  if (view.seen.image_closing) return Step(step::CloseImage{});
  if (is_restaged(view)) return view.seen.image_open ? Step(step::CloseImage{}) : Step(step::DropRecord{});
  if (view.record->failed) {
    if (!view.seen.image_open) return offer_tombstone(view);
    if (!view.seen.tombstone) return Step(step::CloseImage{});
    return std::nullopt;
  }
  if (view.seen.facts.gone) return lost(view, "does not exist any more");
  if (!view.seen.key_known) return no_key(view);
  if (view.seen.facts.fenced != true) return Step(step::Fence{});
  if (!view.seen.image_open) {
    // These need no proof, so nothing asks later.
    if (view.record->read_only || view.record->shared)
      if (auto step = ask_restaged(view)) return step;
    if (auto step = read_mark(view)) return step;
    return Step(step::OpenImage{});
  }
  if (view.record->read_only || (view.seen.lock_held && !rests_on_word(view))) return std::nullopt;
  // Of a shared image librbd takes the lock for a write, and gives it to whoever asks.
  if (view.record->shared && !view.record->adopting) return std::nullopt;
  if (!view.seen.facts.ownership) return look(Fact::ownership);
  if (view.record->adopting)
    if (auto step = end_other_client(view)) return step;
  if (view.record->shared) return std::nullopt;
  if (view.seen.facts.ownership->lock == image::Ownership::Lock::none)
    if (auto step = read_mark(view)) return step;
  if (auto refused = prove(view)) return refused;
  if (!view.record->exclusive_lock) return std::nullopt;
  const auto& who = *view.seen.facts.ownership;
  if (who.lock != image::Ownership::Lock::our_dead || view.record->breaking == who.version) return Step(step::Lock{});
  return note_break(view, who.version, std::nullopt);
}

/// What a stage left to rbd-nbd may hold an application's data, and the mark of a format that was begun before: no
/// image was open here to take it away.
std::optional<Step> unmark_taken_over(const Situation& view) {
  const Record& record = *view.record;
  const bool staged = std::ranges::any_of(record.stagings, [](const Staging& staging) { return staging.complete; });
  if (!record.adopting || !staged || record.read_only || record.failed) return std::nullopt;
  if (!view.seen.facts.format_marker) return look(Fact::format_marker);
  if (view.seen.facts.format_marker->empty()) return std::nullopt;
  return Step(step::Unmark{});
}

/// A path on which a raw device is bound outlives the device, and so does what a pod was given of it: with a new one of
/// that number it would have that.
std::optional<Decision> clear_paths(const Situation& view) {
  const Record& record = *view.record;
  if (!record.block || !record.device) return std::nullopt;
  if (!record.publishes.empty())
    return fail(errc::unavailable, device::path(*record.device, record.kind) + " of volume " + view.id +
                                       " is gone by another program's hand, and the volume is "
                                       "still published at " +
                                       record.publishes.front().target +
                                       ": end its pods, and it is unstaged and staged anew");
  for (const auto& staging : record.stagings) {
    step::Umount step{staging_target(view.id, staging.path)};
    if (shows_device_that_is_gone(view, step.path)) return step;
  }
  return std::nullopt;
}

}  // namespace

bool shows_device_that_is_gone(const Situation& view, const std::string& target) {
  const Record& record = *view.record;
  if (!record.device || !view.seen.devices.empty()) return false;
  const std::string node = "/" + device::name(record.kind, *record.device);
  return std::ranges::any_of(view.seen.mounts, [&](const auto& mount) {
    return mount.target == target && mount.fstype == "devtmpfs" &&
           (mount.root == node || mount.root == node + "//deleted");
  });
}

Decision given_up(const Situation& view) {
  return fail(errc::lost,
              "volume " + view.id +
                  " was given up and answers with I/O errors: end its pods and unstage it, then stage it anew");
}

Decision fail(errc code, std::string text) { return Fail{{code, std::move(text)}}; }

Step look(Fact fact) { return step::Look{fact}; }

Step name_device(const Situation& view, std::optional<std::uint32_t> index) {
  step::WriteRecord step{*view.record};
  // Between two devices nothing kept other nodes away: what was begun on the first counts no more.
  if (index != view.record->device) step.record.format.clear();
  step.record.on_word = false;  // it is served
  step.record.device = index;
  step.record.adopting = false;
  if (view.seen.facts.noted) step.record.note = view.seen.facts.noted;
  return step;
}

Decision no_key(const Situation& view) {
  return fail(errc::unavailable, "no Ceph key of user " + view.record->user + " for volume " + view.id +
                                     " is at hand (the runtime directory was emptied): stage the volume again");
}

Source found_at(const Source& wished, const image::Resolved& found) {
  Source source = wished;
  source.cluster_id = found.cluster_id;
  source.pool = found.name.pool;
  source.ns = found.name.ns;
  source.image = found.name.image;
  return source;
}

Wait until_closed(const Situation& view) {
  const std::string path = device::path(*view.seen.device());
  return Wait{path + " of volume " + view.id + " is disconnected, and somebody still has it open: `fuser -v " + path +
              "` tells who"};
}

std::optional<Decision> bring_up(const Situation& view) {
  using Link = Observation::Link;
  const auto* device = view.seen.device();
  if (device != nullptr && view.record->device && *view.record->device != device->index) return close_for_other(view);
  if (device == nullptr)
    if (auto step = clear_paths(view)) return step;
  if (by_kernel(view)) return bring_up_krbd(view);
  if (device != nullptr && view.seen.facts.disconnected) {
    if (view.seen.mounts.empty() && device->holders.empty()) return until_closed(view);
    return fail(errc::unavailable, device::path(*device) + " of volume " + view.id +
                                       " was disconnected by another program while it was in use, and gives only "
                                       "I/O errors: end its pods, and it is unstaged and staged anew");
  }
  // The process's own side of a dead link goes first; what the image's connection broke, with its image.
  if (view.seen.link == Link::held || view.seen.link == Link::closed) return Step(step::StopSession{});
  if (view.record->adopting && !view.record->failed && device != nullptr && view.seen.link == Link::none) {
    if (!view.seen.facts.served_by_other) return look(Fact::served_by_other);
    const bool leaving = view.seen.other_dead_for.has_value();
    if (*view.seen.facts.served_by_other && leaving) return Wait{"rbd-nbd ends"};
    if (*view.seen.facts.served_by_other && !view.take_over) {
      if (view.seen.image_open) return Step(step::CloseImage{});
      return std::nullopt;
    }
  }
  if (view.record->failed && !view.seen.tombstone && view.seen.link != Link::none) return Step(step::StopSession{});
  // An earlier try had the word, began this session and did not come to its end.
  if (!view.record->failed && view.seen.link == Link::serving && !view.seen.connected && rests_on_word(view))
    return Step(step::StopSession{});
  if (view.seen.link == Link::serving && device != nullptr && view.seen.connected) {
    if (view.record->device != device->index || view.record->adopting || view.record->on_word)
      return name_device(view, device->index);
    if (device->io_timeout_ms != kIoTimeoutMs || view.seen.untuned) return Step(step::Tune{});
    // It only grows: below a smaller one the filesystem would lose its end.
    if (device_bytes(view.seen.image_size, view.record->block_size) > device->size) return Step(step::KernelResize{});
    return std::nullopt;
  }
  if (view.seen.link == Link::none) {
    if (auto step = bring_up_image(view)) return step;
    if (auto step = unmark_taken_over(view)) return step;
    // Before there is a device. Of one that there is, only after it is served again: renew_note().
    if (device == nullptr)
      if (auto step = note_node(view)) return step;
    return Step(step::StartSession{});
  }
  if (device != nullptr) return Step(step::KernelReconfigure{});
  // The device that the record names is gone; the next may be another.
  if (view.record->device) return name_device(view, std::nullopt);
  return Step(step::KernelConnect{});
}

}  // namespace corbd::plan
