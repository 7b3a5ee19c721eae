// What ceph-csi staged: taken over, left alone, or unstaged, and records that it made untrue.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// The first record of a volume that ceph-csi staged, or why it is not taken for one. Its device is there.
Decision adopt(const Situation& view, const Staged& wish);
/// A volume without a record that ceph-csi staged: what is to be done besides the umount of its staging target, if
/// anything.
std::optional<Decision> unstage_other(const Situation& view, const std::string& target);
/// What rbd-nbd's client still needs before the image is ours to prove; nothing when that is done, or is not rbd-nbd's.
/// Image open, ownership known.
std::optional<Decision> end_other_client(const Situation& view);
/// An rbd-nbd that lives acknowledges nothing before it is stored. Its client is noted, because a dead process does not
/// show that any more.
std::optional<Step> note_uncached(const Situation& view);
/// The image, its pool or the cluster switches a cache on, and outranks the attributes that switch off that of a dead
/// rbd-nbd. Noted before it is told: the way out is to remove that setting, and then nothing shows it any more.
std::optional<Decision> has_cache_after_all(const Situation& view);
/// The device is another than the record names: if the stash names it too, the record is closed, and the volume is one
/// that ceph-csi staged.
Decision close_for_other(const Situation& view);
/// The stash names that very device but is not the one that this agent signed, so somebody else wrote it since. A stash
/// that was never signed shows nothing. By what was looked at.
bool has_other_stash(const Situation& view);
/// Somebody else staged the volume since, on a device of the same number: the stash is not this agent's, and the volume
/// was attached anew. By what was looked at, see ask_restaged(). The record is closed, and the device adopted.
bool is_restaged(const Situation& view);
/// The next look that is_restaged() needs, if any: the attachment is asked only where the stash leaves it open.
std::optional<Step> ask_restaged(const Situation& view);
/// The volume has a record and no device: if ceph-csi unstaged it, and nothing of it is left, the record is closed.
Decision close_if_unstaged(const Situation& view);
/// A record of ours whose device rbd-nbd may have got since: if it serves it, the volume is to be adopted. Ownership
/// known.
std::optional<Decision> yield_to_other(const Situation& view);
/// Whether the image's lock is that of a client of this node that does not watch it any more: the cluster has given
/// that one up. Ownership known.
bool left_by_this_node(const Situation& view);
/// Who has the lock, and is nobody of ours. Before that the record says what this client may have lost.
Step inherit(const Situation& view);
bool watches(const image::Ownership& who, const std::string& address);
bool on_this_node(const image::Ownership& who, const std::string& address);

}  // namespace corbd::plan
