#include "corbd/host/service.hpp"

#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::host {
namespace {

constexpr std::chrono::microseconds kKnowsWithin{1'000'000};
constexpr std::size_t kLongestGroup = 64u << 10;

}  // namespace

bool same_group(const std::string& proc, pid_t one, pid_t other) {
  const auto group = [&](pid_t pid) { return read_file(proc + "/" + std::to_string(pid) + "/cgroup", kLongestGroup); };
  const auto first = group(one), second = group(other);
  return first && second && *first == *second;
}

void tell_ready() { ::sd_notify(0, "READY=1"); }

void tell_successor(pid_t next) {
  if (std::getenv("NOTIFY_SOCKET") == nullptr) return;
  if (!same_group("/proc", ::getpid(), next)) {
    log::warning("handover.not_of_this_service",
                 {{"pid", next}, {"effect", "systemd starts another agent, which takes the devices over again"}});
    return;
  }
  ::sd_notify(0, ("MAINPID=" + std::to_string(next)).c_str());
  if (::sd_notify_barrier(0, static_cast<std::uint64_t>(kKnowsWithin.count())) < 0)
    log::warning("handover.systemd_notify_failed",
                 {{"effect", "systemd may start another agent, which takes the devices over"}});
}

}  // namespace corbd::host
