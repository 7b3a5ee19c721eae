// The part of the plan between a record and a device that answers: fence, open, prove, lock, serve, connect.
#pragma once

#include <optional>

#include "corbd/plan/planner.hpp"

namespace corbd::plan {

/// Everything a decision is made from.
struct View {
  const std::string& id;
  const std::optional<Record>& record;
  const Observation& seen;
  const Policy& policy;
  bool take_over = false;  ///< rbd-nbd is asked to leave the device
  bool vouched = false;    ///< the operator's word that no other node used the image
};

Decision fail(errc code, std::string text);
Step look(Fact fact);
/// Of a volume that was given up: a mount of it would be a stale one.
Decision given_up(const View& view);
/// A record that names its device, or none.
Step name_device(const View& view, std::optional<std::uint32_t> index);
Decision no_key(const View& view);
/// Somebody else has the image open; ownership known.
Decision open_elsewhere(const View& view);

/// Of a new record: where the image was found, and how the wish wants it served.
Source found_at(const Source& wished, const image::Resolved& found);

/// Whether a raw device that the record names, and that is gone, is still bound there. Needs a record.
bool shows_device_that_is_gone(const View& view, const std::string& target);
/// Of a device that was disconnected: it goes when nobody has it open any more.
Wait until_closed(const View& view);
/// The next step towards a device that answers; nothing when it does. Needs a record.
std::optional<Decision> bring_up(const View& view);

/// The first record of a volume that ceph-csi staged, or why it is not taken for one. Its device is there.
Decision adopt(const View& view, const Staged& wish);
/// A volume without a record that ceph-csi staged: what is to be done besides the umount of its staging target, if
/// anything.
std::optional<Decision> unstage_other(const View& view, const std::string& target);
/// What rbd-nbd's client still needs before the image is ours to prove; nothing when that is done, or is not rbd-nbd's.
/// Image open, ownership known.
std::optional<Decision> end_other_client(const View& view);
/// The device is another than the record names: if the stash names it too, the record is closed, and the volume is one
/// that ceph-csi staged.
Decision close_for_other(const View& view);
/// Somebody else staged the volume since, on a device of the same number: the stash is not this agent's, and the volume
/// was attached anew. By what was looked at, see ask_restaged(). The record is closed, and the device adopted.
bool is_restaged(const View& view);
/// The next look that is_restaged() needs, if any: the attachment is asked only where the stash leaves it open.
std::optional<Step> ask_restaged(const View& view);
/// The volume has a record and no device: if ceph-csi unstaged it, and nothing of it is left, the record is closed.
Decision close_if_unstaged(const View& view);
/// A record of ours whose device rbd-nbd may have got since: if it serves it, the volume is to be adopted. Ownership
/// known.
std::optional<Decision> yield_to_other(const View& view);
/// Whether the image's lock is that of a client of this node that does not watch it any more: the cluster has given
/// that one up. Ownership known.
bool left_by_this_node(const View& view);
/// Who has the lock, and is nobody of ours.
Step inherit(const View& view);
bool watches(const image::Ownership& who, const std::string& address);
bool on_this_node(const image::Ownership& who, const std::string& address);

}  // namespace corbd::plan
