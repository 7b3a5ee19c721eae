// Each question is a function. Two sequences, at the end of this file, set the order of the questions: one for the
// image, one for the device. Possible answers: nothing, which goes on to the next question; Done, which ends the
// sequence; or the next action.
#include "bring_up.hpp"

#include <algorithm>
#include <span>

#include "adopt.hpp"
#include "filesystem.hpp"
#include "holders.hpp"
#include "krbd.hpp"
#include "note.hpp"
#include "proof.hpp"
#include "stash.hpp"

namespace corbd::plan {
namespace {

using Link = Observation::Link;
using Answer = std::optional<Decision>;
using Question = Answer (*)(const Situation&);

/// Returns the first answer. Done becomes nothing, because the caller goes on then.
Answer ask(std::span<const Question> questions, const Situation& view) {
  for (const Question question : questions)
    if (auto answer = question(view)) return std::holds_alternative<Done>(*answer) ? std::nullopt : std::move(answer);
  return std::nullopt;
}

// --- the break time: our own break of a dead lock, known again

/// Whether our own break was the last change of the header. Read this before the image is opened.
std::optional<Step> read_break_time(const Situation& view) {
  const auto& broken = view.record->proof.lock_break;
  if (!broken || broken->after) return std::nullopt;
  const auto& header = view.seen.facts.header;
  if (!header) return look(Fact::header);
  if (header->break_time != break_time(broken->before)) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.proof.lock_break->after = header->version;
  step.may_fail = true;  // as in needs_lock()
  return step;
}

// --- questions about the image

Answer is_still_closing(const Situation& view) {
  if (view.seen.image_closing) return Step(step::CloseImage{});
  return std::nullopt;
}

/// Closes an image whose client was cut off: its proof is void, also if the cluster lets that client in again.
Answer is_cut_off(const Situation& view) {
  if (view.seen.image_cut_off) return Step(step::CloseImage{});
  return std::nullopt;
}

Answer was_restaged(const Situation& view) {
  if (!is_restaged(view)) return std::nullopt;
  return view.seen.image_open ? Step(step::CloseImage{}) : Step(step::DropRecord{});
}

/// Offers a tombstone. The volume was given up under its attachment; a later stage by somebody else was not.
Decision offer_tombstone(const Situation& view) {
  if (auto step = ask_restaged(view)) return *step;
  const auto& attachment = view.seen.facts.attachment;
  if (has_other_stash(view) && attachment && attachment->state == Attachment::State::unknown)
    return refuse(errc::unproven,
                  "volume " + view.id +
                      " was given up, and somebody else has written its image-meta.json since. Only its "
                      "VolumeAttachment tells whether it was staged again: " +
                      attachment->why);
  return Step(step::OpenTombstone{});
}

Answer was_given_up(const Situation& view) {
  if (!view.record->failed) return std::nullopt;
  if (!view.seen.image_open) return offer_tombstone(view);
  if (!view.seen.tombstone) return Step(step::CloseImage{});
  return Done{};
}

Answer is_gone(const Situation& view) {
  if (view.seen.facts.gone) return lost(view, "does not exist any more");
  return std::nullopt;
}

Answer needs_key(const Situation& view) {
  if (!view.seen.key_known) return no_key(view);
  return std::nullopt;
}

/// No image can be opened, so nothing here proves who has it. The orchestrator may know that it is another node's. Then
/// its requests need not wait.
Answer is_node_fenced(const Situation& view) {
  const auto& fenced = view.seen.facts.node_fenced;
  if (!fenced) return std::nullopt;
  if (view.seen.devices.empty() || !view.record->use.writes_alone()) return refuse(*fenced);
  if (!view.seen.facts.attachment) return look(Fact::attachment);
  if (const char* why = taken_away(view)) return lost(view, std::string(why) + ", and " + fenced->text);
  return refuse(*fenced);
}

Answer needs_fence(const Situation& view) {
  if (view.seen.facts.fenced != true) return Step(step::Fence{});
  return std::nullopt;
}

Answer needs_opening(const Situation& view) {
  if (view.seen.image_open) return std::nullopt;
  // These need no proof, so no later question asks for it.
  if (!view.record->use.writes_alone())
    if (auto step = ask_restaged(view)) return step;
  if (auto step = read_break_time(view)) return step;
  return Step(step::OpenImage{});
}

Answer needs_no_proof(const Situation& view) {
  const bool reads = view.record->use.read_only && !(view.reads_alone && view.seen.devices.empty());
  // rbd-nbd maps the image read-only, so it has no lock and no cache. The kernel lets nobody else serve a device while
  // its server lives.
  const auto* device = view.seen.device();
  const bool other_reads = view.seen.facts.served_by_other == true && device != nullptr && device->read_only;
  if (reads && view.record->adopting && other_reads) return Step(step::Dismiss{});
  if (reads || (view.seen.lock_held && !is_lock_late(view) && !rests_on_override(view))) return Done{};
  return std::nullopt;
}

Answer needs_ownership(const Situation& view) {
  if (!view.seen.facts.ownership) return look(Fact::ownership);
  return std::nullopt;
}

/// Asks before anybody is fenced, or a lock is taken. A living rbd-nbd is asked to end first: it then stores its data
/// and clears the bit.
Answer has_refused_feature(const Situation& view) {
  if (view.record->adopting && view.seen.facts.served_by_other == true) return std::nullopt;
  if (auto refused = refuse_features(view, view.seen.facts.ownership->features)) return refused;
  return std::nullopt;
}

Answer does_other_client_remain(const Situation& view) {
  return view.record->adopting ? end_other_client(view) : std::nullopt;
}

/// Nothing is written by us, or many nodes write: librbd takes the lock of a shared image for a write, and gives it to
/// any client that asks.
Answer is_for_many(const Situation& view) {
  if (view.record->use.writes_alone()) return std::nullopt;
  if (auto step = view.record->use.shared ? take_left_lock(view) : wait_for_writers(view)) return step;
  return Done{};
}

Answer needs_break_time(const Situation& view) {
  if (view.seen.facts.ownership->lock == image::Ownership::Lock::none)
    if (auto step = read_break_time(view)) return step;
  return std::nullopt;
}

/// Whether the record lacks that this client asks for the lock. Without a device nothing has to be proven.
bool lacks_lock_call(const Situation& view) {
  const auto& call = view.record->proof.lock_call;
  return view.seen.exclusive_lock && view.seen.device() != nullptr &&
         view.seen.facts.ownership->lock != image::Ownership::Lock::mine && (!call || call->client != view.seen.client);
}

Answer needs_lock(const Situation& view) {
  if (view.seen.writer_marked) return Done{};
  const auto& who = *view.seen.facts.ownership;
  const auto& broken = view.record->proof.lock_break;
  const bool breaks = who.lock == image::Ownership::Lock::our_dead && (!broken || broken->before != who.version);
  if (!breaks && !lacks_lock_call(view)) return Step(step::Lock{});
  // Without this write a death before the device is served leaves the volume unproven, or hides that its lock came
  // late; but on a full disk, requiring it would leave the volume without a server now.
  step::WriteRecord step{*view.record};
  step.may_fail = true;
  if (lacks_lock_call(view)) step.record.proof.lock_call = LockCall{view.seen.client, view.seen.now};
  if (breaks) step.record.proof.lock_break = LockBreak{who.version};
  return step;
}

// --- questions about the device

Answer is_other_than_recorded(const Situation& view) {
  const auto* device = view.seen.device();
  if (device != nullptr && view.record->device.index && *view.record->device.index != device->index)
    return close_for_other(view);
  return std::nullopt;
}

/// A path on which a raw device is bound outlives the device, and so does the device node that a pod was given. A new
/// device of that number would be there at once.
Answer do_paths_outlive_it(const Situation& view) {
  const Record& record = *view.record;
  if (view.seen.device() != nullptr || !record.use.block || !record.device.index) return std::nullopt;
  if (!record.publishes.empty())
    return refuse(errc::unavailable, device::path(*record.device.index, record.device.kind) + " of volume " + view.id +
                                         " was removed by another program, and the volume is "
                                         "still published at " +
                                         record.publishes.front().target +
                                         ": end its pods. kubelet then unstages it and stages it again");
  for (const auto& staging : record.stagings) {
    step::Umount step{staging_target(view.id, staging.path)};
    if (shows_device_that_is_gone(view, step.path)) return step;
  }
  return std::nullopt;
}

Answer does_kernel_serve_it(const Situation& view) {
  if (!by_kernel(view)) return std::nullopt;
  if (auto step = bring_up_krbd(view)) return step;
  return Done{};
}

Answer was_disconnected(const Situation& view) {
  const auto* device = view.seen.device();
  if (device == nullptr || !view.seen.facts.disconnected) return std::nullopt;
  if (view.seen.mounts.empty() && device->holders.empty()) return until_closed(view);
  return refuse(errc::unavailable, device::path(*device) + " of volume " + view.id +
                                       " was disconnected by another program while it was in use, and gives only "
                                       "I/O errors: end its pods. kubelet then unstages it and stages it again");
}

/// Drops the process's own side of a dead link first; a link that the image's connection broke goes with its image.
Answer is_link_dead(const Situation& view) {
  if (view.seen.link == Link::held || view.seen.link == Link::closed) return Step(step::StopSession{});
  return std::nullopt;
}

Answer does_rbd_nbd_serve_it(const Situation& view) {
  if (!view.record->adopting || view.record->failed || view.seen.device() == nullptr || view.seen.link != Link::none)
    return std::nullopt;
  if (!view.seen.facts.served_by_other) return look(Fact::served_by_other);
  if (!*view.seen.facts.served_by_other) return std::nullopt;
  if (view.seen.other_dead_for) return Wait{"rbd-nbd ends"};
  if (view.take_over) return std::nullopt;
  if (view.seen.image_open) return Step(step::CloseImage{});
  if (auto step = note_uncached(view)) return step;
  return Done{};
}

Answer does_wrong_session_run(const Situation& view) {
  if (view.record->failed && !view.seen.tombstone && view.seen.link != Link::none) return Step(step::StopSession{});
  // An earlier try had the override, began this session and did not reach its end.
  if (!view.record->failed && view.seen.link == Link::serving && !view.seen.connected && rests_on_override(view))
    return Step(step::StopSession{});
  return std::nullopt;
}

/// A disk that refuses the write keeps no volume from its server.
Answer note_lock(const Situation& view) {
  const bool writes = view.seen.lock_held || view.seen.writer_marked;
  if (!writes || (view.record->proof.modified == view.seen.modified && !view.record->proof.lock_call))
    return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.proof.modified = view.seen.modified;
  step.record.proof.lock_call.reset();
  step.may_fail = true;
  return step;
}

Answer is_served_already(const Situation& view) {
  const auto* device = view.seen.device();
  if (view.seen.link != Link::serving || device == nullptr || !view.seen.connected) return std::nullopt;
  if (view.record->adopting)
    if (auto step = note_loss_in_stash(view, true)) return step;
  if (view.record->device.index != device->index || view.record->adopting || view.record->proof.operator_override)
    return name_device(view, device->index);
  if (view.seen.fails_flushes && !view.record->cache_lost) return Step(step::AcceptLoss{});
  if (auto step = note_lock(view)) return step;
  // A death between a connect and its tuning leaves the settings of the number's last user.
  const bool other_settings = device->io_timeout_ms != kIoTimeoutMs || view.seen.untuned;
  if (other_settings ||
      (device->read_only != view.record->reads_only() && view.seen.facts.tuned != view.record->reads_only()))
    return Step(step::Tune{});
  // The device only grows: on a smaller one the filesystem would lose its end.
  if (device_bytes(view.seen.image_size, view.record->device.block_size) > device->size)
    return Step(step::KernelResize{});
  return Done{};
}

Answer needs_image(const Situation& view);

/// A device that a stage left to rbd-nbd may hold an application's data, and the marker of a format that was begun
/// before: no image was open here to remove it.
Answer is_taken_over_with_mark(const Situation& view) {
  const Record& record = *view.record;
  const bool written = std::ranges::any_of(record.stagings, [&](const Staging& staging) {
    return staging.complete && !writes_nothing(view, staging.capability);
  });
  if (view.seen.link != Link::none || !record.adopting || !written || record.failed) return std::nullopt;
  if (!view.seen.facts.format_marker) return look(Fact::format_marker);
  if (view.seen.facts.format_marker->empty()) return std::nullopt;
  return Step(step::RemoveFormatMarker{});
}

/// Asks before there is a device. For an existing one, only after it is served again: renew_note().
Answer needs_note(const Situation& view) {
  if (view.seen.link == Link::none && view.seen.device() == nullptr)
    if (auto step = note_node(view)) return step;
  return std::nullopt;
}

/// Callers that waited for the flushes of a device that is gone got its error. A new device has nothing to report.
Answer is_loss_over(const Situation& view) {
  if (view.seen.link != Link::none || view.seen.device() != nullptr || !view.record->cache_lost) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.cache_lost = false;
  step.may_fail = true;
  return step;
}

Answer needs_session(const Situation& view) {
  if (view.seen.link == Link::none) return Step(step::StartSession{});
  return std::nullopt;
}

Answer needs_link(const Situation& view) {
  if (view.seen.device() != nullptr) return Step(step::KernelReconfigure{});
  return std::nullopt;
}

/// The device that the record names is gone; the next may be another.
Answer is_recorded_gone(const Situation& view) {
  if (view.record->device.index) return name_device(view, std::nullopt);
  return std::nullopt;
}

Answer needs_device(const Situation&) { return Step(step::KernelConnect{}); }

// --- the sequences

// clang-format off: one question a line, in the order of asking
constexpr Question kImage[] = {
    is_still_closing,
    is_cut_off,
    was_restaged,
    was_given_up,
    is_gone,
    has_cache_after_all,
    needs_key,
    is_node_fenced,
    needs_fence,
    needs_opening,
    needs_no_proof,
    needs_ownership,
    has_refused_feature,
    does_other_client_remain,
    is_for_many,
    needs_break_time,
    prove,
    needs_lock,
};

constexpr Question kDevice[] = {
    is_other_than_recorded,
    do_paths_outlive_it,
    does_kernel_serve_it,
    was_disconnected,
    is_link_dead,
    does_rbd_nbd_serve_it,
    does_wrong_session_run,
    is_served_already,
    needs_image,
    is_taken_over_with_mark,
    needs_note,
    is_loss_over,
    needs_session,
    needs_link,
    is_recorded_gone,
    needs_device,
};
// clang-format on

Answer needs_image(const Situation& view) { return view.seen.link == Link::none ? ask(kImage, view) : std::nullopt; }

}  // namespace

std::optional<Decision> bring_up(const Situation& view) { return ask(kDevice, view); }

}  // namespace corbd::plan
