// What a repeated NodeStageVolume costs: kubelet repeats every one of them when it starts. And what staged volumes cost
// that nobody uses.
#pragma once

#include <chrono>
#include <string>

namespace corbd::bench {

/// `volumes` of them staged in an agent of this process, then `calls` repeats from another, each on a connection of its
/// own. Needs root: it mounts a tmpfs for each volume, in a mount namespace of its own.
int stages(int volumes, int calls);
/// The agent's own part of it: its looks at the kernel, its timers. What librbd's connections cost is lab_rbd's to say.
int idle(int volumes, std::chrono::seconds time);
/// A node with so many fresh volumes, driven as any driver's (node.hpp).
int scale(int volumes, int at_once, const std::string& json);

}  // namespace corbd::bench
