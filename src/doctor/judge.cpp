// Judges the inputs: one function per check, all pure.
#include <algorithm>
#include <charconv>

#include "corbd/device/values.hpp"
#include "corbd/host/system.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

struct Right {
  unsigned bit;  ///< number in linux/capability.h
  const char* name;
  const char* without;
};
/// The capabilities of deploy/kubernetes/base/daemonset.yaml. Nothing works without the first. Most things work without
/// any one of the others.
constexpr Right kRights[] = {
    {21, "CAP_SYS_ADMIN", "the agent can make neither nbd devices nor mounts"},
    {24, "CAP_SYS_RESOURCE", "memory pressure can block the agent on its own devices, and a mounted ext4 cannot grow"},
    {12, "CAP_NET_ADMIN",
     "a device's socket keeps the node's default send buffer, and the kernel can stop in the middle of a request"},
    {2, "CAP_DAC_READ_SEARCH",
     "a filesystem whose root folder only its application may read cannot be synced, grown or trimmed"},
    {27, "CAP_MKNOD", "encrypted volumes cannot be opened where no udev makes their device nodes"},
};

Finding kernel(const Inputs& inputs) {
  const auto version = version_of(inputs.kernel);
  const std::string said = "Linux " + inputs.kernel;
  if (version < Version{5, 4})
    return failure("kernel", said + " is older than 5.4", "run Linux 5.14 or newer on this node");
  if (version < Version{5, 14})
    return warning("kernel", said + " is older than 5.14, the first in which nbd devices carry an identifier",
                   "run Linux 5.14 or newer, unless the distribution has backported the identifier: without it a "
                   "restarted agent cannot recognize its devices");
  return ok("kernel", said);
}

Finding driver(const Inputs& inputs) {
  if (!inputs.nbd_there)
    return failure("nbd", "the kernel's nbd driver is not loaded",
                   "run `modprobe nbd nbds_max=0`, and list nbd in /etc/modules-load.d for the next boot");
  if (!inputs.nbds_max || *inputs.nbds_max == "0") return ok("nbd", "the driver is loaded");
  return warning(
      "nbd", "the driver was loaded with nbds_max=" + *inputs.nbds_max + ", so that many devices exist from the start",
      "write `options nbd nbds_max=0` into /etc/modprobe.d: then only devices in use exist, and no scanner opens "
      "unused ones");
}

/// Indexed by Module. Never a warning, because volumes that the agent serves itself do not need the rbd module.
constexpr const char* kRbdModule[] = {
    "the kernel's rbd module is loaded: volumes with mounter rbd can be staged",
    ("the kernel's rbd module is not loaded: for volumes with mounter rbd, run `modprobe rbd` and list it in "
     "/etc/modules-load.d"),
    "this kernel has no rbd module that can be seen here: volumes with mounter rbd are refused"};

Finding kernel_client(const Inputs& inputs) { return ok("rbd", kRbdModule[static_cast<std::size_t>(inputs.rbd)]); }

Finding capabilities(const Inputs& inputs) {
  const char* check = "capabilities";
  if (!inputs.capabilities)
    return warning(check, "cannot read the capabilities of this process", "look at CapEff in /proc/self/status");
  const auto has = [&](const Right& right) { return (*inputs.capabilities >> right.bit & 1) != 0; };
  std::vector<std::string> there, missing;
  for (const auto& right : kRights) {
    if (has(right))
      there.emplace_back(right.name);
    else
      missing.push_back(std::string(right.name) + " is missing: " + right.without);
  }
  if (missing.empty()) return ok(check, "all are there: " + listed(there));
  return has(kRights[0])
             ? warning(check, listed(missing, "; "), "add what is missing; in a pod, set `privileged: true`")
             : failure(check, listed(missing, "; "), "run as root; in a pod, set `privileged: true`");
}

Finding pid_namespace(const Inputs& inputs) {
  const char* check = "pid-namespace";
  const char* remedy = "set `hostPID: true` in the pod";
  if (inputs.pid_namespace == host::kHostPids) return ok(check, "this is the host's");
  if (inputs.pid_namespace.empty()) return warning(check, "cannot read the PID namespace", remedy);
  // A node that is itself a container, as kind's are, has another init.
  if (inputs.first_process == "systemd" || inputs.first_process == "init")
    return warning(
        check,
        "this is not the kernel's first, but pid 1 is " + inputs.first_process + ": the node itself may be a container",
        remedy);
  return failure(check,
                 "this is a namespace of its own: it cannot end while a helper waits for a device, so the next agent "
                 "could not start",
                 remedy);
}

