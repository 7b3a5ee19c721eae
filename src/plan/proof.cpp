#include "proof.hpp"

#include <chrono>

#include "adopt.hpp"
#include "corbd/core/utc.hpp"
#include "corbd/plan/combination.hpp"
#include "evidence.hpp"
#include "holders.hpp"

namespace corbd::plan {
namespace {

/// Returns "10.0.0.7:0/1 (client.4119)".
std::string with_client(const Situation& view, const std::string& address) {
  const auto& clients = view.seen.facts.ownership->clients;
  const auto place = clients.find(address);
  return place == clients.end() ? address : address + " (" + place->second + ")";
}

bool is_known(const Situation& view) { return !view.record->proof.attachment_uid.empty(); }

/// Whether the volume stayed here. As long as it stays attached here, no other node may have it. If its attachment was
/// never seen, a missing one proves nothing: a driver may have none.
bool stayed_here(const Situation& view) {
  const auto& attachment = *view.seen.facts.attachment;
  return is_known(view) && attachment.state == Attachment::State::here &&
         attachment.uid == view.record->proof.attachment_uid;
}

/// Whether the volume was attached here anew while rbd-nbd served it, by what the agent saw. The volume may have been
/// elsewhere in between, or not.
bool reattached_beside(const Situation& view) {
  const auto& attachment = *view.seen.facts.attachment;
  return is_known(view) && attachment.state == Attachment::State::here && !attachment.uid.empty() &&
         attachment.uid == view.record->proof.reattached_as;
}

/// Returns "2026-11-24T10:00:00Z", for example.
std::string stamp_text(std::uint64_t nanoseconds) {
  return utc_text(std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(nanoseconds))));
}

/// Whether the volume may be away. An operator who deletes the Node of a node that is cut off moves its volumes. So a
/// missing Node speaks neither for nor against this node. The same holds for an attachment that was looked up under
/// another name than the volume's.
bool may_be_away(const Attachment& attachment) {
  return attachment.state == Attachment::State::away || attachment.maybe_away;
}

/// Whether an operator override counts: it fills in what nobody knows.
bool override_counts(const Situation& view) { return !may_be_away(*view.seen.facts.attachment); }
bool is_overridden(const Situation& view) { return view.operator_override && override_counts(view); }

/// Notes the override before anything is done on it alone. A later try must not take the result for a proof, nor repeat
/// a format.
std::optional<Step> note_override(const Situation& view) {
  if (view.record->proof.operator_override) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.proof.operator_override = true;
  step.record.format.reset();
  step.may_fail = true;  // a full disk keeps no volume from its server; this process remembers
  return step;
}

Decision unproven(const Situation& view, const std::string& why) {
  const std::string more = view.operator_override ? ". --without-proof does not override that" : "";
  return refuse(errc::unproven, image_of(view) + " is not proven ours: " + why + more);
}

/// Makes "it is locked by the client at 10.0.0.7:0/1 (client.4119)". The holder may be a tool that repairs the image,
/// rbd-nbd of this node, or another node's agent.
std::string locked_by(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  const std::string owner = "the client at " + with_client(view, who.owner);
  if (left_by_this_node(view))
    return "its lock was left by " + owner + " of this node, which is dead and not known as a client of this agent";
  if (watches(who, who.owner)) return "it is locked by " + owner + ": not served until that client is gone";
  // Nobody else removes this lock, unless another client comes that takes it.
  return "its lock was left by " + owner +
         ", which has no watch any more. If it was another node, its data are newer: give the volume up with `corbd "
         "fail " +
         view.id +
         " --yes-really`. If it was a tool and is dead, run `ceph osd blocklist add` with its address, and only then "
         "`rbd lock rm`";
}

std::string marked_by(const Situation& view) {
  return "the client at " + view.seen.facts.ownership->writer +
         " marked it as its own to write, so another node had it";
}

std::string why_attachment_does_not_help(const Situation& view) {
  const auto& attachment = *view.seen.facts.attachment;
  if (stayed_here(view)) return "";
  if (reattached_beside(view))
    return ", and it was attached to this node anew while rbd-nbd served it, so it may have been elsewhere in between";
  if (attachment.state == Attachment::State::here)
    return ", and nobody knows under which VolumeAttachment it was staged";
  return attachment.why.empty() ? "" : ", and its VolumeAttachment does not show it: " + attachment.why;
}

