// What a repeated NodeStageVolume costs: kubelet repeats every one of them when it starts.
#pragma once

namespace corbd::bench {

/// `volumes` of them staged in an agent of this process, then `calls` repeats from another, each on a connection of its own. Needs root: it mounts
/// a tmpfs for each volume, in a mount namespace of its own.
int stages(int volumes, int calls);

}  // namespace corbd::bench
