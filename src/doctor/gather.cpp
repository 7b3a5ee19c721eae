// Reads the facts. Nothing here opens a device (a helper of filesystems.cpp does), or changes anything except a file of
// its own.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/host/mountinfo.hpp"
#include "corbd/host/system.hpp"
#include "corbd/host/tools.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "corbd/mounting/mounting.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "corbd/rbd/ceph_conf.hpp"
#include "corbd/rbd/version.hpp"
#include "corbd/rpc/calls.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxText = 16 << 20;

/// Looks for a module. It can be loaded if depmod(8) knows it. `sign`: a path that exists while it is loaded.
Module module_of(const std::string& root, const std::string& kernel, const char* sign, const char* file) {
  std::error_code ignored;
  if (fs::exists(root + sign, ignored)) return Module::present;
  const auto known = read_file(root + "/lib/modules/" + kernel + "/modules.dep", kMaxText);
  return known && known->find(file) != std::string::npos ? Module::loadable : Module::absent;
}

result<> check_writable(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return Error{errc::not_found, folder + " does not exist yet"};
  const std::string path = folder + "/.doctor-" + std::to_string(::getpid());
  const auto written = try_writing(path);
  fs::remove(path, ignored);
  return written;
}

result<> on_tmpfs(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) return Error{errc::not_found, folder + " does not exist yet"};
  return check_tmpfs(folder);
}

/// Reads only the letters that show the type: the key itself must not be read here.
KeyType type_of_key(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<char, 4> letters{};
  if (!fd || ::read(fd.get(), letters.data(), letters.size()) != static_cast<ssize_t>(letters.size()))
    return KeyType::unknown;
  return cephcsi::key_type({letters.data(), letters.size()});
}

