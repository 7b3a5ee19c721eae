#include "corbd/host/ceph_clients.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/host/system.hpp"

namespace corbd::host {
namespace {

namespace fs = std::filesystem;

// Source: docs/sources.md#client-traces
constexpr std::string_view kMessenger = "msgr-worker-";
constexpr std::array<std::string_view, 2> kServers{"ceph-mon", "ceph-osd"};
constexpr std::size_t kMostSockets = 64 << 20;  ///< limit of a table of sockets, in bytes

bool has_ended(const std::error_code& failed) {
  return failed == std::errc::no_such_file_or_directory || failed == std::errc::no_such_process;
}

/// Whether it has a thread of Ceph's messenger. The thread's name is readable without a capability, and the same
/// however the program was linked.
result<bool> has_messenger(const fs::path& process) {
  std::error_code failed;
  for (fs::directory_iterator thread(process / "task", failed), end; !failed && thread != end;
       thread.increment(failed)) {
    const auto name = sysfs::attribute(thread->path() / "comm");
    if (name && name->starts_with(kMessenger)) return true;
    std::error_code gone;
    if (!name && fs::exists(thread->path() / "comm", gone))
      return Error{errc::unavailable, "cannot read " + (thread->path() / "comm").string()};
  }
  if (failed && !has_ended(failed))
    return Error{errc::unavailable, "reading " + (process / "task").string() + ": " + failed.message()};
  return false;
}

/// Parses "0100007F:1A85", "0000...:1A85" as the kernel prints them; the address is in words of the machine's byte
/// order.
std::optional<std::pair<std::string, std::string>> parse_end(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || (colon != 8 && colon != 32)) return std::nullopt;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i * 8 < colon; ++i) {
    const auto word = sysfs::number<std::uint32_t>(text.substr(i * 8, 8), 16);
    if (!word) return std::nullopt;
    words.at(i) = *word;
  }
  const auto port = sysfs::number<std::uint16_t>(text.substr(colon + 1), 16);
  std::array<char, INET6_ADDRSTRLEN> address{};
  if (!port || ::inet_ntop(colon == 8 ? AF_INET : AF_INET6, words.data(), address.data(), address.size()) == nullptr)
    return std::nullopt;
  const std::string host = colon == 8 ? address.data() : "[" + std::string(address.data()) + "]";
  return std::pair(host, std::to_string(*port));
}

struct Socket {
  std::string local, port, remote;
  std::uint32_t state = 0, queued = 0;
};

/// A line of /proc/net/tcp: number, local, remote, state, queues.
std::optional<Socket> parse_socket(const std::string& line) {
  std::istringstream words(line);
  std::string number, local, remote, state, queues;
  words >> number >> local >> remote >> state >> queues;
  const auto here = parse_end(local), there = parse_end(remote);
  const auto code = sysfs::number<std::uint32_t>(state, 16);
  const auto queued = sysfs::number<std::uint32_t>(std::string_view(queues).substr(0, queues.find(':')), 16);
  if (!words || !here || !there || !code || !queued) return std::nullopt;
  return Socket{here->first + ":" + here->second, here->second, there->first + ":" + there->second, *code, *queued};
}

/// Whether its process has closed it or has ended, and the kernel still sends data. The end of the stream counts as a
/// byte of the queue.
bool is_unsent(const Socket& socket) {
  constexpr std::uint32_t fin_wait_1 = 4, last_ack = 9, closing = 11;
  return (socket.state == fin_wait_1 || socket.state == last_ack || socket.state == closing) && socket.queued > 1;
}

/// Adds the sockets of one network namespace. Ceph's clients do not listen, so the answers of this node's servers do
/// not count.
void add_unsent(CephClients& found, const fs::path& net) {
  constexpr std::uint32_t listen = 10;
  std::vector<Socket> sockets;
  for (const char* table : {"tcp", "tcp6"}) {
    const auto text = read_file((net / table).string(), kMostSockets);
    if (!text) {
      // Without IPv6 there is no second table.
      if (text.error().code != errc::not_found)
        found.unseen.push_back("the sockets of this node: " + text.error().text);
      continue;
    }
    std::istringstream lines(*text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      if (auto socket = parse_socket(line))
        sockets.push_back(std::move(*socket));
      else
        found.unseen.push_back("the sockets of this node: a line of " + (net / table).string() + " is not understood");
    }
  }
  std::set<std::string> served;
  for (const auto& socket : sockets)
    if (socket.state == listen) served.insert(socket.local);
  const auto is_served = [&served](const Socket& socket) {
    return served.contains(socket.local) || served.contains("0.0.0.0:" + socket.port) ||
           served.contains("[::]:" + socket.port);
  };
  for (const auto& socket : sockets)
    if (is_unsent(socket) && !is_served(socket)) found.unsent.push_back(socket.local + " to " + socket.remote);
}

