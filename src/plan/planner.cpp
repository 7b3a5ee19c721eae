#include "corbd/plan/planner.hpp"

#include "adopt.hpp"
#include "bring_up.hpp"
#include "client.hpp"
#include "corbd/core/overloaded.hpp"
#include "corbd/core/utc.hpp"
#include "corbd/plan/combination.hpp"
#include "evidence.hpp"
#include "expand.hpp"
#include "freeze.hpp"
#include "krbd.hpp"
#include "luks.hpp"
#include "note.hpp"
#include "paths.hpp"
#include "proof.hpp"
#include "publish.hpp"
#include "stage.hpp"
#include "stash.hpp"
#include "take_down.hpp"
#include "volume_key.hpp"

namespace corbd::plan {
namespace {

/// Takes the present names for a volume that is served with a lock that was proven ours: nobody had the image since it
/// was staged under the other name. So its later notes are written under the present name. The UID was that of the
/// other name's attachment.
std::optional<Step> take_present_names(const Situation& view) {
  const Record& record = *view.record;
  const bool proven = view.seen.exclusive_lock && view.seen.lock_held && record.use.writes_alone() &&
                      !record.adopting && !record.failed && !record.proof.operator_override;
  const bool served = view.seen.link == Observation::Link::serving && view.seen.connected;
  if (!proven || !served || view.policy.node.empty() ||
      other_name(record.names, {view.policy.driver, view.policy.node}).empty())
    return std::nullopt;
  step::WriteRecord step{record};
  step.record.names = {view.policy.driver, view.policy.node};
  step.record.proof.attachment_uid.clear();
  step.record.proof.reattached_as.clear();
  step.record.note = view.seen.facts.noted;  // ceph-csi's controller looks for it under the present name
  step.may_fail = true;
  return step;
}

Decision serve(const Situation& view) {
  if (!view.record) return Done{};
  if (view.seen.devices.empty())
    return close_if_unstaged(view);  // nothing to serve; the next stage or unstage continues from here
  if (auto decision = judge_silent_client(view)) return *decision;
  if (auto step = bring_up(view)) return *step;
  if (auto step = change_client(view)) return *step;
  if (auto step = take_present_names(view)) return *step;
  if (auto step = renew_note(view)) return *step;
  return Done{};
}

Decision authorize(const Situation& view) {
  if (view.record)
    if (auto step = try_credential(view)) return *step;
  return serve(view);
}

Decision heal(const Situation& view) {
  Decision served = serve(view);
  if (std::holds_alternative<Done>(served) && view.record)
    if (auto step = note_loss_in_stash(view, true)) return *step;
  return served;
}

/// Accepts the loss only for a volume that is served: a later loss of rbd-nbd is another one. The order is stash,
/// record, link (bring_up). After a crash behind the stash the next heal writes it again; one behind the record undoes
/// nothing.
Decision accept_loss(const Situation& view) {
  Decision healed = serve(view);
  if (!std::holds_alternative<Done>(healed) || !view.record || !view.record->cache_lost) return healed;
  if (auto step = note_loss_in_stash(view, false)) return *step;
  Record record = *view.record;
  record.cache_lost = false;
  return write(std::move(record));
}

/// Notes the signature only once the stash has it. From then on, a stash without it was written by somebody else.
Decision note_signature(const Situation& view) {
  const auto& stash = view.seen.facts.stash;
  const Record& record = *view.record;
  if (!stash || !*stash || (*stash)->attachment != record.proof.attachment_uid ||
      record.proof.signed_as == record.proof.attachment_uid)
    return Done{};
  step::WriteRecord step{record};
  step.record.proof.signed_as = record.proof.attachment_uid;
  return step;
}

/// Proves a volume that was detached and attached again while it was served. Any other node in between has taken the
/// lock or the mark from our client, or is refused by them.
std::optional<Decision> prove_attached_anew(const Situation& view, const std::string& uid, bool by_other) {
  const Record& record = *view.record;
  if (record.proof.attachment_uid.empty() || by_kernel(view) || !record.use.writes_alone()) return std::nullopt;
  if (by_other) return prove_beside(view, uid);
  if (!view.seen.facts.ownership && view.seen.image_open) return look(Fact::ownership);
  const auto& who = view.seen.facts.ownership;
  const bool ours = who && (who->lock == image::Ownership::Lock::mine || (view.seen.writer_marked && who->marked));
  const Ground ground = view.seen.exclusive_lock ? Ground::held : Ground::handed_over;
  if (ours && !record.proof.operator_override && is_clear(view, ground)) return std::nullopt;
  return refuse(errc::failed_precondition, image_of(view) +
                                               " was attached to this node again, and nothing shows that no other "
                                               "client had it in between");
}

Decision name_node(const Situation& view) {
  step::WriteRecord step{*view.record};
  step.record.names.node = view.policy.node;
  step.may_fail = true;  // a full disk must not keep the stash from being signed
  return step;
}

/// Notes an attachment only for a served volume: noted while nobody serves the device, it would prove what nobody saw.
Decision attach(const Situation& view, const Attached& wish) {
  if (!view.record) return Done{};
  const bool noted = view.record->proof.attachment_uid == wish.uid;
  const bool by_other =
      view.record->adopting && view.seen.link == Observation::Link::none && view.seen.device() != nullptr;
  if (by_other && !view.seen.facts.served_by_other) return look(Fact::served_by_other);
  const bool served = by_kernel(view) || (by_other ? *view.seen.facts.served_by_other
                                                   : view.seen.link == Observation::Link::serving &&
                                                         view.seen.connected && !view.record->failed);
  if (noted) {
    if (!served) return Done{};
    // The attachment was found under this name.
    if (view.record->names.node.empty() && !view.policy.node.empty()) return name_node(view);
    if (auto step = sign_stash(view)) return *step;
    return note_signature(view);
  }
  if (!served) return refuse(errc::unavailable, "volume " + view.id + " is not served now");
  if (auto step = prove_attached_anew(view, wish.uid, by_other)) return *step;
  Record record = *view.record;
  record.proof.attachment_uid = wish.uid;
  record.proof.reattached_as.clear();
  record.names.node = view.policy.node;
  return write(std::move(record));
}

Decision give_up(const Situation& view) {
  if (!view.record || view.seen.devices.empty())
    return refuse(errc::failed_precondition, "volume " + view.id + " has no device here: there is nothing to give up");
  if (view.record->failed) return heal(view);
  if (by_kernel(view))
    return refuse(error_of(not_served::kKernelGivesUp, "the kernel itself serves volume " + view.id + ":"));
  Record record = *view.record;
  record.failed = true;
  return write(std::move(record));
}

template <class... Wishes>
bool is_one_of(const Wish& wish) {
  return (std::holds_alternative<Wishes>(wish) || ...);
}

/// Needs a helper that still works on the volume. Nothing: the wish goes on beside it.
std::optional<Decision> beside_helper(const Situation& view, const Wish& wish) {
  const std::string text = "a helper still works on volume " + view.id;
  // A snapshot waits for nobody's helper, and the thaw behind it is repeated.
  if (is_one_of<Frozen, Thawed>(wish)) return refuse(errc::unavailable, text + ": repeat later");
  // Healing never waits for a helper: the helper may be waiting for the healing.
  const bool served = by_kernel(view) || (view.seen.connected && view.seen.link == Observation::Link::serving);
  if (served && !is_one_of<Healed, Adopted, GivenUp>(wish)) return Wait{text};
  // That helper may still mount what would be unmounted now.
  if (is_one_of<Unpublished, Unstaged>(wish))
    return refuse(errc::unavailable, text + ", whose device has no server now: repeat when it is healed");
  return std::nullopt;
}

/// Nothing: no freeze, or one that does not concern the wish.
std::optional<Decision> beside_freeze(const Situation& view, const Wish& wish) {
  // They are repeated, and would keep the thaw waiting, or take the client that the snapshot is made with.
  if (is_one_of<Trimmed, Rekeyed, Authorized>(wish)) return refuse_frozen(view);
  // They would wait for a filesystem that waits for their volume's lock.
  if (is_one_of<Staged, Expanded>(wish)) return thaw_if_served(view);
  return std::nullopt;
}

Decision decide(const Situation& view, const Wish& wish) {
  const auto& volume_id = view.id;
  const auto& record = view.record;
  const auto& seen = view.seen;
  // The command may change the device at any moment: it may be disconnected under a mount that is being made.
  if (seen.command)
    return Wait{seen.command->what + " of volume " + volume_id + " is under way in the kernel since " +
                utc_text(seen.command->since)};
  if (seen.devices.size() > 1)
    return refuse(errc::failed_precondition, std::to_string(seen.devices.size()) + " devices carry the id of volume " +
                                                 volume_id + ": disconnect the one that is not in use");
  if (seen.busy)
    if (auto held_up = beside_helper(view, wish)) return *held_up;
  const bool of_earlier_boot = record && record->device.boot_id != seen.boot_id;
  // The device of that record is gone. An existing one is another program's, and the stash describes it.
  if (of_earlier_boot && seen.link == Observation::Link::none && !seen.image_open) return Step(step::DropRecord{});
  if (auto first = beside_freeze(view, wish)) return *first;
  if (auto step = judge_closing_client(view)) return *step;
  const auto next = Overloaded{
      [&](const Staged& wanted) { return stage(view, wanted); },
      [&](const Unstaged& wanted) { return unstage(view, wanted); },
      [&](const Published& wanted) { return publish(view, wanted); },
      [&](const Unpublished& wanted) { return unpublish(view, wanted); },
      [&](const Healed& wanted) {
        const bool on_word = wanted.operator_override || wanted.loss_accepted;
        if (on_word && view.record && view.record->failed) return given_up(view);
        return wanted.loss_accepted ? accept_loss(view) : heal(view);
      },
      [&](const Adopted&) { return heal(view); },
      [&](const GivenUp&) { return give_up(view); },
      [&](const Expanded& wanted) { return expand(view, wanted); },
      [&](const Rekeyed&) { return rekey(view); },
      [&](const Trimmed& wanted) { return trim(view, wanted); },
      [&](const Attached& wanted) { return attach(view, wanted); },
      [&](const Authorized&) { return authorize(view); },
      [&](const Frozen& wanted) { return freeze(view, wanted); },
      [&](const Thawed&) { return thaw(view); },
  };
  return std::visit(next, wish);
}

/// Whether to close an image that was opened only to look: it is another client's, or may be.
bool leaves(const Situation& view, errc why) {
  const Observation& seen = view.seen;
  // Closing the image would release the lock, which proves that it is ours, unless it came late or was taken on an
  // override alone.
  const bool ours =
      (seen.lock_held || (seen.facts.ownership && seen.facts.ownership->lock == image::Ownership::Lock::mine)) &&
      !(view.record && (view.record->proof.operator_override || is_lock_late(view)));
  return !ours && seen.image_open && !seen.tombstone && seen.link == Observation::Link::none &&
         (why == errc::in_use || why == errc::unproven || why == errc::lost || why == errc::unsafe_config);
}

}  // namespace

Decision decide(const std::string& volume_id, const std::optional<Record>& record, const Wish& wish,
                const Observation& seen, const Policy& policy) {
  const auto* healed = std::get_if<Healed>(&wish);
  const auto* staged = std::get_if<Staged>(&wish);
  const Situation view{volume_id,
                       record,
                       seen,
                       policy,
                       std::holds_alternative<Adopted>(wish),
                       healed != nullptr && healed->operator_override,
                       staged != nullptr && staged->reads_alone,
                       healed != nullptr && healed->silent};
  Decision decision = decide(view, wish);
  if (auto* failed = std::get_if<Refusal>(&decision)) failed->leaves = leaves(view, failed->error.code);
  return decision;
}

}  // namespace corbd::plan
