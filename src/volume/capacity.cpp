#include "corbd/volume/capacity.hpp"

#include <algorithm>
#include <bit>

namespace corbd::volume {
namespace {

// Linux: MINORBITS of include/linux/kdev_t.h; drivers/block/nbd.c gives each device the next power of two above
// max_part.
constexpr std::uint64_t kMinors = 1u << 20, kUsualPartitions = 16;

std::string mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::uint64_t parts(std::uint64_t all, std::uint64_t agent, std::uint64_t part) {
  return all > agent ? (all - agent) / part : 0;
}

}  // namespace

Capacity capacity_of(const CapacityFacts& facts) {
  if (facts.chosen > 0) return {facts.chosen, "--max-volumes"};
  const auto partitions = std::min(facts.partitions.value_or(kUsualPartitions), kMinors - 1);
  std::uint64_t most = kMinors >> std::bit_width(partitions);
  std::string bound = "the minor numbers of the kernel's nbd driver (max_part=" + std::to_string(partitions) + ")";
  const auto narrow = [&](std::uint64_t volumes, std::string what) {
    if (volumes >= most) return;
    most = volumes;
    bound = std::move(what);
  };
  if (facts.memory) narrow(parts(*facts.memory, kAgentMemory, kVolumeMemory), mib(*facts.memory) + " of memory");
  if (facts.tasks)
    narrow(parts(*facts.tasks, kAgentTasks, kClientTasks) * kClientVolumes,
           std::to_string(*facts.tasks) + " processes and threads (pids.max, threads-max)");
  if (facts.descriptors)
    narrow(parts(*facts.descriptors, kAgentDescriptors, kVolumeDescriptors),
           std::to_string(*facts.descriptors) + " descriptors (RLIMIT_NOFILE)");
  return {static_cast<std::uint32_t>(std::max<std::uint64_t>(most, 1)), std::move(bound)};
}

result<> Capacity::check_room_beside(std::uint64_t count) const {
  if (count < volumes) return {};
  return Error{errc::exhausted, "this node carries " + std::to_string(count) + " volumes, and it has room for " +
                                    std::to_string(volumes) + ", by " + bound +
                                    ": use another node, or see docs/operations.md, \"How many volumes\""};
}

}  // namespace corbd::volume
