// Looks for the processes of rbd-nbd, and reads what they were started with.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/daemons.hpp"
#include "moving.hpp"

namespace corbd::cli {
namespace {

constexpr std::size_t kMaxOfProcess = 1 << 20;
constexpr std::chrono::seconds kProcesses{10};
/// The kernel gives the time of its boot in whole seconds.
constexpr std::chrono::seconds kUnsure{2};
constexpr const char* kConf = "etc/ceph/ceph.conf";

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  for (const auto word : pieces(text, '\0')) all.emplace_back(word);
  return all;
}

/// A regular file of the file system that the process sees. Links in it lead nowhere else, and nothing else is opened:
/// to open a device may do something.
Fd open_in(const std::string& process, const char* file) {
  const Fd root(::open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return {};
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const Fd place(static_cast<int>(::syscall(SYS_openat2, root.get(), file, &how, sizeof how)));
  struct stat status{};
  if (!place || ::fstat(place.get(), &status) != 0) return {};
  if (!S_ISREG(status.st_mode)) {
    errno = EINVAL;
    return {};
  }
  return Fd(::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(), O_RDONLY | O_CLOEXEC));
}

/// Empty: it has none. An error also if it was changed since the process read it.
result<std::string> conf_of(const std::string& root, const std::string& process) {
  const std::string shown = process + "/root/" + kConf;
  const Fd fd = open_in(process, kConf);
  if (!fd && errno == ENOENT) return std::string();
  const auto failed = [&] { return Error{errc::unavailable, "reading " + shown + ": " + std::strerror(errno)}; };
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) return failed();
  const auto own = read_file(process + "/stat", kMaxOfProcess), system = read_file(root + "/proc/stat", kMaxOfProcess);
  const auto started = started_at(own ? *own : "", system ? *system : "", ::sysconf(_SC_CLK_TCK));
  // A file that was put there with an old time of change has a new one of its inode.
  const auto changed = std::chrono::system_clock::from_time_t(std::max(status.st_mtim.tv_sec, status.st_ctim.tv_sec));
  if (!started || changed + kUnsure > *started)
    return Error{errc::failed_precondition, shown + " may have been changed since rbd-nbd was started"};
  std::string text(kMaxOfProcess, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got)) {
    got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0) return failed();
  }
  if (size == text.size()) return Error{errc::state_corrupt, shown + " is too long"};
  text.resize(size);
  return text;
}

result<bool> runs_without_cache(const std::string& root, int pid) {
  const std::string process = root + "/proc/" + std::to_string(pid);
  DaemonSeen seen;
  if (const auto text = read_file(process + "/cmdline", kMaxOfProcess)) seen.arguments = words(*text);
  const auto environment = read_file(process + "/environ", kMaxOfProcess);
  if (environment)
    seen.environment = words(*environment);
  else
    seen.environment = environment.error();
  seen.conf = conf_of(root, process);
  return cache_is_off(seen);
}

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
    device.cache_off = runs_without_cache(root, pid);
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

}  // namespace corbd::cli
