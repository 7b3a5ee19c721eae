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
};

Step look(Fact fact);

/// The next step towards a device that answers; nothing when it does. Needs a record.
std::optional<Decision> bring_up(const View& view);

}  // namespace corbd::volume