Finding network_namespace(const Inputs& inputs) {
  const char* check = "network-namespace";
  const char* remedy = "set `hostNetwork: true` in the pod";
  if (version_of(inputs.kernel) >= Version{6, 4}) return ok(check, "any will do from Linux 6.4 on");
  if (!inputs.host_network)
    return warning(check, "cannot tell whether this is the host's, which nbd needs before Linux 6.4", remedy);
  if (!*inputs.host_network)
    return failure(check, "this is not the host's, and before Linux 6.4 nbd is visible only there", remedy);
  return ok(check, "this is the host's");
}

Finding propagation(const Inputs& inputs) {
  const char* check = "mount-propagation";
  if (inputs.options.standalone) return ok(check, "--standalone: there is no kubelet whose pods need it");
  for (const auto& [folder, shared] : inputs.propagation) {
    if (!shared)
      return failure(check, "no mount contains " + folder, "mount kubelet's folder into the pod, at the same path");
    if (!*shared)
      return failure(check, "mounts below " + folder + " do not reach the host: pods would see empty folders",
                     "mount kubelet's folder, and the folder that a link `pods` or `plugins` in it leads to, with "
                     "`mountPropagation: Bidirectional`; on the host, `findmnt -o TARGET,PROPAGATION` shows it");
  }
  return ok(check, "mounts below " + inputs.options.kubelet_dir + " reach the host");
}

/// The agent creates a folder that does not exist.
Finding folder(const char* check, const result<>& fits, std::string said, std::string made, std::string remedy) {
  if (fits) return ok(check, std::move(said));
  if (fits.error().code == errc::not_found) return warning(check, fits.error().text, std::move(made));
  return failure(check, fits.error().text, std::move(remedy));
}

Finding runtime_folder(const Inputs& inputs) {
  return folder("runtime-dir", inputs.runtime_dir, "it is on tmpfs",
                "the agent makes it when it starts; its parent must be on tmpfs",
                "set --runtime-dir to a folder below /run");
}

Finding state_folder(const Inputs& inputs) {
  return folder("state-dir", inputs.state_dir_writable, inputs.options.state_dir + " is writable",
                "the agent makes it when it starts",
                "free space on that disk, remount it, or set another --state-dir: until then no volume can be staged "
                "or unstaged");
}

Finding core_dumps(const Inputs& inputs) {
  if (!inputs.dumps_core) return ok("core-dumps", "no agent is running here");
  if (!*inputs.dumps_core) return ok("core-dumps", "the agent leaves none");
  return warning(
      "core-dumps",
      "the agent leaves a core dump when it crashes; the dump contains the Ceph keys and passphrases of its volumes",
      "when the defect is found, restart the agent without --allow-core-dumps and remove the dumps");
}

Finding config(const Inputs& inputs) {
  const char* check = "config.json";
  const std::string remedy =
      inputs.options.ceph_conf.empty()
          ? "correct ceph-csi's ConfigMap ceph-csi-config: it is a list of {\"clusterID\", \"monitors\"}"
          : "write what `ceph config generate-minimal-conf` prints into " + inputs.options.ceph_conf +
                ", or ceph-csi's config.json into --config-dir";
  if (!inputs.clusters) return failure(check, inputs.clusters.error().text, remedy);
  if (inputs.clusters->empty()) return failure(check, "it lists no cluster", remedy);
  for (const auto& cluster : *inputs.clusters)
    if (cluster.monitors.empty())
      return failure(check, "cluster \"" + cluster.cluster_id + "\" has no monitors", remedy);
  return ok(check, std::to_string(inputs.clusters->size()) + " cluster(s)");
}

/// Most nodes have no mounters.json, and need none.
void mounters(const Inputs& inputs, std::vector<Finding>& into) {
  const char* check = "mounters.json";
  if (!inputs.mounters)
    into.push_back(failure(check, inputs.mounters.error().text,
                           "correct it beside config.json: until then no volume can be staged that is not staged yet"));
  else if (!inputs.mounters->empty())
    into.push_back(ok(check, std::to_string(inputs.mounters->size()) + " rule(s) choose the client of a volume"));
}

