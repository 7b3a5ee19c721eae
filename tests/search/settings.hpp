// The settings that are searched.
#pragma once

#include <array>

#include "moves.hpp"

namespace corbd::search {

/// Each is searched whole.
inline constexpr std::array kSettings{
    Setting{.name = "alone",
            .what = "an agent that dies, is cut off, and whose steps fail; a keeper; a tool that takes the lock",
            .keeper = true,
            .tool = true,
            .cuts = true,
            .aborts = true,
            .entries_end = true,
            .disturbances = 3,
            .writes = 1},
    Setting{.name = "handover",
            .what = "an agent and its next one; a keeper; a tool that takes the lock",
            .handover = true,
            .keeper = true,
            .tool = true,
            .cuts = true,
            .disturbances = 3,
            .writes = 1},
    Setting{.name = "rescue",
            .what = "an agent; a rescue host that takes the lock and writes; attachments that are made again",
            .rescue = true,
            .by_force = true,
            .cuts = true,
            .moves = true,
            .disturbances = 3,
            .writes = 1},
    Setting{.name = "late",
            .what = "an agent whose calls for the lock hang; a rescue host that takes the lock and writes",
            .rescue = true,
            .late_locks = true,
            .cuts = true,
            .disturbances = 3,
            .writes = 1},
    Setting{.name = "moves",
            .what = "two nodes whose agents die, and between which the volume moves",
            .second_node = true,
            .moves = true,
            .disturbances = 3,
            .writes = 1},
    Setting{.name = "two",
            .what = "two nodes that are cut off and tainted, and between which the volume moves",
            .second_node = true,
            .cuts = true,
            .moves = true,
            .taints = true,
            .disturbances = 2,
            .writes = 2},
};

}  // namespace corbd::search