/// Refuses: neither the lock nor the orchestrator proves that the volume is ours.
Decision nothing_proves(const Situation& view) {
  const auto& attachment = *view.seen.facts.attachment;
  const auto& who = *view.seen.facts.ownership;
  std::string why;
  if (shows(view, Trace::mark))
    return unproven(
        view, marked_by(view) + ": end its pods here, and give it up with `corbd fail " + view.id + " --yes-really`");
  if (stayed_here(view) && shows(view, Trace::stamp))
    why = "another client wrote into it at " + stamp_text(*who.modified) + ", after this node had served it" +
          (shows(view, Trace::lock) ? ", and " + locked_by(view) : "");
  else if (shows(view, Trace::lock))
    why = locked_by(view);
  else if (view.record->proof.operator_override && who.lock != image::Ownership::Lock::none)
    why = "an operator override let a try take its lock; that try failed, and the override counted for it only";
  else if (view.seen.exclusive_lock && is_lock_late(view))
    why = "its lock came so late that another node may have written before";
  else if (view.seen.exclusive_lock)
    why = "its lock is free, so another node may have written";
  else
    why = not_served::kUnprovenWithoutLock.why;
  why += why_attachment_does_not_help(view);
  if (view.operator_override) return unproven(view, why);
  if (!override_counts(view))
    return unproven(
        view, why +
                  (attachment.state == Attachment::State::away
                       ? ". It is not attached to this node, so --without-proof does not count: give it up"
                       : ". It may not be attached to this node, so --without-proof does not count: correct --nodeid "
                         "or --drivername if that is wrong, or give it up") +
                  " with `corbd fail " + view.id + " --yes-really`");
  return unproven(view, why + ". If no other node used it: `corbd heal " + view.id + " --without-proof`");
}

const std::string& taker(const image::Ownership& who) {
  return who.lock == image::Ownership::Lock::other ? who.owner : who.writer;
}

/// Whether the image was taken from us while we wrote. No orchestrator knows more, but a client that takes the lock of
/// a living one, or replaces its mark, has that one fenced first.
bool was_taken_while_writing(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  return !taker(who).empty() && view.seen.access_lost && !is_known(view) &&
         view.seen.facts.attachment->state != Attachment::State::here && !on_this_node(who, taker(who));
}

/// Decides for an image that an unknown client holds, or left.
Decision prove_against_other(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  if (left_by_this_node(view) && !shows(view, Trace::watch)) {
    if (stayed_here(view) && is_clear(view, Ground::left_lock)) return inherit(view);
    if (!is_overridden(view)) return nothing_proves(view);
    if (auto step = note_override(view)) return *step;
    return inherit(view);
  }
  if (was_taken_while_writing(view))
    return lost(view, "was taken from this node while it wrote, by the client at " + with_client(view, taker(who)));
  if (who.lock != image::Ownership::Lock::other)
    return unproven(view, "it is open at " + with_client(view, who.foreign_watchers.front()) +
                              ": not served until that client is gone");
  const std::string hint = view.record->adopting && !on_this_node(who, who.owner)
                               ? ". If that is rbd-nbd's own, because it ran in another network namespace, blocklist "
                                 "it, break its lock (`rbd lock rm`), and run "
                                 "`corbd heal " +
                                     view.id + " --without-proof`"
                               : "";
  return unproven(view, locked_by(view) + hint);
}

/// Whether the predecessor of an image without exclusive-lock served it until a moment ago. Its mark stands, so no
/// other agent has taken the image since. Its link still waits, which it does for a minute at most. A program that
/// knows no marks could have written while that agent served, too: those seconds add nothing. Our own mark has replaced
/// it on that very proof, if it was still there.
bool handed_over(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  const bool marked = who.handed_over || (view.seen.writer_marked && who.writer.empty());
  return !view.seen.exclusive_lock && view.seen.link_inherited && marked;
}

/// Returns the ground on which the image itself proves to be ours, if no other client has left evidence.
std::optional<Ground> ground_of(const Situation& view) {
  const auto& who = *view.seen.facts.ownership;
  using Lock = image::Ownership::Lock;
  if (rests_on_override(view)) return std::nullopt;
  if ((who.lock == Lock::mine || who.lock == Lock::our_dead) && !is_lock_late(view)) return Ground::own_lock;
  if (handed_over(view)) return Ground::handed_over;
  if (who.lock != Lock::none) return std::nullopt;
  // An earlier start broke our own dead lock and died before it took it: nothing changed the header since.
  if (const auto& broken = view.record->proof.lock_break; broken && broken->after == who.version)
    return Ground::own_lock;
  // rbd-nbd had it until a moment ago, nobody else had it open before or has it now.
  return view.seen.facts.dismissed ? std::optional(Ground::dismissed) : std::nullopt;
}

Ground attached_ground(const Situation& view) {
  return view.record->adopting ? Ground::attached_other : Ground::attached;
}

