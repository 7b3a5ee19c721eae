// The part of the plan between a record and a device that answers: fence, open, prove, lock, serve, connect.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the next step towards a device that answers; nothing if it does. Needs a record.
std::optional<Decision> bring_up(const Situation& view);
/// Changes from a client of an earlier user or key to one of the present, which the cluster has taken. Needs a record.
/// Ask it of a volume that needs no bring_up().
std::optional<Step> change_client(const Situation& view);
/// Asks the cluster about the credential that this operation brought; nothing if there is none, or it was asked.
std::optional<Step> try_credential(const Situation& view);

}  // namespace corbd::plan
