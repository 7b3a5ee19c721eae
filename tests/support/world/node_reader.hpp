// The API server's knowledge of other nodes, as the healer's room asks for it.
#pragma once

#include <memory>

#include "corbd/orchestrator/holder_nodes.hpp"
#include "support/world/nodes.hpp"

namespace corbd::test {

std::unique_ptr<orchestrator::NodeReader> read_nodes(const FakeNodes& nodes);

}  // namespace corbd::test
