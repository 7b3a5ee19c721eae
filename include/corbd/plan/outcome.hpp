// What the end of a wish means for the volume's record and for the next try.
#pragma once

#include <optional>

#include "corbd/plan/observation.hpp"
#include "corbd/plan/record.hpp"
#include "corbd/plan/wish.hpp"

namespace corbd::plan {

/// Success must be on the disk too: a write that failed may have happened. Healing does not need it, because a full
/// disk must not keep a device from its server.
bool must_be_durable(const Wish& wish);

struct FailedWish {
  Error error;                              ///< what the caller is told
  std::optional<Wish> undo = std::nullopt;  ///< to be pursued first: it removes what the wish added to the record
};
/// The caller forgets the volume at a final code, so nothing that the wish added may stay (I3, I6). `before`, `now`:
/// the volume's record before the wish and after it.
FailedWish after_failure(const Wish& wish, const std::optional<Record>& before, const std::optional<Record>& now,
                         Error error);
/// What the caller is told when the undo failed too.
Error undo_failed(const Error& error, const Error& undo);

/// A stage of an image that somebody else has is tried again until shortly before its caller leaves: kubelet's next try
/// comes late, and Nomad's third is its last. The pause before try number `tries` + 1; nothing: the outcome stands.
std::optional<duration> pause_before_retry(const Wish& wish, const result<>& outcome, const Facts& facts,
                                           unsigned tries);

/// Whether the cluster refuses who asks it, or has not given him the right.
bool is_refusal(const Error& error);
/// Whether the volume's Secret may have another user or key, of which nobody told this node: only after the cluster has
/// refused those that are here, or if there are none (Facts::refused). A stage brings the Secret's own.
bool may_have_other_credential(const Wish& wish, bool has_record, const Facts& facts);
/// With what its Secret has to say to that, and the way out. `tried`: the Secret has another user or key, and the
/// cluster refused them too.
Error with_secret(Error refused, const StageSecret& secret, bool tried);
/// What a stage that succeeded brought, and a staging that was complete already does not take up: it comes with the
/// volume's next stage. Empty: nothing.
std::string left_for_next_stage(const Record& record, const Staged& wish);

/// Whether the outcome says anything of the image's owner. If it does not (an unpublish that had nothing to do, an
/// unstage that waits for a helper), the time for which the volume is lost goes on. kubelet may repeat such calls more
/// often than a volume is given up.
bool tells_of_ownership(const Wish& wish, const result<>& outcome, const Facts& facts);

}  // namespace corbd::plan
