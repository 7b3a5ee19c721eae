// Looks for the processes of rbd-nbd, and whether they have a cache.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "corbd/core/sysfs.hpp"
#include "corbd/host/daemons.hpp"
#include "inputs.hpp"

namespace corbd::migration {
namespace {

constexpr std::chrono::seconds kProcesses{10};

/// Shared with a thread that may outlive the question: a command line is in the memory of its process.
struct Search {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<result<std::vector<NbdUser>>> found;
};

result<> find_of(const std::string& root, NbdUser& device) {
  const auto index = sysfs::number<std::uint32_t>(std::string_view(device.name).substr(3)).value_or(0);
  auto found = host::find_daemons(root, index, device.backend);
  if (!found) return found.error();
  device.others = std::move(*found);
  for (const int pid : device.others) {
    device.cache_off = host::is_uncached(root, pid);
    if (!device.cache_off || !*device.cache_off) break;
  }
  return {};
}

void search(const std::shared_ptr<Search>& asked, const std::string& root, std::vector<NbdUser> devices) {
  result<> failed;
  for (auto& device : devices)
    if (failed) failed = find_of(root, device);
  const std::lock_guard guard(asked->mutex);
  if (failed)
    asked->found = std::move(devices);
  else
    asked->found = failed.error();
  asked->ended.notify_all();
}

}  // namespace

result<> find_others(const std::string& root, std::vector<NbdUser>& devices) {
  const auto asked = std::make_shared<Search>();
  std::thread([asked, root, devices] { search(asked, root, devices); }).detach();
  std::unique_lock lock(asked->mutex);
  if (!asked->ended.wait_for(lock, kProcesses, [&] { return asked->found.has_value(); }))
    return Error{errc::timed_out, "reading /proc for processes of rbd-nbd has not ended within 10 s"};
  if (!*asked->found) return asked->found->error();
  devices = std::move(**asked->found);
  return {};
}

}  // namespace corbd::migration