std::string text_of(const json::object& record, const char* field) {
  const auto* value = record.if_contains(field);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool is_set(const json::object& record, const char* field) {
  const auto* value = record.if_contains(field);
  return value != nullptr && value->is_bool() && value->get_bool();
}

/// Returns the type of each volume's key here.
std::vector<KeySeen> keys_of(const Records& records, const std::string& runtime_dir) {
  std::vector<KeySeen> keys;
  for (const auto& id : records.volumes) {
    const auto type = type_of_key(runtime_dir + "/keys/" + sha256_hex(id));
    if (type != KeyType::unknown) keys.push_back({id, type, records.by_kernel.contains(id)});
  }
  return keys;
}

/// Reads a file of the agent's process in /proc. The lock file of a state directory names its holder. A process that
/// has ended may have left its name.
std::optional<std::string> read_of_agent(const std::string& state_dir, const char* file) {
  const auto pid = sysfs::attribute(state_dir + "/lock");
  if (!pid || pid->empty()) return std::nullopt;
  const auto name = sysfs::attribute("/proc/" + *pid + "/comm");
  auto text = read_file("/proc/" + *pid + "/" + file, kMaxText);
  if (!text || !name || (*name != "corbd" && *name != "cephcsi")) return std::nullopt;
  return std::move(*text);
}

std::vector<std::string> mounted_devices() {
  std::vector<std::string> names;
  const auto mounts = host::read_mountinfo("/proc/self/mountinfo");
  if (!mounts) return names;
  for (const auto& mount : *mounts)
    if (auto name = host::device_of(mount); !name.empty()) names.push_back(std::move(name));
  return names;
}

std::vector<FilesystemSeen> staged_filesystems(Inputs& inputs) {
  std::vector<device::Seen> devices;
  if (auto served = nbd::read_inventory("/sys")) devices = std::move(*served);
  if (const auto mapped = krbd::read_inventory("/sys"))
    for (const auto& one : *mapped) devices.push_back(one.seen);
  find_integrity(inputs.records, devices);
  auto found = find_filesystems(inputs.records, devices, mounted_devices());
  if (const auto volumes = ask_volumes(inputs.options.admin_endpoint)) read_filesystems(found, *volumes);
  return found;
}

/// Looks at the mkfs options of the agent. Reading the command line of a process may wait for its memory, but not that
/// of an agent that answers.
void see_mkfs(Inputs& inputs) {
  const auto command_line = inputs.admin ? read_of_agent(inputs.options.state_dir, "cmdline") : std::nullopt;
  const auto options = host::options_by_type(command_line ? flag_of(*command_line, "mkfs-options") : "");
  if (!options) inputs.wrong_mkfs_options = options.error().text;
  inputs.new_filesystems = try_mkfs(options ? *options : std::map<std::string, std::string>());
}

/// failed_precondition: the host has no system bus, so nothing would announce a shutdown.
result<> see_system_bus() {
  constexpr std::chrono::milliseconds within{2000};
  const auto stopping = host::system_stopping(within);
  if (stopping) return {};
  if (auto other = host::other_init()) return Error{errc::failed_precondition, std::move(*other)};
  return stopping.error();
}

/// Compares our network namespace with pid 1's. Pid 1 is the host's only in the host's PID namespace; elsewhere we
/// might compare with ourselves. A file below net/ has another inode number in each network namespace. Unlike the link
/// ns/net it is visible without CAP_SYS_PTRACE, which the agent's pod lacks.
std::optional<bool> in_host_network() {
  struct stat ours{}, first{};
  if (host::pid_namespace() != host::kHostPids || ::stat("/proc/self/net/dev", &ours) != 0 ||
      ::stat("/proc/1/net/dev", &first) != 0)
    return std::nullopt;
  return ours.st_ino == first.st_ino;
}

/// Reads /sys.
std::vector<NbdDevice> nbd_devices() {
  std::vector<NbdDevice> all;
  const auto seen = nbd::read_inventory("/sys");
  if (!seen) return all;
  for (const auto& device : *seen) {
    const int maker = sysfs::number<int>(nbd::read_pid("/sys", device.index)).value_or(0);
    all.push_back({device.index, device.backend, maker > 0 && (::kill(maker, 0) == 0 || errno == EPERM), device.waiting,
                   device.read_only});
    for (const auto& holder : device.holders)
      if (holder.maker == device::Maker::lvm) all.back().volume_groups.push_back(device::volume_group(holder.mapping));
  }
  return all;
}

/// Reads the host's files, also from a pod that sees the host's processes.
std::string hosts_root() { return host::pid_namespace() == host::kHostPids ? "/proc/1/root" : ""; }

std::optional<LvmView> see_lvm() {
  const std::string folder = hosts_root() + "/etc/lvm";
  std::string text;
  for (const char* name : {"/lvm.conf", "/lvmlocal.conf"})
    if (const auto read = read_file(folder + name, kMaxText)) text += *read + "\n";
  if (text.empty()) return std::nullopt;
  const auto devices = read_file(folder + "/devices/system.devices", kMaxText);
  return view_of_lvm(text, devices ? std::optional(*devices) : std::nullopt);
}

/// Looks for rbd-nbd, and whether the agent counts on its absence.
void see_rbd_nbd(Inputs& inputs) {
  const auto command_line = inputs.admin ? read_of_agent(inputs.options.state_dir, "cmdline") : std::nullopt;
  inputs.no_rbd_nbd = command_line && is_on(*command_line, "no-rbd-nbd");
  inputs.zeroing_numbers = nbd::zeroing_numbers("/sys");
  inputs.rbd_nbd = signs_of_rbd_nbd(hosts_root(), "/proc", command_line.value_or(""));
}

/// Adds the volume of a record's file.
result<> read_record(const std::string& path, Records& into) {
  const auto text = read_file(path, kMaxText);
  if (!text && text.error().code == errc::not_found) return {};
  if (!text) return text.error();
  boost::system::error_code bad;
  const auto parsed = json::parse(*text, bad);
  const auto* record = !bad && parsed.is_object() ? parsed.get_object().if_contains("record") : nullptr;
  if (record == nullptr || !record->is_object()) return Error{errc::state_corrupt, path + " is no record"};
  const auto id = text_of(record->get_object(), "volume_id");
  if (id.empty())
    return Error{errc::state_corrupt, "a record in " + fs::path(path).parent_path().string() + " names no volume"};
  // Somebody's copy. The agent goes by no such file either.
  if (fs::path(path).stem() != sha256_hex(id)) return {};
  into.volumes.insert(id);
  if (const auto known = plan::decode(*text)) into.combinations[id] = plan::combination_of(*known);
  if (text_of(record->get_object(), "kind") == "krbd") into.by_kernel.insert(id);
  if (is_set(record->get_object(), "read_only") || is_set(record->get_object(), "damaged")) into.read_only.insert(id);
  if (is_set(record->get_object(), "block")) into.blocks.insert(id);
  const auto* number = record->get_object().if_contains("device");
  boost::system::error_code no_number;
  if (number != nullptr)
    if (const auto value = number->to_number<std::uint32_t>(no_number); !no_number) into.numbers[id] = value;
  return {};
}

}  // namespace

