// A node of the search as plan's own values, and back. The planner is shown nothing that is not here.
#pragma once

#include <optional>
#include <string>

#include "corbd/plan/planner.hpp"
#include "faults.hpp"
#include "state.hpp"

namespace corbd::search {

inline const std::string kVolume = "image-1";

std::string address_of(Ref client);
Ref client_at(const std::string& address);

plan::Wish wish_of(const Process& agent);
plan::Record real_record(const Record& record, int node);
plan::Facts facts_of(const Node& of, const Process& agent);
/// Plants faults in what the planner is shown.
plan::Observation observation_of(const Node& of, const Process& agent, Faults faults);

/// Both abort if the search has no room for what the planner writes: then it does something that is not searched.
Record small_record(const plan::Record& record, int node);
Stash small_stash(const plan::Stash& stash);

}  // namespace corbd::search
