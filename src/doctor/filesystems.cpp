// Finds the kernel features that filesystems of staged volumes, and new ones, need. A device of ours may wait for its
// server, so helpers read them, and are abandoned if they do not answer in time.
#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "corbd/host/values.hpp"
#include "corbd/plan/observation.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTogether{10};

result<host::KernelNeeds> within(std::chrono::milliseconds limit, std::function<result<host::KernelNeeds>()> ask) {
  // The thread may outlive the question.
  std::promise<result<host::KernelNeeds>> promise;
  auto future = promise.get_future();
  std::thread([promise = std::move(promise), ask = std::move(ask)]() mutable { promise.set_value(ask()); }).detach();
  if (future.wait_for(limit) == std::future_status::ready) return future.get();
  return Error{errc::timed_out, "no answer in time"};
}

std::chrono::milliseconds left_until(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

/// Finds the device with the filesystem: the volume's own, or the encrypted volume's mapping, whose name ends with the
/// ID.
FilesystemSeen on_device(const device::Seen& seen, const std::string& volume, const std::vector<std::string>& mounted) {
  std::string name = device::name(seen.kind, seen.index), path = device::path(seen);
  for (const auto& holder : seen.holders)
    if (holder.mapping.ends_with(volume)) {
      name = holder.name;
      path = "/dev/mapper/" + holder.mapping;
    }
  return {volume, path, std::ranges::find(mounted, name) != mounted.end(), Error{errc::unavailable, "it was not read"}};
}

}  // namespace

void find_integrity(Records& records, const std::vector<device::Seen>& devices) {
  for (auto& [volume, of] : records.combinations)
    for (const auto& seen : devices)
      if (plan::integrity_of(seen, volume) != nullptr) of.encryption = plan::Combination::Encryption::with_integrity;
}

std::vector<FilesystemSeen> find_filesystems(const Records& records, const std::vector<device::Seen>& devices,
                                             const std::vector<std::string>& mounted) {
  std::vector<FilesystemSeen> all;
  for (const auto& seen : devices) {
    const auto of_kernel = std::ranges::find_if(records.by_kernel, [&](const auto& id) {
      const auto number = records.numbers.find(id);
      return number != records.numbers.end() && number->second == seen.index;
    });
    const bool identified = traits(seen.kind).identified;
    if (!identified && of_kernel == records.by_kernel.end()) continue;
    const std::string volume = identified ? seen.backend : *of_kernel;
    if (records.volumes.contains(volume) && !records.blocks.contains(volume))
      all.push_back(on_device(seen, volume, mounted));
  }
  return all;
}

void read_filesystems(std::vector<FilesystemSeen>& all, const std::map<std::string, AgentVolume>& volumes,
                      const HelperProgram& helper, std::chrono::milliseconds each) {
  const auto end = Clock::now() + kTogether;
  for (auto& one : all) {
    // Skip volumes that may have no server.
    const auto known = volumes.find(one.volume);
    if (known == volumes.end() || (known->second.state != "staged" && known->second.state != "staging")) continue;
    one.needs = within(std::min(each, left_until(end)),
                       [device = one.device, helper] { return host::kernel_needs(device, helper); });
  }
}

std::vector<NewFilesystem> try_mkfs(const std::map<std::string, std::string>& options, const HelperProgram& helper) {
  const auto end = Clock::now() + kTogether;
  std::vector<NewFilesystem> all;
  for (const auto& type : host::offered_filesystems()) {
    if (host::find_program("mkfs." + type).empty()) continue;
    const auto given = options.find(type);
    const std::string with = given == options.end() ? "" : given->second;
    auto needs =
        within(left_until(end), [type, with, helper] { return host::kernel_needs_of_new(type, with, helper); });
    if (!needs || !needs->fstype.empty()) all.push_back({type, with, std::move(needs)});
  }
  return all;
}

namespace {

std::string_view next_word(std::string_view& command_line) {
  const auto end = std::min(command_line.find('\0'), command_line.size());
  const std::string_view word = command_line.substr(0, end);
  command_line.remove_prefix(std::min(end + 1, command_line.size()));
  return word;
}

}  // namespace

std::string flag_of(std::string_view command_line, std::string_view name) {
  const std::string flag = "-" + std::string(name);
  bool next = false;
  while (!command_line.empty()) {
    std::string_view word = next_word(command_line);
    if (next) return std::string(word);
    if (word.starts_with("--")) word.remove_prefix(1);
    if (word.starts_with(flag + "=")) return std::string(word.substr(flag.size() + 1));
    next = word == flag;
  }
  return "";
}

bool is_on(std::string_view command_line, std::string_view name) {
  const std::string flag = "-" + std::string(name);
  bool on = false;
  while (!command_line.empty()) {
    std::string_view word = next_word(command_line);
    if (word.starts_with("--")) word.remove_prefix(1);
    if (word == flag) on = true;
    if (!word.starts_with(flag + "=")) continue;
    word.remove_prefix(flag.size() + 1);
    // Each value that Go takes for true begins so, and the agent has refused any other.
    on = word.starts_with('1') || word.starts_with('t') || word.starts_with('T');
  }
  return on;
}

}  // namespace corbd::doctor