Decision prove_after_detach(const Situation& view, const char* why) {
  const auto& attachment = *view.seen.facts.attachment;
  if (attachment.state == Attachment::State::here) {
    if (auto step = ask_restaged(view)) return *step;
    // The volume was detached, and another program staged it here again with the same number. The requests that wait in
    // the device are that program's. Nothing was stolen.
    if (left_by_this_node(view) && view.seen.facts.ownership->foreign_watchers.empty())
      return unproven(view,
                      locked_by(view) +
                          ", and it was attached here again since this agent served it: end its pods, give it up with "
                          "`corbd fail " +
                          view.id + " --yes-really`, and let it be staged again");
  }
  return lost(view, attachment.why.empty() ? why : std::string(why) + " (" + attachment.why + ")");
}

/// Leaves the volume to the node that has it attached. The call may be older than its volume's move, for example if
/// this node was cut off. The node that has the volume attached now relies on that, and serves again an image that
/// nobody may have taken.
std::optional<Decision> leave_to_attached(const Situation& view) {
  const auto& attachment = view.seen.facts.attachment;
  if (!attachment) return look(Fact::attachment);
  if (!may_be_away(*attachment)) return std::nullopt;
  return refuse(errc::in_use,
                image_of(view) + " is left to the node that has it, because the volume is not attached to this node (" +
                    attachment->why + ")");
}

}  // namespace

const char* taken_away(const Situation& view) {
  using State = Attachment::State;
  const State state = view.seen.facts.attachment->state;
  if (!is_known(view)) return nullptr;
  if (state == State::here && !stayed_here(view) && !reattached_beside(view))
    return "has been detached from this node and attached to it again since";
  return state == State::away ? "is not attached to this node any more" : nullptr;
}

Decision lost(const Situation& view, const std::string& why) {
  if (view.seen.lost_for >= view.policy.tombstone_after) {
    step::WriteRecord step{*view.record};
    step.record.failed = true;
    return step;
  }
  return refuse(errc::lost, image_of(view) + " " + why + ": this node no longer owns it and does not serve it. After " +
                                std::to_string(view.policy.tombstone_after.count()) +
                                " s its device answers with I/O errors");
}

bool is_lock_late(const Situation& view) { return view.seen.lock_took > kProofLasts; }

bool rests_on_override(const Situation& view) {
  const bool needs_proof = !view.seen.devices.empty() && view.record->use.writes_alone();
  if (!view.record->proof.operator_override || !needs_proof || view.seen.facts.dismissed) return false;
  return !view.seen.facts.attachment ||
         !((stayed_here(view) && !shows(view, Trace::stamp)) || (is_overridden(view) && taken_away(view) == nullptr));
}

std::optional<Decision> take_image(const Situation& view) {
  // The owner's node died, or is away: that node, or the one that has the volume now, may be fenced for a while.
  const auto& who = *view.seen.facts.ownership;
  if (who.lock == image::Ownership::Lock::other && !watches(who, who.owner))
    if (auto refused = leave_to_attached(view)) return refused;
  auto answer = take_from_holders(view);
  const auto* step = answer ? std::get_if<Step>(&*answer) : nullptr;
  const bool evicts = step != nullptr && std::holds_alternative<step::Evict>(*step);
  // A free lock reserves the image for nobody: a device may wait at the node to which it is attached, whose agent broke
  // its own dead lock, or lost it to a controller.
  const bool writes = view.record->use.writes_alone();
  if (evicts || (!answer && writes))
    if (auto refused = leave_to_attached(view)) return refused;
  return answer;
}

std::optional<Decision> prove(const Situation& view) {
  if (view.seen.devices.empty()) return take_image(view);
  if (const auto ground = ground_of(view); ground && is_clear(view, *ground)) return take_from_holders(view);
  const bool alone = !shows(view, Trace::lock) && !shows(view, Trace::watch);
  if (!alone && !view.record->adopting)
    if (auto step = yield_to_other(view)) return step;
  // Ask this before a foreign client counts as a thief, and before an override counts.
  if (!view.seen.facts.attachment) return look(Fact::attachment);
  if (const char* why = taken_away(view)) return prove_after_detach(view, why);
  if (reattached_beside(view))
    if (auto step = ask_restaged(view)) return *step;
  if (!alone) return prove_against_other(view);
  if (stayed_here(view) && is_clear(view, attached_ground(view))) return take_from_holders(view);
  if (was_taken_while_writing(view))
    return lost(view, "was taken from this node while it wrote, by the client at " + taker(*view.seen.facts.ownership));
  if (!is_overridden(view)) return nothing_proves(view);
  if (!is_clear(view, Ground::operator_says)) return unproven(view, marked_by(view));
  if (auto answer = take_from_holders(view)) return answer;
  return note_override(view);
}

}  // namespace corbd::plan
