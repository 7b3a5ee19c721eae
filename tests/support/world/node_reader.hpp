// The API server's knowledge of other nodes, in the form that the room orchestrator asks for.
#pragma once

#include <memory>

#include "corbd/orchestrator/holder_nodes.hpp"
#include "support/world/nodes.hpp"

namespace corbd::test {

std::unique_ptr<orchestrator::NodeReader> read_nodes(const FakeNodes& nodes);

}  // namespace corbd::test
