// Consequences of a wish's end for the volume's record and for the next try.
#pragma once

#include <optional>

#include "corbd/plan/observation.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// Whether success must be on the disk too: a write that failed may have happened. Healing does not need it, because a
/// full disk must not keep a device from its server.
bool must_be_durable(const Wish& wish);

struct FailedWish {
  Error error;                              ///< error for the caller
  std::optional<Wish> undo = std::nullopt;  ///< to be pursued first: it removes the wish's additions to the record
};
/// The caller forgets the volume at a final code, so nothing that the wish added may stay (I3, I6). `before`, `now`:
/// the volume's record before the wish and after it.
FailedWish after_failure(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now,
                         Error error);
/// Makes the caller's error if the undo failed too.
Error undo_failed(const Error& error, const Error& undo);

/// Returns the pause before try number `tries` + 1; nothing: the outcome stands. A stage of an image that another
/// client has is tried again until shortly before its caller leaves: kubelet's next try comes late, and Nomad's third
/// is its last.
std::optional<duration> pause_before_retry(const Wish& wish, const result<>& outcome, const Facts& facts,
                                           unsigned tries);

/// Whether the cluster refuses the user, or has not given it the right.
bool is_refusal(const Error& error);
/// Whether the volume's Secret may have another user or key that this node does not know: only after the cluster has
/// refused those that are here, or if there are none (Facts::refused). A stage brings the Secret's own.
bool may_have_other_credential(const Wish& wish, bool has_record, const Facts& facts);
/// Adds the Secret's part in the refusal, and the way out. `tried`: the Secret has another user or key, and the cluster
/// refused them too.
Error with_secret(Error refused, const StageSecret& secret, bool tried);
/// Returns values of a successful stage that its staging, which was complete already, does not adopt: they come with
/// the volume's next stage. Empty: none.
std::string left_for_next_stage(const Record& record, const Staged& wish);

/// Says that the volume's filesystem is damaged, what was done about it, and with which commands a person repairs it.
/// `damage`: the checker's words.
std::string text_of_damage(const Record& record, const std::string& damage);
/// Returns how an operator repairs the filesystem by the volume's next stage.
std::string command_for_damage(const std::string& volume_id);
/// The way out alone: the command that repairs the image while no node has it.
std::string way_out_of_damage(const Record& record);

/// Facts about a client whose image does not close.
struct ClosingClient {
  bool refused = false;  ///< the cluster refuses its user
  bool deaf = false;     ///< the cluster answers another client of its user, and not this one
  bool needed = false;   ///< it serves a volume that gets answers, or has nothing to ask
};
/// Whether the client never gets an answer again. That it is deaf outweighs that it is needed: a volume without
/// requests counts as one that gets answers.
bool never_answered(const ClosingClient& client);

/// Whether the outcome says anything about the image's owner. If it does not (an unpublish that had nothing to do, an
/// unstage that waits for a helper), the time for which the volume is lost goes on. kubelet may repeat such calls more
/// often than a volume is given up.
bool tells_of_ownership(const Wish& wish, const result<>& outcome, const Facts& facts);

}  // namespace corbd::plan
