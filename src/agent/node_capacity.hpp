// How many volumes this node has room for, by what the kernel says of this process and of the node.
#pragma once

#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/volume/capacity.hpp"

namespace corbd::agent {

/// Reads files of the kernel only, below `root` ("": the node's own).
volume::CapacityFacts read_capacity(const std::string& root, std::uint32_t chosen);

class NodeCapacity {
 public:
  /// `chosen`: --max-volumes; 0: none.
  NodeCapacity(BlockingPool& files, std::uint32_t chosen);
  const volume::Capacity& now() const { return now_; }
  /// Reads again: a limit may have changed. If that does not end in time, the last answer counts.
  task<volume::Capacity> read(Until until);

 private:
  BlockingPool& files_;
  const std::uint32_t chosen_;
  volume::Capacity now_;
};

}  // namespace corbd::agent
