#include "node_capacity.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "corbd/core/file.hpp"
#include "corbd/host/cgroup.hpp"

namespace corbd::agent {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;

void narrow(std::optional<std::uint64_t>& into, const std::optional<std::uint64_t>& limit) {
  if (limit) into = std::min(into.value_or(*limit), *limit);
}

std::optional<std::uint64_t> memory_of_node(const std::string& file) {
  constexpr std::string_view name = "MemTotal:";
  const auto text = read_file(file, kMostBytes);
  const auto at = text ? text->find(name) : std::string::npos;
  if (at == std::string::npos) return std::nullopt;
  const auto digits = text->find_first_not_of(' ', at + name.size());
  std::uint64_t kib = 0;
  if (digits == std::string::npos ||
      std::from_chars(text->data() + digits, text->data() + text->size(), kib).ec != std::errc())
    return std::nullopt;
  return kib << 10;
}

}  // namespace

volume::CapacityFacts read_capacity(const std::string& root, std::uint32_t chosen) {
  volume::CapacityFacts facts;
  facts.chosen = chosen;
  facts.partitions = host::kernel_number(root + "/sys/module/nbd/parameters/max_part");
  facts.memory = memory_of_node(root + "/proc/meminfo");
  facts.tasks = host::kernel_number(root + "/proc/sys/kernel/threads-max");
  for (const auto& folder : host::own_cgroups(root + "/sys/fs/cgroup", root + "/proc/self/cgroup")) {
    narrow(facts.memory, host::kernel_number(folder + "/memory.max"));
    narrow(facts.tasks, host::kernel_number(folder + "/pids.max"));
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) facts.descriptors = files.rlim_cur;
  return facts;
}

NodeCapacity::NodeCapacity(BlockingPool& files, std::uint32_t chosen)
    : files_(files), chosen_(chosen), now_(capacity_of(read_capacity("", chosen))) {}

task<volume::Capacity> NodeCapacity::read(Until until) {
  auto job = [chosen = chosen_]() -> result<volume::CapacityFacts> { return read_capacity("", chosen); };
  const auto facts = co_await files_.run(std::move(job), until, "reading the limits of this node");
  if (facts) now_ = capacity_of(*facts);
  co_return now_;
}

}  // namespace corbd::agent