/// Returns the number of a process's network namespace: a file below net/ has another inode number in each. Nothing:
/// the process has ended or is ending, and is in none any more.
result<std::optional<ino_t>> network_of(const fs::path& process) {
  struct stat table{};
  if (::stat((process / "net/tcp").c_str(), &table) == 0) return std::optional(table.st_ino);
  if (errno == ENOENT || errno == ESRCH || errno == EINVAL) return std::optional<ino_t>();
  return Error{errc::unavailable, std::strerror(errno)};
}

struct Process {
  fs::path path;  ///< below /proc
  result<std::optional<ino_t>> network;
  std::string pid() const { return path.filename().string(); }
};

/// Returns the processes in the order of their numbers.
std::vector<Process> processes(CephClients& found, const std::string& root) {
  std::map<int, fs::path> all;
  std::error_code failed;
  for (fs::directory_iterator entry(root + "/proc", failed), end; !failed && entry != end; entry.increment(failed))
    if (const auto pid = sysfs::number<int>(entry->path().filename().string())) all.emplace(*pid, entry->path());
  if (failed) found.unseen.push_back("the processes of this node: " + failed.message());
  std::vector<Process> listed;
  for (const auto& [pid, path] : all) listed.push_back({path, network_of(path)});
  return listed;
}

/// Whether it really is the server of that name. Any program can give itself a name, but its file has another.
result<bool> runs_server(const fs::path& process, const std::string& name) {
  std::error_code failed;
  const std::string program = fs::read_symlink(process / "exe", failed).filename().string();
  if (!failed) return program == name || program == name + " (deleted)";
  std::error_code gone;
  if (has_ended(failed)) return !fs::exists(process, gone);
  return Error{errc::unavailable, "reading " + (process / "exe").string() + ": " + failed.message()};
}

void add_programs(CephClients& found, const std::vector<Process>& processes, int own) {
  for (const auto& process : processes) {
    const std::string pid = process.pid();
    if (pid == std::to_string(own)) continue;
    const auto has = has_messenger(process.path);
    if (has && !*has) continue;
    const std::string name = sysfs::attribute(process.path / "comm").value_or("a program");
    if (std::ranges::find(kServers, name) != kServers.end()) {
      const auto server = runs_server(process.path, name);
      if (server && *server) continue;
      if (!server) {
        found.unseen.push_back("whether process " + pid + " is a " + name + ": " + server.error().text);
        continue;
      }
    }
    if (has)
      found.programs.push_back(name + ", process " + pid);
    else
      found.unseen.push_back("whether process " + pid + " has a Ceph client: " + has.error().text);
  }
}

/// Reports packet sockets. A sandbox with its own TCP, such as gVisor's, sends its guests' packets through a packet
/// socket in its pod's network namespace. Those in the host's belong to a DHCP client, or a switch.
void add_packet_sockets(CephClients& found, const fs::path& process) {
  const auto text = read_file((process / "net/packet").string(), kMostSockets);
  if (text && std::ranges::count(*text, '\n') <= 1) return;
  if (!text && text.error().code == errc::not_found) return;  // a kernel without packet sockets
  found.unseen.push_back(
      "Ceph clients with a TCP of their own, such as gVisor's, in the network namespace of process " +
      process.filename().string() + ": " + (text ? "it has a packet socket: end that pod" : text.error().text));
}

/// Reads one process of each network namespace, which is enough. A process that ends meanwhile shows no sockets, so
/// another must be read.
void add_sockets(CephClients& found, const std::vector<Process>& processes, const std::string& root) {
  const auto host = network_of(root + "/proc/1");
  std::set<ino_t> seen;
  std::map<ino_t, std::string> missed;  ///< a process of each namespace
  for (const auto& process : processes) {
    if (!process.network)
      found.unseen.push_back("the sockets of process " + process.pid() + ": " + process.network.error().text);
    if (!process.network || !*process.network || seen.contains(**process.network)) continue;
    const ino_t network = **process.network;
    CephClients here;
    add_unsent(here, process.path / "net");
    if (!host || host->value_or(network + 1) != network) add_packet_sockets(here, process.path);
    found.unsent.insert(found.unsent.end(), here.unsent.begin(), here.unsent.end());
    if (const auto still = network_of(process.path); !still || *still != network) {
      missed.emplace(network, process.pid());
      continue;
    }
    seen.insert(network);
    found.unseen.insert(found.unseen.end(), here.unseen.begin(), here.unseen.end());
  }
  for (const auto& [network, pid] : missed)
    if (!seen.contains(network))
      found.unseen.push_back("the sockets of process " + pid + ", which ended while they were read: check again");
  if (seen.empty()) found.unseen.emplace_back("the sockets of this node: /proc shows none");
}

/// Nothing: the module is built into the kernel, which does not count the users of such.
std::optional<bool> is_module_used(const std::string& root, const std::string& name) {
  const fs::path folder = root + "/sys/module/" + name;
  std::error_code failed;
  if (!fs::exists(folder, failed)) return failed ? std::nullopt : std::optional(false);
  const auto users = sysfs::attribute(folder / "refcnt");
  const auto count = users ? sysfs::number<int>(*users) : std::nullopt;
  return count ? std::optional(*count != 0) : std::nullopt;
}

