// Reads the node's view of its staged volumes. Nothing here can wait for a device: no file is opened through a mount of
// one, no device is opened, and reads that may wait for a process have a limit.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "corbd/core/fd.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/process.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/host/mountinfo.hpp"
#include "corbd/host/system.hpp"
#include "corbd/krbd/sysfs.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/kube/volume_data.hpp"
#include "corbd/nbd/sysfs.hpp"
#include "corbd/rpc/calls.hpp"
#include "inputs.hpp"

namespace corbd::migration {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFile = 65536, kMaxText = 16 << 20;

/// Opens a path below `folder`, through neither a mount nor a link. A FIFO does not block it.
Fd open_below(int folder, const std::string& path, std::uint64_t more) {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | more;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  int error = EAGAIN;
  Fd fd;
  // EAGAIN: something was renamed meanwhile (openat2(2)).
  for (int tries = 0; tries < 16 && (error == EAGAIN || error == EINTR); ++tries) {
    fd = Fd(static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how)));
    error = fd ? 0 : errno;
  }
  errno = error;
  return fd;
}

/// `shown`: the path for errors. not_found if it does not exist.
result<std::string> read_below(int folder, const std::string& path, const std::string& shown,
                               std::optional<std::chrono::system_clock::time_point>* written = nullptr) {
  const Fd fd = open_below(folder, path, 0);
  if (!fd && errno == ENOENT) return Error{errc::not_found, shown + " does not exist"};
  if (!fd) return Error{errc::unavailable, "opening " + shown + ": " + std::strerror(errno)};
  struct stat status{};
  if (written != nullptr && ::fstat(fd.get(), &status) == 0)
    *written = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
               std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  std::string text(kMaxFile + 1, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got)) {
    got = ::read(fd.get(), text.data() + size, text.size() - size);
    if (got < 0) return Error{errc::unavailable, "reading " + shown + ": " + std::strerror(errno)};
  }
  if (size > kMaxFile) return Error{errc::state_corrupt, shown + " is too long"};
  text.resize(size);
  return text;
}

/// Returns no names if the folder does not exist. Any other failure goes into `read`.
std::vector<std::string> names_below(int folder, const std::string& path, result<>& read) {
  std::vector<std::string> names;
  const auto fail = [&] {
    if (read) read = Error{errc::unavailable, "reading the folder " + path + " of kubelet: " + std::strerror(errno)};
  };
  Fd fd = open_below(folder, path, O_DIRECTORY);
  if (!fd && errno == ENOENT) return names;
  DIR* const entries = fd ? ::fdopendir(fd.get()) : nullptr;
  if (entries == nullptr) {
    fail();
    return names;
  }
  (void)fd.release();
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    if (const std::string name = entry->d_name; name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) fail();
  ::closedir(entries);
  std::ranges::sort(names);
  return names;
}

kube::VolumeData read_volume_data(int folder, const std::string& path, result<>& read) {
  const auto text = read_below(folder, path, path);
  if (!text && text.error().code != errc::not_found && read) read = text.error();
  return kube::parse_volume_data(text ? *text : "");
}

/// kubelet's folder, and the mounts of this node.
struct Host {
  std::string root;         ///< the host's root folder, as seen here
  std::string kubelet_dir;  ///< path on the host
  std::vector<host::Mount> mounts;

