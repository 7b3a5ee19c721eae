// Finds out whether a running rbd-nbd acknowledges writes from librbd's cache, as far as its node shows it
// (docs/sources.md#librbd-cache).
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/ini.hpp"
#include "corbd/core/text.hpp"
#include "corbd/host/daemons.hpp"
#include "ops.hpp"

namespace corbd::host {
namespace {

/// Returns the number at the text's beginning; nothing: there is none.
std::optional<long long> number_in(std::string_view text) {
  long long value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value < 0 ? std::nullopt : std::optional(value);
}

Error cache_not_known(std::string why) { return {errc::failed_precondition, std::move(why)}; }

/// Compares as Ceph does in a file: any other word is an error, after which Ceph uses its default.
bool is_false(std::string_view value) {
  const std::string word = lower(trimmed(value));
  return word == "false" || word == "0";
}

/// Returns the option that an argument names: "rbd_cache" of "--rbd-cache=false"; empty: it names none.
std::string option_of(std::string_view argument) {
  if (!argument.starts_with('-')) return "";
  std::string name(argument.substr(argument.starts_with("--") ? 2 : 1));
  name = name.substr(0, name.find('='));
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Returns the value of the last argument of that name: `--name value` or `--name=value`.
std::optional<std::string> given(const std::vector<std::string>& arguments, std::string_view option) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (option_of(arguments[i]) != option) continue;
    const auto equals = arguments[i].find('=');
    if (equals != std::string::npos)
      found = arguments[i].substr(equals + 1);
    else
      found = i + 1 < arguments.size() ? arguments[i + 1] : "";
  }
  return found;
}

/// Whether the last argument that names it switches the cache off. For arguments Ceph compares letter by letter, and
/// ignores any other word. A bare name means true.
std::optional<bool> switched_off(const std::vector<std::string>& arguments) {
  std::optional<bool> off;
  for (const auto& argument : arguments) {
    if (option_of(argument) != "rbd_cache") continue;
    const auto equals = argument.find('=');
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    off = value == "false" || value == "0";
  }
  return off;
}

/// Options that may lead the process to another file, or to another section of it.
constexpr const char* kElsewhere[] = {"c", "conf", "cluster", "n", "name"};
constexpr const char* kElsewhereByEnvironment[] = {"CEPH_ARGS=", "CEPH_CONF="};

/// Settings of a cache that writes through. Both kinds of librbd's cache then do so, whatever
/// rbd_cache_writethrough_until_flush says, because they may hold no dirty byte. Without these, that option only delays
/// the first cached write.
struct WriteThrough {
  const char* option;
  const char* value;
};
constexpr WriteThrough kWriteThrough[] = {{"rbd_cache_policy", "writethrough"}, {"rbd_cache_max_dirty", "0"}};

/// Options of librbd's other cache, on a disk of the node.
constexpr const char* kDiskCache[] = {"rbd_plugins", "rbd_persistent_cache_mode", "rbd_rwl_enabled", "rbd_pwl_mode"};

/// Decides by the command line and the file, if both leave no doubt which options count.
result<bool> is_uncached_by_conf(const DaemonSeen& daemon) {
  for (const char* option : kElsewhere)
    if (given(daemon.arguments, option))
      return cache_not_known("rbd-nbd was started with the option " + std::string(option));
  if (!daemon.environment) return daemon.environment.error();
  for (const auto& variable : *daemon.environment)
    for (const char* name : kElsewhereByEnvironment)
      if (variable.starts_with(name)) return cache_not_known("the environment of rbd-nbd has " + variable.substr(0, 9));
  const auto user = given(daemon.arguments, "id");
  if (!user) return cache_not_known("rbd-nbd was started without --id");
  if (!daemon.conf) return daemon.conf.error();
  const auto in_conf = [&](const char* option) { return option_for(*daemon.conf, option, *user); };
  const auto cache = in_conf("rbd_cache");
  if (!cache) return with_context("the ceph.conf of rbd-nbd", cache.error());
  for (const char* option : kDiskCache)
    if (*in_conf(option)) return cache_not_known("the ceph.conf of rbd-nbd has " + std::string(option));
  if (!switched_off(daemon.arguments) && *cache && is_false(**cache)) return true;
  for (const auto& [option, value] : kWriteThrough)
    if (!given(daemon.arguments, option) && in_conf(option)->value_or("") == value) return true;
  return false;
}

constexpr std::size_t kMaxOfProcess = 1 << 20;
/// The kernel gives the time of its boot in whole seconds.
constexpr std::chrono::seconds kUnsure{2};
constexpr const char* kConf = "etc/ceph/ceph.conf";

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  for (const auto word : pieces(text, '\0')) all.emplace_back(word);
  return all;
}

