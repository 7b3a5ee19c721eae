#include "cost.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "corbd/core/fd.hpp"

namespace corbd::bench {
namespace {

namespace fs = std::filesystem;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number behind "Name:" at the beginning of a line; 0 without one.
long number(const std::string& text, const std::string& name) {
  const auto at = ("\n" + text).find("\n" + name + ":");
  return at == std::string::npos ? 0 : std::strtol(text.c_str() + at + name.size() + 1, nullptr, 10);
}

/// Milliseconds of processor time in /proc/PID/stat, with that of children that it waited for.
double cpu_ms_of(const std::string& stat) {
  constexpr int kFirstAfterName = 3, kUtime = 14, kCstime = 17;  // proc(5); the name may contain spaces
  std::istringstream fields(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
  std::string text;
  double ticks = 0;
  for (int field = kFirstAfterName; field <= kCstime && fields >> text; ++field)
    if (field >= kUtime) ticks += std::strtod(text.c_str(), nullptr);
  return ticks * 1000 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Process {
  std::string folder, status, words;
};

std::map<pid_t, Process> all_processes() {
  std::map<pid_t, Process> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    Process one{entry.path(), read(entry.path() / "status"), read(entry.path() / "cmdline")};
    std::ranges::replace(one.words, '\0', ' ');
    if (!one.status.empty()) found.emplace(std::stoi(name), std::move(one));
  }
  return found;
}

}  // namespace

Cost cost_of(std::vector<pid_t> pids, const std::string& words) {
  const auto all = all_processes();
  std::set<pid_t> ours(pids.begin(), pids.end());
  // The bench itself may be a child of what it looks at.
  const pid_t self = std::ranges::find(pids, ::getpid()) == pids.end() ? ::getpid() : 0;
  for (const auto& [pid, one] : all)
    if (!words.empty() && pid != self && one.words.find(words) != std::string::npos) ours.insert(pid);
  for (std::size_t before = 0; before != ours.size();) {
    before = ours.size();
    for (const auto& [pid, one] : all)
      if (pid != self && ours.contains(static_cast<pid_t>(number(one.status, "PPid")))) ours.insert(pid);
  }
  Cost sum;
  for (const pid_t pid : ours) {
    const auto found = all.find(pid);
    if (found == all.end()) continue;
    std::error_code gone;
    const auto open = fs::directory_iterator(found->second.folder + "/fd", gone);
    ++sum.processes;
    sum.cpu_ms += cpu_ms_of(read(found->second.folder + "/stat"));
    sum.threads += static_cast<int>(number(found->second.status, "Threads"));
    sum.rss_kib += number(found->second.status, "VmRSS");
    sum.pss_kib += number(read(found->second.folder + "/smaps_rollup"), "Pss");
    if (!gone) sum.descriptors += static_cast<int>(std::distance(open, fs::directory_iterator()));
  }
  return sum;
}

boost::json::object json_of(const Cost& cost) {
  return {{"processes", cost.processes}, {"threads", cost.threads}, {"rss_kib", cost.rss_kib},
          {"pss_kib", cost.pss_kib},     {"cpu_ms", cost.cpu_ms},   {"descriptors", cost.descriptors}};
}

pid_t listener_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + " is too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    throw std::runtime_error("no driver listens on " + path + ": " + std::strerror(errno));
  return peer.pid;
}

}  // namespace corbd::bench