/// Recognises a tunnel by the kernel's own line about it (docs/sources.md#client-traces), because its path may be any,
/// or gone. Examining the open file itself may wait for its server. Nothing: without CAP_SYS_PTRACE, links are listed
/// and not read.
std::optional<bool> is_tunnel(const fs::path& process, const fs::path& fd) {
  std::error_code failed;
  const auto file = fs::read_symlink(fd, failed);
  if (failed) return has_ended(failed) ? std::optional(false) : std::nullopt;
  if (!file.is_absolute()) return false;
  if (file == "/dev/net/tun") return true;
  const auto info = read_file(process / "fdinfo" / fd.filename(), kMostSockets);
  if (info) return info->find("\niff:\t") != info->npos;
  if (info.error().code == errc::not_found) return false;
  const bool there = !fs::read_symlink(fd, failed).empty();
  return there || !has_ended(failed) ? std::nullopt : std::optional(false);
}

/// A process that holds the kernel's end of a network device can be a machine that needs no KVM: QEMU's emulation, User
/// Mode Linux.
void add_tunnels(CephClients& found, const std::vector<Process>& processes, const std::string& root) {
  std::error_code failed;
  const auto devices = read_file(root + "/proc/misc", kMostSockets);
  const bool built_in =
      devices && devices->find(" tun\n") != std::string::npos && !fs::exists(root + "/sys/module/tun", failed);
  if (!built_in && !is_module_used(root, "tun").value_or(true)) return;
  const std::string what = "Ceph clients in a machine without KVM, which a network device of its own would serve: ";
  std::size_t unread = 0;
  std::string first_unread;
  for (const auto& process : processes) {
    const std::string name = "process " + process.pid();
    bool hidden = false;
    for (fs::directory_iterator fd(process.path / "fd", failed), end; !failed && fd != end; fd.increment(failed)) {
      const auto tunnel = is_tunnel(process.path, fd->path());
      if (tunnel.value_or(false)) found.unseen.push_back(what + name + " has /dev/net/tun open: end it");
      hidden |= !tunnel;
    }
    if (hidden || (failed && !has_ended(failed)))
      if (unread++ == 0) first_unread = name;
    failed.clear();
  }
  if (unread != 0)
    found.unseen.push_back(what + "the agent may not read what " + first_unread +
                           (unread == 1 ? "" : " and " + std::to_string(unread - 1) + " others") +
                           " have open: end what uses /dev/net/tun, and unload the module tun");
}

void add_kernel(CephClients& found, const std::string& root) {
  std::error_code failed;
  if (!fs::exists(root + "/sys/module", failed)) {
    found.unseen.emplace_back("the kernel's modules: /sys/module is not there");
    return;
  }
  // Each mount has a reference, in any namespace and however it was unmounted.
  const auto cephfs = is_module_used(root, "ceph");
  found.cephfs = cephfs.value_or(false);
  if (!cephfs)
    found.unseen.emplace_back("whether a CephFS is mounted: this kernel has it built in, and counts no users");
  // A virtual machine may reach the cluster by this node's address. On other processors KVM is no module of its own.
  const bool x86 =
      fs::exists(root + "/sys/module/kvm_intel", failed) || fs::exists(root + "/sys/module/kvm_amd", failed);
  bool machines = (!x86 && fs::exists(root + "/sys/module/kvm", failed)) ||
                  fs::exists(root + "/sys/module/vboxdrv", failed) || fs::exists(root + "/sys/hypervisor/type", failed);
  for (const char* module : {"kvm_intel", "kvm_amd"})
    machines = machines || is_module_used(root, module).value_or(true);
  if (machines)
    found.unseen.emplace_back(
        "Ceph clients in virtual machines of this node, which may have its address: stop the virtual machines, or "
        "reboot the node instead");
}

void sort_once(std::vector<std::string>& texts) {
  std::ranges::sort(texts);
  const auto repeated = std::ranges::unique(texts);
  texts.erase(repeated.begin(), repeated.end());
}

}  // namespace

// Reads processes first, then sockets: a process that ends in between is seen by the sockets it leaves. A process that
// starts meanwhile has no older client, because none survives a fork.
CephClients find_ceph_clients(const std::string& root, int own) {
  CephClients found;
  if (pid_namespace(root + "/proc") != kHostPids)
    found.unseen.emplace_back("the processes of this node: the agent is not in the host's PID namespace (hostPID)");
  const auto all = processes(found, root);
  add_programs(found, all, own);
  add_kernel(found, root);
  add_sockets(found, all, root);
  add_tunnels(found, all, root);
  sort_once(found.unsent);
  sort_once(found.unseen);
  return found;
}

}  // namespace corbd::host