  Fd folder(const std::string& below) const {
    return Fd(::open((root + kubelet_dir + below).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
};

constexpr const char* kPlugins = "/plugins/kubernetes.io/csi";

/// Returns the block device below a device-mapper device, if that has only one.
std::string below_mapping(const std::string& sys, const std::string& name) {
  if (!name.starts_with("dm-")) return name;
  const auto below = sysfs::names_in(sys + "/block/" + name + "/slaves");
  return below.size() == 1 ? below.front() : "";
}

/// Returns a device of nbd or of the kernel's client; empty: another kind, or unknown.
std::string mounted_device(const std::string& sys, const host::Mount& mount) {
  const std::string name = below_mapping(sys, host::device_of(mount, sys));
  return name.starts_with("nbd") || name.starts_with("rbd") ? name : "";
}

void read_stash_of(int folder, const std::string& below, StagedAt& into) {
  const std::string path = cephcsi::stash_file(into.path);
  const auto text = read_below(folder, cephcsi::stash_file(below), path, &into.stashed);
  if (!text && text.error().code == errc::not_found) return;
  if (!text) {
    into.stash = text.error();
    return;
  }
  if (auto read = cephcsi::parse_stash(*text))
    into.stash = std::optional(std::move(*read));
  else
    into.stash = with_context(path, read.error());
  into.stash_version = cephcsi::stash_version(*text);
}

/// Finds the volume's mount. ceph-csi, and this agent, mount a volume at <staging path>/<volume ID>.
void read_mount_of(const Host& host, StagedAt& into) {
  const std::string begins = into.path + "/";
  for (const auto& mount : host.mounts) {
    if (!mount.target.starts_with(begins) || mount.target.find('/', begins.size()) != std::string::npos) continue;
    if (into.volume_id.empty()) into.volume_id = mount.target.substr(begins.size());
    if (mount.target.substr(begins.size()) != into.volume_id) continue;
    into.mounted = true;
    // The later line is on top.
    into.device = mounted_device(host.root + "/sys", mount);
  }
}

/// Maps volume IDs to PersistentVolumes, by the folders of pods.
std::map<std::string, std::string> volumes_of_pods(const Host& host, const std::string& driver) {
  std::map<std::string, std::string> names;
  const Fd pods = host.folder("/pods");
  if (!pods) return names;
  // A pod may end meanwhile. Without its file, the VolumeAttachment has the name.
  result<> ignored;
  for (const auto& pod : names_below(pods.get(), ".", ignored)) {
    const std::string volumes = pod + "/volumes/kubernetes.io~csi";
    for (const auto& volume : names_below(pods.get(), volumes, ignored)) {
      const auto data = read_volume_data(pods.get(), fs::path(volumes) / volume / "vol_data.json", ignored);
      if (data.driver == driver && !data.persistent_volume.empty()) names[data.handle] = data.persistent_volume;
    }
  }
  return names;
}

/// Finds drivers of that kind: the folder of their staged filesystems, or of their socket.
void find_other_drivers(const Host& host, const std::string& driver, std::vector<std::string>& into) {
  std::set<std::string> names;
  for (const char* below : {"/plugins", kPlugins}) {
    const Fd folder = host.folder(below);
    result<> ignored;
    if (!folder) continue;
    const auto found = names_below(folder.get(), ".", ignored);
    names.insert(found.begin(), found.end());
  }
  if (names.contains(driver)) return;
  for (const auto& name : names)
    if (name.ends_with("rbd.csi.ceph.com")) into.push_back(name);
}

/// Opens kubelet's folder `plugins`, which it makes when it starts. The folder below it comes with the first volume.
Fd open_plugins(const Host& host, result<>& read) {
  const auto fail = [&](const std::string& below) {
    read = Error{errc::unavailable, "opening " + host.root + host.kubelet_dir + below + ": " + std::strerror(errno)};
  };
  if (!host.folder("/plugins")) fail("/plugins");
  if (!read) return {};
  Fd folder = host.folder(kPlugins);
  if (!folder && errno != ENOENT) fail(kPlugins);
  return folder;
}

std::vector<StagedAt> staged_volumes(const Host& host, const std::string& driver, result<>& read) {
  std::vector<StagedAt> all;
  const Fd folder = open_plugins(host, read);
  if (!folder) return all;
  const auto pods = volumes_of_pods(host, driver);
  const auto add = [&](const std::string& data_in, const std::string& below, std::string persistent_volume) {
    const auto data = read_volume_data(folder.get(), data_in + "/vol_data.json", read);
    const bool of_any_driver = below.starts_with("pv/");
    if (data.driver != driver && (of_any_driver || !data.driver.empty())) return;
    StagedAt made;
    made.volume_id = data.handle;
    made.path = host.kubelet_dir + kPlugins + "/" + below;
    made.block = below.starts_with("volumeDevices/");
    made.persistent_volume = std::move(persistent_volume);
    if (const auto known = pods.find(data.handle); known != pods.end() && made.persistent_volume.empty())
      made.persistent_volume = known->second;
    read_stash_of(folder.get(), below, made);
    read_mount_of(host, made);
    const bool empty = made.stash && !*made.stash && !made.mounted;
    if (!made.volume_id.empty() || !empty) all.push_back(std::move(made));
  };
  for (const auto& name : names_below(folder.get(), driver, read)) {
    const std::string in = fs::path(driver) / name;
    add(in, in + "/globalmount", "");
  }
  // Kubelets before 1.24 have this folder.
  for (const auto& name : names_below(folder.get(), "pv", read)) add("pv/" + name, "pv/" + name + "/globalmount", name);
  for (const auto& name : names_below(folder.get(), "volumeDevices/staging", read))
    add("volumeDevices/" + name + "/data", "volumeDevices/staging/" + name, name);
  return all;
}

/// Returns only the names: a value may contain a password.
std::vector<std::string> proxies_of(const std::string& process) {
  constexpr std::size_t longest = 1 << 20;
  std::vector<std::string> found;
  auto text = read_file(process + "/environ", longest);
  if (!text) return found;
  for (const char* name : {"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"}) {
    const std::string start = std::string(name) + "=";
    for (std::size_t at = 0; at < text->size(); at = std::min(text->find('\0', at), text->size()) + 1)
      if (text->compare(at, start.size(), start) == 0 && text->c_str()[at + start.size()] != '\0')
        found.push_back(name);
  }
  wipe(*text);
  return found;
}

/// Reads the first node plugin of ceph-csi that runs here.
std::vector<std::string> ceph_csi_proxies(const std::string& proc) {
  for (const auto& name : sysfs::names_in(proc)) {
    const bool is_number = std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_number && doctor::is_ceph_csi(proc + "/" + name)) return proxies_of(proc + "/" + name);
  }
  return {};
}

/// With --root, the caller provides the host's /proc.
result<> in_host_pids(const std::string& root) {
  if (!root.empty() || host::pid_namespace() == host::kHostPids) return {};
  return Error{errc::failed_precondition,
               "this is not the host's PID namespace, so which rbd-nbd serves a device is not known"};
}

}  // namespace

ForecastInputs gather(const Options& options) {
  ForecastInputs inputs;
  const std::string sys = options.root + "/sys";
  // With hostPID, and from another root folder, our mounts are not the host's.
  const auto mounts =
      host::read_mountinfo(options.root + (options.root.empty() ? "/proc/self" : "/proc/1") + "/mountinfo");
  const Host host{options.root, options.kubelet_dir, mounts ? *mounts : std::vector<host::Mount>()};
  static_cast<doctor::Readings&>(inputs) = doctor::read_node(options, options.root);
  inputs.agent = rpc::answers(options.admin_endpoint).has_value();
  if (inputs.agent) inputs.volumes = doctor::ask_volumes(options.admin_endpoint);
  if (!mounts) inputs.mounts = mounts.error();
  if (auto devices = nbd::read_inventory(sys))
    for (auto& seen : *devices) {
      const auto cache = sysfs::attribute(sys + "/block/" + device::name(seen.kind, seen.index) + "/queue/write_cache");
      inputs.nbd.push_back({.seen = std::move(seen), .sends_flushes = cache == "write back"});
    }
  inputs.zeroing_numbers = nbd::zeroing_numbers(sys);
  if (auto devices = krbd::read_inventory(sys)) inputs.krbd = std::move(*devices);
  inputs.daemons = find_daemons(options.root, inputs.nbd);
  if (auto seen = in_host_pids(options.root); !seen) inputs.daemons = seen.error();
  inputs.staged = staged_volumes(host, options.driver, inputs.kubelet);
  find_other_drivers(host, options.driver, inputs.other_drivers);
  inputs.mappings = rbd::read_cluster_mapping(options.config_dir);
  inputs.kms_config = read_file(options.kms_config_dir + "/config.json", kMaxText);
  inputs.proxies = ceph_csi_proxies(options.root + "/proc");
  ask_api_server(inputs, kube::find_access(environment("KUBERNETES_CONFIG_PATH"), environment), options.node);
  return inputs;
}

}  // namespace corbd::migration
