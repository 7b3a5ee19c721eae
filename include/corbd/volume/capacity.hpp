// How many volumes this node can carry, and what bounds that number. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "corbd/core/result.hpp"

namespace corbd::volume {

/// A resource of which each volume takes a part. Nothing: unknown, or without a limit.
struct CapacityFacts {
  std::uint32_t chosen = 0;                  ///< by --max-volumes; 0: what the others allow
  std::optional<std::uint64_t> partitions;   ///< partitions of a device: max_part of the kernel's nbd driver
  std::optional<std::uint64_t> descriptors;  ///< RLIMIT_NOFILE of the agent
  std::optional<std::uint64_t> tasks;        ///< processes and threads: the lowest pids.max above it, threads-max
  std::optional<std::uint64_t> memory;       ///< bytes: the lowest memory.max above it, or the node's
};

struct Capacity {
  std::uint32_t volumes = 0;  ///< at least one: kubelet reads 0 as "no limit"
  std::string bound;          ///< names what bounds it: "--max-volumes"
  /// Whether a node that carries `count` volumes may get another. An error (exhausted) names the bound.
  result<> check_room_beside(std::uint64_t count) const;
};

/// A part that was measured or counted for each volume, and one for the agent itself. Memory: docs/performance.md, an
/// idle volume, and what rule 23 lets a busy device have beside the common budget. Tasks: librados' threads of a
/// client, which 32 volumes share. Descriptors: the socket and the ledger of a link, and as many while it moves.
inline constexpr std::uint64_t kVolumeMemory = (613u << 10) + (1u << 20), kAgentMemory = 64u << 20;
inline constexpr std::uint64_t kClientTasks = 17, kClientVolumes = 32, kAgentTasks = 128;
inline constexpr std::uint64_t kVolumeDescriptors = 4, kAgentDescriptors = 256;

Capacity capacity_of(const CapacityFacts& facts);

}  // namespace corbd::volume
