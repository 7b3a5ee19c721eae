// What many devices cost the control thread and the memory.
#pragma once

namespace corbd::bench {

/// Control-thread time with 300 and with 1,000 staged volumes: the end of all links, one look at a volume, the status
/// of all, one stage.
int inventory();
/// Memory with `devices` that each have `depth` requests of `bytes` under way, and after that.
int memory(int devices, int depth, unsigned bytes);

}  // namespace corbd::bench
