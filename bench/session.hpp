// Our own NBD server beside nbdkit, on images in memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace corbd::bench {

using Seconds = std::chrono::duration<double>;

/// 4 and 256 KiB, read and write, depth 1, 16 and 64; three rounds of `time` each.
/// `beside`: the command of another server than nbdkit, which serves on stdin. `kept`: ours is as with --keeper.
int session(Seconds time, const std::string& json_file, const std::vector<std::string>& beside, bool kept);
/// A memory image of 64 MiB on stdin.
int serve(bool kept);
/// So many reads and writes of 4 KiB at depth 16 against the command, which serves on stdin.
int drive(std::uint64_t count, const std::vector<std::string>& command);

}  // namespace corbd::bench
