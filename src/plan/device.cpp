#include "device.hpp"

#include "krbd.hpp"
#include "note.hpp"

namespace corbd::plan {
namespace {

constexpr std::uint32_t kIoTimeoutMs = 1000;

/// Rule 2b. Proven another's: the requests that wait get their EIO after a while, so that pods can end and unmounts
/// return.
Decision lost(const View& view, const std::string& why) {
  if (view.seen.lost_for >= view.policy.tombstone_after) {
    step::WriteRecord step{*view.record};
    step.record.failed = true;
    return step;
  }
  return fail(errc::lost, "image " + view.record->key.text() + " of volume " + view.id + " " + why +
                              ": it is not ours any more and not served; after " +
                              std::to_string(view.policy.tombstone_after.count()) +
                              " s its device answers with I/O errors");
}

/// "10.0.0.7:0/1 (client.4119)"
std::string with_client(const View& view, const std::string& address) {
  const auto& clients = view.seen.facts.ownership->clients;
  const auto place = clients.find(address);
  return place == clients.end() ? address : address + " (" + place->second + ")";
}

std::string waited(const View& view) {
  if (!view.seen.in_use_for) return "";
  return "; it has waited for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(*view.seen.in_use_for).count()) + " s";
}

bool is_known(const View& view) { return !view.record->attachment_uid.empty(); }

/// As long as a volume stays attached here, no other node may have it. Of one whose attachment was never seen, its
/// absence proves nothing: a driver may do without.
bool stayed_here(const View& view) {
  const auto& attachment = *view.seen.facts.attachment;
  return is_known(view) && attachment.state == Attachment::State::here && attachment.uid == view.record->attachment_uid;
}

/// What the orchestrator knows to be another's; null: nothing of the kind.
const char* taken_away(const View& view) {
  using State = Attachment::State;
  const State state = view.seen.facts.attachment->state;
  if (!is_known(view)) return nullptr;
  if (state == State::here && !stayed_here(view))
    return "was detached from this node and attached to it again meanwhile";
  return state == State::away ? "is not attached to this node any more" : nullptr;
}

/// The operator's word fills in what nobody knows.
bool word_counts(const View& view) { return view.seen.facts.attachment->state != Attachment::State::away; }
bool vouched_for(const View& view) { return view.vouched && word_counts(view); }

/// The lock shows what an earlier try did on an operator's word without serving the device. This try has neither that
/// word nor a VolumeAttachment.
bool rests_on_word(const View& view) {
  const bool needs_proof = !view.seen.devices.empty() && !view.record->read_only && !view.record->shared;
  if (!view.record->on_word || !needs_proof || view.seen.facts.dismissed) return false;
  return !view.seen.facts.attachment || !(stayed_here(view) || (vouched_for(view) && taken_away(view) == nullptr));
}

/// Written before anything is done on the word alone. A later try must not take that for a proof, nor repeat a format.
std::optional<Step> note_word(const View& view) {
  if (view.record->on_word) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.on_word = true;
  step.record.format.clear();
  step.may_fail = true;  // a full disk keeps no volume from its server; this process remembers
  return step;
}

Decision unproven(const View& view, const std::string& why) {
  const std::string word = view.vouched ? ". --without-proof does not reach over that" : "";
  return fail(errc::unproven,
              "image " + view.record->key.text() + " of volume " + view.id + " is not proven ours: " + why + word);
}

/// "it is locked by the client at 10.0.0.7:0/1 (client.4119)". Who has it may be a tool that mends the image, rbd-nbd
/// of this node, or another node's agent.
std::string locked_by(const View& view) {
  const auto& who = *view.seen.facts.ownership;
  const std::string owner = "the client at " + with_client(view, who.owner);
  if (left_by_this_node(view))
    return "its lock was left by " + owner + " of this node, which is dead and not known as this agent's";
  return "it is locked by " + owner + ": not served until that client is gone";
}

/// Neither the lock nor anybody else speaks for us.
Decision nothing_proves(const View& view) {
  const auto& attachment = *view.seen.facts.attachment;
  const auto& who = *view.seen.facts.ownership;
  std::string why;
  if (who.lock == image::Ownership::Lock::other)
    why = locked_by(view);
  else if (view.record->on_word && who.lock != image::Ownership::Lock::none)
    why = "its lock was taken over on an operator's word, in a try that failed, and the word was for that try only";
  else if (view.record->exclusive_lock)
    why = "its lock is free, so another node may have written";
  else
    why = "it has no exclusive-lock feature, so nothing shows who wrote last";
  why += attachment.state == Attachment::State::here ? ", and under which VolumeAttachment it was staged is not known"
         : attachment.why.empty()                    ? ""
                                                     : ", and its VolumeAttachment does not show it: " + attachment.why;
  if (view.vouched) return unproven(view, why);
  if (!word_counts(view))
    return unproven(view, why +
                              ". It is not attached to this node, so nobody's word counts: give it up by `corbd fail " +
                              view.id + " --yes-really`");
  return unproven(view, why + ". If no other node used it: `corbd heal " + view.id + " --without-proof`");
}

/// The image is held, or left, by a client that this agent does not know.
Decision prove_against_other(const View& view) {
  const auto& who = *view.seen.facts.ownership;
  if (left_by_this_node(view) && who.foreign_watchers.empty()) {
    if (stayed_here(view)) return inherit(view);
    if (!vouched_for(view)) return nothing_proves(view);
    if (auto step = note_word(view)) return *step;
    return inherit(view);
  }
  if (who.lock != image::Ownership::Lock::other)
    return unproven(view, "it is open at " + with_client(view, who.foreign_watchers.front()) +
                              ": not served until that client is gone");
  // Without an orchestrator to say more: who takes a lock from a client that lives has it fenced first.
  if (view.seen.cut_off && !is_known(view) && view.seen.facts.attachment->state != Attachment::State::here &&
      !on_this_node(who, who.owner))
    return lost(view, "was taken from this node while it wrote, by the client at " + with_client(view, who.owner));
  const std::string hint = view.record->adopting && !on_this_node(who, who.owner)
                               ? ". If that is rbd-nbd's own, because it ran in another network namespace, blocklist "
                                 "it, break its lock (`rbd lock rm`), and say "
                                 "`corbd heal " +
                                     view.id + " --without-proof`"
                               : "";
  return unproven(view, locked_by(view) + hint);
}

/// Rule 2a. A device that exists may have unwritten pages above it: serving it again needs proof that nobody else wrote
/// meanwhile. A new device has no past; it only must not take the image from someone.
std::optional<Decision> prove(const View& view) {
  const auto& who = *view.seen.facts.ownership;
  using Lock = image::Ownership::Lock;
  if (view.seen.devices.empty()) {
    if (!who.foreign_watchers.empty()) return open_elsewhere(view);
    // Whoever has the lock has no watch any more, as after the death of its node: librbd has it blocklisted, and takes
    // the lock then.
    return std::nullopt;
  }
  const bool alone = who.lock != Lock::other && who.foreign_watchers.empty();
  // An earlier start broke our own dead lock and died before it took it: nothing changed the header since.
  const bool broken_by_us = who.lock == Lock::none && view.record->freed == who.version;
  // rbd-nbd had it until a moment ago, nobody else had it open before or has it now.
  const bool dismissed = who.lock == Lock::none && view.seen.facts.dismissed;
  const bool by_lock = who.lock == Lock::mine || who.lock == Lock::our_dead || broken_by_us;
  if (alone && (dismissed || by_lock) && !rests_on_word(view)) return std::nullopt;
  if (!alone && !view.record->adopting)
    if (auto step = yield_to_other(view)) return step;
  // Before a foreign client is believed to be a thief, and before anybody's word is taken.
  if (!view.seen.facts.attachment) return look(Fact::attachment);
  if (const char* why = taken_away(view)) {
    if (view.seen.facts.attachment->state == Attachment::State::here)
      if (auto step = ask_restaged(view)) return step;
    // Detached, and staged here again by another program, with the same number: what waits in the device is that one's,
    // and no theft.
    if (view.seen.facts.attachment->state == Attachment::State::here && left_by_this_node(view) &&
        who.foreign_watchers.empty())
      return unproven(view,
                      locked_by(view) +
                          ", and it was attached here anew since this agent served it: end its pods, give it up by "
                          "`corbd fail " +
                          view.id + " --yes-really`, and let it be staged again");
    const std::string& said = view.seen.facts.attachment->why;
    return lost(view, said.empty() ? why : std::string(why) + " (" + said + ")");
  }
  if (!alone) return prove_against_other(view);
  if (stayed_here(view)) return std::nullopt;
  if (!vouched_for(view)) return nothing_proves(view);
  return note_word(view);
}

Step note_break(const View& view, std::optional<std::uint64_t> breaking, std::optional<std::uint64_t> freed) {
  step::WriteRecord step{*view.record};
  step.record.breaking = breaking;
  step.record.freed = freed;
  // Without it a second death before the lock is ours leaves the volume unproven; with a full disk it would stay
  // without a server now.
  step.may_fail = true;
  return step;
}

/// Whether our own break is the last that happened to the header. To be seen before the image is opened.
std::optional<Step> read_mark(const View& view) {
  const auto& breaking = view.record->breaking;
  if (!breaking || view.record->freed) return std::nullopt;
  const auto& header = view.seen.facts.header;
  if (!header) return look(Fact::header);
  if (header->mark != break_mark(*breaking)) return std::nullopt;
  return note_break(view, breaking, header->version);
}

/// The volume was given up under its attachment. What somebody else staged since was not.
Decision offer_tombstone(const View& view) {
  if (auto step = ask_restaged(view)) return *step;
  const auto& attachment = view.seen.facts.attachment;
  if (attachment && attachment->state == Attachment::State::unknown)
    return fail(errc::unproven, "volume " + view.id +
                                    " was given up, and its image-meta.json is not this agent's any more: whether it "
                                    "was staged anew since, only its VolumeAttachment tells: " +
                                    attachment->why);
  return Step(step::OpenTombstone{});
}

std::optional<Decision> bring_up_image(const View& view) {
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
std::optional<Step> unmark_taken_over(const View& view) {
  const Record& record = *view.record;
  const bool staged = std::ranges::any_of(record.stagings, [](const Staging& staging) { return staging.complete; });
  if (!record.adopting || !staged || record.read_only || record.failed) return std::nullopt;
  if (!view.seen.facts.format_marker) return look(Fact::format_marker);
  if (view.seen.facts.format_marker->empty()) return std::nullopt;
  return Step(step::Unmark{});
}

/// A path on which a raw device is bound outlives the device, and so does what a pod was given of it: with a new one of
/// that number it would have that.
std::optional<Decision> clear_paths(const View& view) {
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

bool shows_device_that_is_gone(const View& view, const std::string& target) {
  const Record& record = *view.record;
  if (!record.device || !view.seen.devices.empty()) return false;
  const std::string node = "/" + device::name(record.kind, *record.device);
  return std::ranges::any_of(view.seen.mounts, [&](const auto& mount) {
    return mount.target == target && mount.fstype == "devtmpfs" &&
           (mount.root == node || mount.root == node + "//deleted");
  });
}

Decision given_up(const View& view) {
  return fail(errc::lost,
              "volume " + view.id +
                  " was given up and answers with I/O errors: end its pods and unstage it, then stage it anew");
}

Decision fail(errc code, std::string text) { return Fail{{code, std::move(text)}}; }

Step look(Fact fact) { return step::Look{fact}; }

Step name_device(const View& view, std::optional<std::uint32_t> index) {
  step::WriteRecord step{*view.record};
  // Between two devices nothing kept other nodes away: what was begun on the first counts no more.
  if (index != view.record->device) step.record.format.clear();
  step.record.on_word = false;  // it is served
  step.record.device = index;
  step.record.adopting = false;
  if (view.seen.facts.noted) step.record.note = view.seen.facts.noted;
  return step;
}

Decision no_key(const View& view) {
  return fail(errc::unavailable, "no Ceph key of user " + view.record->user + " for volume " + view.id +
                                     " is at hand (the runtime directory was emptied): stage the volume again");
}

Decision open_elsewhere(const View& view) {
  return fail(errc::in_use, "image " + view.record->key.text() + " of volume " + view.id + " is open at " +
                                with_client(view, view.seen.facts.ownership->foreign_watchers.front()) +
                                ": wait until it is closed there" + waited(view));
}

Source found_at(const Source& wished, const image::Resolved& found) {
  Source source = wished;
  source.cluster_id = found.cluster_id;
  source.pool = found.name.pool;
  source.ns = found.name.ns;
  source.image = found.name.image;
  return source;
}

Wait until_closed(const View& view) {
  const std::string path = device::path(*view.seen.device());
  return Wait{path + " of volume " + view.id + " is disconnected, and somebody still has it open: `fuser -v " + path +
              "` tells who"};
}

std::optional<Decision> bring_up(const View& view) {
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
  if (!view.record->failed && view.seen.link == Link::serving && !view.seen.attached && rests_on_word(view))
    return Step(step::StopSession{});
  if (view.seen.link == Link::serving && device != nullptr && view.seen.attached) {
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