void monitors(const Inputs& inputs, std::vector<Finding>& into) {
  if (!inputs.clusters) return;
  for (const auto& cluster : *inputs.clusters) {
    std::vector<std::string> silent;
    std::size_t all = 0;
    for (const auto& monitor : inputs.monitors) {
      if (monitor.cluster_id != cluster.cluster_id) continue;
      ++all;
      if (!monitor.answers) silent.push_back(monitor.text);
    }
    const std::string check = "monitors of " + cluster.cluster_id;
    const char* remedy =
        "check the addresses in config.json, the monitors (`ceph mon stat`), and the network and firewalls in between";
    if (all == 0) continue;
    if (silent.empty())
      into.push_back(ok(check, "all " + std::to_string(all) + " accept connections"));
    else if (silent.size() < all)
      into.push_back(warning(check, "no connection to " + listed(silent), remedy));
    else
      into.push_back(failure(check, "no connection to any: " + listed(silent), remedy));
  }
}

Finding admin(const Inputs& inputs) {
  if (inputs.admin) return ok("agent", "it answers on " + inputs.options.admin_endpoint);
  return warning("agent", inputs.admin.error().text, "start the agent, or see its log; devices wait until it answers");
}

void devices(const Inputs& inputs, std::vector<Finding>& into) {
  const bool agent = inputs.admin || inputs.csi;
  std::size_t served = 0;
  for (const auto& device : inputs.devices) {
    const std::string path = "/dev/nbd" + std::to_string(device.index);
    const std::string waits = device.waiting == 0 ? "" : "; " + std::to_string(device.waiting) + " requests wait";
    const bool ours = inputs.records.volumes.contains(device.backend);
    for (const auto& group : device.volume_groups)
      into.push_back(warning(
          "lvm " + path, "the host's LVM has the volume group " + group + " active on it, and it cannot be removed",
          "run `vgchange -an " + group + "` on the host, and set a global_filter: docs/devices.md#lvm"));
    if (ours && device.read_only && !inputs.records.read_only.contains(device.backend))
      into.push_back(warning(path, "it is read-only, and its volume " + device.backend + " is writable",
                             "run `blockdev --setrw " + path + "`"));
    if (device.backend.empty() && !device.maker_lives)
      into.push_back(warning(
          path, "the process that connected it is gone, and it has no identifier: it is probably unserved" + waits,
          "if nothing uses it, run `nbd-client -d " + path + "`"));
    else if (!device.backend.empty() && !ours)
      into.push_back(warning(
          path, "no record here names its volume " + device.backend + waits,
          "look for another agent's --state-dir; if there is none and nothing uses the device, run `nbd-client -d " +
              path + "`"));
    else if (ours && !agent)
      into.push_back(warning(path, "volume " + device.backend + " waits for its agent" + waits,
                             "start the agent, which serves it again"));
    else
      ++served;
  }
  if (inputs.lvm) into.push_back(judge_lvm(inputs));
  if (!inputs.read_only_numbers.empty())
    into.push_back(ok("read-only-numbers", paths_of(inputs.read_only_numbers) +
                                               ": free, and an earlier user left them read-only. corbd makes such a "
                                               "number writable when it takes it"));
  into.push_back(judge_rbd_nbd(inputs));
  into.push_back(
      ok("devices", std::to_string(served) + " of " + std::to_string(inputs.devices.size()) + " have a server"));
}

}  // namespace

std::optional<bool> dumps_core(std::string_view limits) {
  constexpr std::string_view name = "Max core file size";
  const auto at = limits.find(name);
  if (at == limits.npos) return std::nullopt;
  const auto soft = limits.find_first_not_of(' ', at + name.size());
  return soft != limits.npos && limits.substr(soft, limits.find(' ', soft) - soft) != "0";
}

Version version_of(std::string_view release) {
  Version parts{};
  const char* at = release.data();
  const char* const end = at + release.size();
  for (auto& part : parts) {
    const auto read = std::from_chars(at, end, part);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != '.') break;
    at = read.ptr + 1;
  }
  return parts;
}

std::vector<Finding> judge(const Inputs& inputs) {
  std::vector<Finding> all;
  for (const auto check : {kernel, driver, kernel_client, capabilities, pid_namespace, network_namespace, propagation,
                           runtime_folder, state_folder, core_dumps, config})
    all.push_back(check(inputs));
  mounters(inputs, all);
  monitors(inputs, all);
  all.push_back(admin(inputs));
  devices(inputs, all);
  judge_node(inputs, all);
  judge_filesystems(inputs, all);
  judge_ceph(inputs, all);
  all.push_back(judge_combinations(inputs));
  all.push_back(judge_versions(inputs));
  return all;
}

}  // namespace corbd::doctor
