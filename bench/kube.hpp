// What the API server means to an agent, and many agents to the API server.
#pragma once

namespace corbd::bench {

/// The memory of an agent that watches its own Node, after a tenth of `events` changes and after all of them, every
/// second one of another's Node. `rate`: changes a second; 0: as fast as they are taken.
int watch(int events, int rate);
/// So many agents start at the same moment: how their first requests spread, and whether each one learned its labels.
int starts(int agents);

}  // namespace corbd::bench