Records read_records(const std::string& state_dir) {
  Records records;
  const std::string folder = state_dir + "/volumes";
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().extension() == ".json")
      if (const auto read = read_record(at->path(), records); !read) records.complete = read.error();
  if (failed && failed != std::errc::no_such_file_or_directory)
    records.complete = Error{errc::unavailable, "reading " + folder + ": " + failed.message()};
  return records;
}

namespace {

result<cephcsi::MounterRules> read_mounter_rules(const std::string& config_dir) {
  const auto text = read_file(config_dir + "/mounters.json", kMaxText);
  if (!text && text.error().code == errc::not_found) return cephcsi::MounterRules();
  if (!text) return text.error();
  return cephcsi::parse_mounter_rules(*text);
}

}  // namespace

Readings read_node(const Options& options, const std::string& root) {
  const std::string kernel = kernel_release();
  return {options,
          kernel,
          nbd::driver_present(root + "/sys"),
          module_of(root, kernel, "/sys/bus/rbd", "/rbd.ko"),
          read_records(root + options.state_dir),
          rbd::read_clusters(options.config_dir, options.ceph_conf),
          read_mounter_rules(options.config_dir)};
}

Inputs gather(const Options& options, const v1::Program& own) {
  Inputs inputs;
  inputs.own = own;
  static_cast<Readings&>(inputs) = read_node(options, "");
  inputs.nbds_max = sysfs::attribute("/sys/module/nbd/parameters/nbds_max");
  inputs.dm_crypt = module_of("", inputs.kernel, "/sys/module/dm_crypt", "/dm-crypt.ko");
  inputs.kms = kms::check_folder(options.kms_config_dir);
  inputs.capabilities = host::capabilities_of("/proc/self");
  inputs.pid_namespace = host::pid_namespace();
  inputs.first_process = sysfs::attribute("/proc/1/comm").value_or("");
  inputs.host_network = in_host_network();
  // ceph-csi's DaemonSet mounts these two folders, and not their parent.
  // Either may be a link, to a folder that needs a mount of its own.
  for (const std::string& folder : {options.kubelet_dir + "/pods", options.kubelet_dir + "/plugins"}) {
    if (options.standalone) break;
    std::error_code unknown;
    const auto real = fs::weakly_canonical(folder, unknown);
    const std::string named = unknown ? folder : real.string();
    inputs.propagation.emplace_back(named, host::propagates("/proc/self/mountinfo", named));
  }
  inputs.runtime_dir = on_tmpfs(options.runtime_dir);
  inputs.state_dir_writable = check_writable(options.state_dir);
  inputs.admin = rpc::answers(options.admin_endpoint);
  inputs.csi = rpc::answers(options.endpoint);
  if (inputs.clusters)
    for (const auto& cluster : *inputs.clusters)
      for (const auto& monitor : cluster.monitors) inputs.monitors.push_back({cluster.cluster_id, monitor, false});
  ask_monitors(inputs.monitors);
  inputs.devices = nbd_devices();
  inputs.read_only_numbers = nbd::read_only_numbers("/sys");
  inputs.lvm = see_lvm();
  see_rbd_nbd(inputs);
  inputs.keys = keys_of(inputs.records, options.runtime_dir);
  // Unreadable rules have a finding of their own.
  auto keyrings =
      read_keyrings(mounting::kMountsDir, "/etc/ceph",
                    {options.default_mounter, inputs.mounters ? *inputs.mounters : cephcsi::MounterRules()});
  std::ranges::move(keyrings.keys, std::back_inserter(inputs.keys));
  inputs.wrong_mounts = std::move(keyrings.wrong);
  for (const auto& tool : host::filesystem_tools())
    inputs.tools.push_back({tool.name, tool.package, !host::find_program(tool.name).empty()});
  inputs.system_bus = see_system_bus();
  inputs.api_rights = api_rights(options.driver);
  if (inputs.admin) inputs.status = ask_status(options.admin_endpoint);
  inputs.ceph_release = rbd::ceph_release();
  inputs.ceph_libraries = rbd::library_versions();
  if (const auto conf = read_file("/etc/ceph/ceph.conf", kMaxText))
    inputs.split_reads = rbd::client_option(*conf, "osd_min_split_replica_read_size");
  if (const auto limits = read_of_agent(options.state_dir, "limits")) inputs.dumps_core = dumps_core(*limits);
  if (inputs.admin) inputs.filesystems = staged_filesystems(inputs);
  see_mkfs(inputs);
  return inputs;
}

}  // namespace corbd::doctor
