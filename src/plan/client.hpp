// The part of the plan that chooses the client of an image: its user and key, whether it still answers, and when to
// change it.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Gives up a client that gets no answers, for one of another user. Nothing else of a volume whose requests wait is
/// asked through it.
std::optional<Decision> judge_silent_client(const Situation& view);
/// If an image does not close in time, or the operations of an ended session go on, asks whether the cluster still lets
/// the client's user in, and gives the client up if not: without tickets neither ends. Another user can fence it.
std::optional<Step> judge_closing_client(const Situation& view);
/// Changes from a client of an earlier user or key to one of the present, which the cluster has taken. Needs a record.
/// Ask it of a volume that needs no bring_up().
std::optional<Step> change_client(const Situation& view);
/// Asks the cluster about the credential that this operation brought; nothing if there is none, or it was asked.
std::optional<Step> try_credential(const Situation& view);

}  // namespace corbd::plan
