// The part of the plan between a record and a device that answers: fence, open, prove, lock, serve, connect.
#pragma once

#include <optional>

#include "corbd/volume/planner.hpp"

namespace corbd::volume {

/// Everything a decision is made from.
struct View {
  const std::string& id;
  const std::optional<Record>& record;
  const Observation& seen;
  const Policy& policy;
  bool take_over = false;  ///< rbd-nbd is asked to leave the device
};

Step look(Fact fact);

/// The next step towards a device that answers; nothing when it does. Needs a record.
std::optional<Decision> bring_up(const View& view);

/// The first record of a volume that ceph-csi staged with rbd-nbd, or why it is not taken for one. Its device is there.
Decision adopt(const View& view, const Staged& wish);
/// What rbd-nbd's client still needs before the image is ours to prove; nothing when that is done. Image open, ownership known.
std::optional<Decision> end_other_client(const View& view);

}  // namespace corbd::volume
