// The part of the plan between a record and a device that answers: fence, open, prove, lock, serve, connect.
#pragma once

#include "situation.hpp"

namespace corbd::plan {

/// Returns the next step towards a device that answers; nothing if it does. Needs a record.
std::optional<Decision> bring_up(const Situation& view);

}  // namespace corbd::plan
