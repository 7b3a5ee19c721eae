// Looks for the processes of rbd-nbd, and whether they have a cache.
#include <future>
#include <thread>

#include "corbd/host/daemons.hpp"
#include "inputs.hpp"

namespace corbd::migration {
namespace {

constexpr std::chrono::seconds kProcesses{10};

result<std::vector<NbdUser>> search(const std::string& root, std::vector<NbdUser> devices) {
  for (auto& device : devices) {
    auto found = host::find_daemons(root, device.seen.index, device.seen.backend);
    if (!found) return found.error();
    device.daemons = std::move(*found);
    for (const int pid : device.daemons) {
      device.cache_off = host::is_uncached(root, pid);
      if (!device.cache_off || !*device.cache_off) break;
    }
  }
  return devices;
}

}  // namespace

result<> find_daemons(const std::string& root, std::vector<NbdUser>& devices) {
  // The thread may outlive the question: a command line is in the memory of its process.
  std::promise<result<std::vector<NbdUser>>> promise;
  auto future = promise.get_future();
  std::thread([promise = std::move(promise), root, devices]() mutable {
    promise.set_value(search(root, std::move(devices)));
  }).detach();
  if (future.wait_for(kProcesses) != std::future_status::ready)
    return Error{errc::timed_out, "reading /proc for processes of rbd-nbd has not ended within 10 s"};
  auto found = future.get();
  if (!found) return found.error();
  devices = std::move(*found);
  return {};
}

}  // namespace corbd::migration