/// Opens a regular file of the filesystem that the process sees. Links in it lead nowhere else. No other type is
/// opened, because opening a device may have effects.
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

/// Returns the process's ceph.conf; empty: it has none. An error also if the file was changed since the process read
/// it.
result<std::string> conf_of(const std::string& root, const std::string& process) {
  const std::string shown = process + "/root/" + kConf;
  const Fd fd = open_in(process, kConf);
  if (!fd && errno == ENOENT) return std::string();
  const auto failed = [&] { return Error{errc::unavailable, "reading " + shown + ": " + std::strerror(errno)}; };
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) return failed();
  const auto own = read_file(process + "/stat", kMaxOfProcess), system = read_file(root + "/proc/stat", kMaxOfProcess);
  const auto started = started_at(own ? *own : "", system ? *system : "", ::sysconf(_SC_CLK_TCK));
  // A file that was put there with an old modification time still has a new change time of its inode.
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

}  // namespace

result<bool> is_uncached(const DaemonSeen& daemon) {
  for (const char* option : kDiskCache)
    if (given(daemon.arguments, option))
      return cache_not_known("rbd-nbd was started with the option " + std::string(option));
  if (switched_off(daemon.arguments) == true) return true;
  for (const auto& [option, value] : kWriteThrough)
    if (given(daemon.arguments, option) == value) return true;
  return is_uncached_by_conf(daemon);
}

result<bool> is_uncached(const std::string& root, int pid) {
  const std::string process = root + "/proc/" + std::to_string(pid);
  DaemonSeen seen;
  if (const auto text = read_file(process + "/cmdline", kMaxOfProcess)) seen.arguments = words(*text);
  const auto environment = read_file(process + "/environ", kMaxOfProcess);
  if (environment)
    seen.environment = words(*environment);
  else
    seen.environment = environment.error();
  seen.conf = conf_of(root, process);
  return is_uncached(seen);
}

std::optional<long long> start_ticks(std::string_view process) {
  // Format of proc(5): "PID (NAME) STATE ...". The name may contain any character; the 22nd field is in clock ticks
  // since the boot.
  constexpr std::size_t kStart = 22 - 3;
  const auto name_ends = process.rfind(") ");
  if (name_ends == process.npos) return std::nullopt;
  const auto fields = pieces(process.substr(name_ends + 2), ' ');
  if (fields.size() <= kStart) return std::nullopt;
  return number_in(fields[kStart]);
}

std::optional<std::chrono::system_clock::time_point> started_at(std::string_view process, std::string_view system,
                                                                long ticks) {
  const auto since_boot = start_ticks(process);
  const auto boots = system.find("\nbtime ");
  if (!since_boot || boots == system.npos || ticks <= 0) return std::nullopt;
  const auto boot = number_in(system.substr(boots + 7));
  if (!boot) return std::nullopt;
  return std::chrono::system_clock::time_point(std::chrono::seconds(*boot + *since_boot / ticks));
}

namespace ops {

std::string uncached_process(const std::string& root, const std::vector<int>& serving) {
  // Exceeds osd_client_watch_timeout, which is 30 s.
  constexpr long long kWatchesOfEarlierOnes = 60;
  if (serving.size() != 1) return "";
  const std::string process = root + "/proc/" + std::to_string(serving.front()) + "/stat";
  const auto started = [&] {
    const auto text = read_file(process, kMaxOfProcess);
    return text ? start_ticks(*text) : std::nullopt;
  };
  const auto before = started();
  const auto uptime = read_file(root + "/proc/uptime", kMaxOfProcess);
  const auto seconds = uptime ? number_in(*uptime) : std::nullopt;
  const long ticks = ::sysconf(_SC_CLK_TCK);
  if (!before || !seconds || ticks <= 0 || *seconds - *before / ticks < kWatchesOfEarlierOnes) return "";
  const auto uncached = is_uncached(root, serving.front());
  if (!uncached || !*uncached || started() != before) return "";
  return std::to_string(serving.front()) + " " + std::to_string(*before);
}

}  // namespace ops

}  // namespace corbd::host
