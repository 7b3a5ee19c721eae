// Volumes that ceph-csi staged: adopted, left alone, or unstaged; and records that ceph-csi made untrue.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the first record of a volume that ceph-csi staged, or why it is not adopted. Its device exists.
Decision adopt(const Situation& view, const Staged& wish);
/// Decides for a volume without a record that ceph-csi staged: returns what is needed besides the umount of its staging
/// target, if anything.
std::optional<Decision> unstage_other(const Situation& view, const std::string& target);
/// Returns what rbd-nbd's client still needs before the image can be proven ours; nothing if that is done, or the
/// client is not rbd-nbd's. Image open, ownership known.
std::optional<Decision> end_other_client(const Situation& view);
/// Notes the client of a living rbd-nbd that acknowledges nothing before it is stored, because a dead process does not
/// show that any more.
std::optional<Step> note_uncached(const Situation& view);
/// Proves that nobody else had the image while the volume got a new attachment under rbd-nbd, whose client still has
/// the lock. Returns the next step, or a refusal with the reason; nothing: it is proven. Until then the record says
/// that rbd-nbd served it under the attachment `uid`.
std::optional<Decision> prove_beside(const Situation& view, const std::string& uid);
/// Notes that the image, its pool or the cluster switches a cache on, which overrides the attributes that switch off
/// that of a dead rbd-nbd. The note comes before the report: the way out is to remove that setting, and then nothing
/// shows it any more.
std::optional<Decision> has_cache_after_all(const Situation& view);
/// Handles a device that is another than the record names: if the stash names it too, the record is closed, and the
/// volume is one that ceph-csi staged.
Decision close_for_other(const Situation& view);
/// Whether the stash names that very device but is not the one that this agent signed, so somebody else wrote it since.
/// A stash that was never signed shows nothing. Uses only facts that were looked up.
bool has_other_stash(const Situation& view);
/// Whether somebody else staged the volume since, on a device of the same number: the stash is not this agent's, and
/// the volume was attached anew. Uses only facts that were looked up, see ask_restaged(). The record is closed, and the
/// device adopted.
bool is_restaged(const Situation& view);
/// Returns the next look that is_restaged() needs, if any: the attachment is asked only if the stash leaves it open.
std::optional<Step> ask_restaged(const Situation& view);
/// Closes the record of a volume without a device, if ceph-csi unstaged it and nothing of it is left.
Decision close_if_unstaged(const Situation& view);
/// Yields a device that rbd-nbd may have got since our record: if rbd-nbd serves it, the volume is to be adopted.
/// Ownership known.
std::optional<Decision> yield_to_other(const Situation& view);
/// Whether the image's lock belongs to a client of this node that does not watch it any more: the cluster has given
/// that client up. Ownership known.
bool left_by_this_node(const Situation& view);
/// Makes the lock's foreign owner a client of ours. Before that the record says what this client may have lost.
Step inherit(const Situation& view);
bool watches(const image::Ownership& who, const std::string& address);
bool on_this_node(const image::Ownership& who, const std::string& address);

}  // namespace corbd::plan
