// Reads the kernel's figures of this process.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "corbd/core/file.hpp"
#include "corbd/ops/metrics.hpp"

namespace corbd::ops {
namespace {

/// By proc(5), field 22 of /proc/self/stat is the start in ticks after the boot, and btime of /proc/stat is the boot.
double start_of_process() {
  const auto self = read_file("/proc/self/stat", 4096), all = read_file("/proc/stat", 1 << 20);
  if (!self || !all) return 0;
  // The name, field 2, may contain spaces and brackets.
  std::istringstream fields(self->substr(self->rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0, boot = 0;
  fields >> ticks;
  const auto line = all->find("\nbtime ");
  if (line != std::string::npos) std::istringstream(all->substr(line + 7)) >> boot;
  return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

Process read_process() {
  Process process;
  std::uint64_t size = 0, pages = 0;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (const auto statm = read_file("/proc/self/statm", 4096)) std::istringstream(*statm) >> size >> pages;
  process.virtual_bytes = size * page;
  process.resident_bytes = pages * page;
  std::error_code failed;
  const auto entries = [&](const char* folder) {
    std::uint64_t count = 0;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
      ++count;
    return count;
  };
  // Subtract the descriptor that this read opens.
  process.open_fds = std::max<std::uint64_t>(entries("/proc/self/fd"), 1) - 1;
  process.threads = entries("/proc/self/task");
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) process.max_fds = files.rlim_cur;
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    const auto time = [](const timeval& of) {
      return static_cast<double>(of.tv_sec) + static_cast<double>(of.tv_usec) / 1e6;
    };
    process.cpu_seconds = time(used.ru_utime) + time(used.ru_stime);
  }
  static const double started_at = start_of_process();
  process.started_at = started_at;
  return process;
}

}  // namespace corbd::ops
