// Implements ops::daemons and ops::dismiss: finds the rbd-nbd processes that serve a device.
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <sstream>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/host/daemons.hpp"
#include "corbd/host/system.hpp"
#include "failure.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxText = 1 << 20;
/// Limits of a mountinfo in bytes. A pod may have as many mounts as the kernel allows.
constexpr std::size_t kMaxMounts = 4 << 20, kMaxHostsMounts = 64 << 20;
constexpr int kLeaveWithinMs = 30000;

std::vector<std::string> arguments(const std::string& process) {
  std::vector<std::string> found;
  const auto text = read_file(process + "/cmdline", kMaxText);
  if (!text) return found;
  for (std::size_t at = 0; at < text->size(); at += found.back().size() + 1) found.emplace_back(text->c_str() + at);
  return found;
}

/// Looks for `--name value` or `--name=value`.
bool says(const std::vector<std::string>& arguments, const std::string& name, const std::string& value) {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i] == name + "=" + value ||
        (arguments[i] == name && i + 1 < arguments.size() && arguments[i + 1] == value))
      return true;
  return false;
}

/// Returns what a process has mounted at /dev, as filesystem and folder in it: "0:6 /". Empty: nothing, or unknown.
std::string mounted_at_dev(const std::string& process, std::size_t limit) {
  const auto text = read_file(process + "/mountinfo", limit);
  std::istringstream lines(text ? *text : std::string());
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" /dev ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string id, parent, filesystem, folder, target;
    // The last mount covers the others.
    if (words >> id >> parent >> filesystem >> folder >> target && target == "/dev") found = filesystem + " " + folder;
  }
  return found;
}

enum class MayServe { no, with_hosts_dev, yes };

/// Whether the process can serve a device. Only the agent's own user, root, in the agent's own user namespace, with
/// CAP_SYS_ADMIN, can give the kernel a link. A pod's process can have rbd-nbd's name and arguments all the same, and
/// CapEff counts in the process's own user namespace. Without CAP_SYS_PTRACE the agent cannot read which namespace that
/// is. Then the process's owner, the map of its user IDs and its /dev decide: rbd-nbd opens the device there. A pod has
/// the host's /dev only if its node's administrator allows it, and root in a user namespace of its own cannot mount it.
MayServe may_serve(const std::string& root, const std::string& process) {
  std::error_code failed;
  struct stat owner{};
  if (::stat(process.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return MayServe::no;
  if ((capabilities_of(process).value_or(0) >> CAP_SYS_ADMIN & 1) == 0) return MayServe::no;
  const auto own = fs::read_symlink(root + "/proc/self/ns/user", failed);
  const auto its = failed ? own : fs::read_symlink(process + "/ns/user", failed);
  if (!failed) return own == its ? MayServe::yes : MayServe::no;
  const auto own_map = read_file(root + "/proc/self/uid_map", kMaxText);
  const auto its_map = read_file(process + "/uid_map", kMaxText);
  return own_map && its_map && *own_map == *its_map ? MayServe::with_hosts_dev : MayServe::no;
}

/// The host's /dev, read when it is first needed.
class HostsDev {
 public:
  explicit HostsDev(const std::string& root) : first_(root + "/proc/1") {}
  /// Returns true also if the host's /dev is unknown.
  bool is_of(const std::string& process) {
    if (!dev_) dev_ = mounted_at_dev(first_, kMaxHostsMounts);
    return dev_->empty() || mounted_at_dev(process, kMaxMounts) == *dev_;
  }

 private:
  const std::string first_;
  std::optional<std::string> dev_;
};

/// A process that is ending has no command line any more.
bool serves(const std::string& process, bool connected, const std::string& device, const std::string& backend) {
  const auto given = arguments(process);
  const auto has = [&](std::string_view word) { return std::find(given.begin(), given.end(), word) != given.end(); };
  if (!has("map") && !has("attach")) return false;
  return connected || says(given, "--device", device) || (!backend.empty() && says(given, "--cookie", backend));
}

std::string first_line(const std::string& path) {
  const auto text = read_file(path, kMaxText);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

}  // namespace

result<std::vector<int>> daemons(const std::string& root, std::uint32_t index, const std::string& backend) {
  const std::string name = "nbd" + std::to_string(index);
  const std::string connected = first_line(root + "/sys/block/" + name + "/pid");
  std::vector<int> found;
  HostsDev hosts_dev(root);
  std::error_code failed;
  for (fs::directory_iterator entry(root + "/proc", failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string pid = entry->path().filename();
    // Read `comm` first, because reading the command line of a process may wait for its memory.
    if (pid.find_first_not_of("0123456789") != std::string::npos ||
        first_line(entry->path().string() + "/comm") != "rbd-nbd")
      continue;
    const auto may = may_serve(root, entry->path());
    if (may == MayServe::no || !serves(entry->path(), pid == connected, "/dev/" + name, backend)) continue;
    if (may == MayServe::yes || hosts_dev.is_of(entry->path())) found.push_back(std::stoi(pid));
  }
  if (failed) return Error{errc::unavailable, "reading " + root + "/proc: " + failed.message()};
  return found;
}

result<> dismiss(std::uint32_t index, const std::string& backend) {
  const auto found = daemons("", index, backend);
  if (!found) return found.error();
  for (const int pid : *found) {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!process && errno == ESRCH) continue;
    if (!process) return failure("looking at process " + std::to_string(pid), errno);
    // The pid may belong to another process by now.
    const auto still = daemons("", index, backend);
    if (!still) return still.error();
    if (std::find(still->begin(), still->end(), pid) == still->end()) continue;
    if (::syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0) != 0 && errno != ESRCH)
      return failure("ending rbd-nbd, process " + std::to_string(pid), errno);
    pollfd wait{process.get(), POLLIN, 0};
    if (::poll(&wait, 1, kLeaveWithinMs) <= 0)
      return Error{errc::unavailable, "rbd-nbd, process " + std::to_string(pid) + ", has not ended " +
                                          std::to_string(kLeaveWithinMs / 1000) +
                                          " s after SIGTERM: it may wait for the cluster"};
  }
  return {};
}

}  // namespace corbd::host::ops

namespace corbd::host {

result<std::vector<int>> find_daemons(const std::string& root, std::uint32_t index, const std::string& backend) {
  return ops::daemons(root, index, backend);
}

}  // namespace corbd::host
