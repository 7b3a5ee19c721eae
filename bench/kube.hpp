// What the API server means to an agent, and many agents to the API server.
#pragma once

namespace corbd::bench {

/// The memory of an agent that watches its own Node, after a tenth of `events` changes and after all of them.
int watch(int events);
/// So many agents start at the same moment: how their first requests spread, and whether each one learned its labels.
int starts(int agents);

}  // namespace corbd::bench
