// What the facts mean: one function per check, all pure.
#include <algorithm>
#include <charconv>

#include "doctor.hpp"

namespace corbd::cli {
namespace {

struct Right {
  unsigned bit;  ///< linux/capability.h
  const char* name;
  const char* without;
};
/// The capabilities of deploy/kubernetes/base/daemonset.yaml. Nothing works without the first. Most things work without
/// any one of the others.
constexpr Right kRights[] = {
    {21, "CAP_SYS_ADMIN", "neither nbd devices nor mounts can be made"},
    {24, "CAP_SYS_RESOURCE", "memory pressure can block the agent on its own devices, and ext4 does not grow in use"},
    {12, "CAP_NET_ADMIN",
     "a device's socket has the node's own send buffer, and the kernel can stop in the middle of a request"},
    {2, "CAP_DAC_READ_SEARCH", "a root folder that belongs to its application alone is not synced, grown or trimmed"},
    {27, "CAP_MKNOD", "encrypted volumes are not opened where no udev makes their nodes"},
};

Finding ok(std::string check, std::string said) { return {std::move(check), Grade::ok, std::move(said), {}}; }
Finding warning(std::string check, std::string said, std::string way_out) {
  return {std::move(check), Grade::warning, std::move(said), std::move(way_out)};
}
Finding failure(std::string check, std::string said, std::string way_out) {
  return {std::move(check), Grade::failure, std::move(said), std::move(way_out)};
}

Finding kernel(const Inputs& inputs) {
  const auto version = kernel_version(inputs.kernel);
  const std::string said = "Linux " + inputs.kernel;
  if (version < std::pair(5u, 4u))
    return failure("kernel", said + " is older than 5.4", "run Linux 5.14 or newer on this node");
  if (version < std::pair(5u, 14u))
    return warning("kernel", said + " is older than 5.14, from which on nbd devices carry an identifier",
                   "run Linux 5.14 or newer, unless the distribution has brought that back: without it a restarted "
                   "agent does not know its devices");
  return ok("kernel", said);
}

Finding driver(const Inputs& inputs) {
  if (!inputs.nbd_there)
    return failure("nbd", "the kernel's nbd driver is not there",
                   "run `modprobe nbd nbds_max=0`, and name it in /etc/modules-load.d for the next boot");
  if (!inputs.nbds_max || *inputs.nbds_max == "0") return ok("nbd", "the driver is there");
  return warning(
      "nbd", "the driver was loaded with nbds_max=" + *inputs.nbds_max + ": that many devices are there from the start",
      "write `options nbd nbds_max=0` into /etc/modprobe.d: then only devices in use are there, and no scanner opens "
      "the others");
}

/// This is a note, whatever it finds: volumes that the agent serves itself need none of it.
Finding kernel_client(const Inputs& inputs) {
  switch (inputs.rbd) {
    case Module::present:
      return ok("rbd", "the kernel's rbd module is there: volumes with mounter rbd can be staged");
    case Module::loadable:
      return ok("rbd",
                "the kernel's rbd module is not loaded: volumes with mounter rbd need `modprobe rbd`, and its name in "
                "/etc/modules-load.d");
    case Module::absent:
      break;
  }
  return ok("rbd", "no rbd module of this kernel is to be seen: volumes with mounter rbd are refused");
}

Finding capabilities(const Inputs& inputs) {
  const char* check = "capabilities";
  if (!inputs.capabilities)
    return warning(check, "the capabilities of this process could not be read", "look at CapEff in /proc/self/status");
  const auto has = [&](const Right& right) { return (*inputs.capabilities >> right.bit & 1) != 0; };
  std::string there, missing;
  for (const auto& right : kRights) {
    if (has(right))
      there += (there.empty() ? "" : ", ") + std::string(right.name);
    else
      missing += (missing.empty() ? "" : "; ") + std::string(right.name) + " is missing: " + right.without;
  }
  if (missing.empty()) return ok(check, there + " are there");
  return has(kRights[0]) ? warning(check, missing, "add what is missing, in a pod with `privileged: true`")
                         : failure(check, missing, "run as root, in a pod with `privileged: true`");
}

Finding pid_namespace(const Inputs& inputs) {
  const char* check = "pid-namespace";
  const char* way_out = "set `hostPID: true` in the pod";
  if (inputs.pid_namespace == kHostPids) return ok(check, "this is the host's");
  if (inputs.pid_namespace.empty()) return warning(check, "the PID namespace could not be read", way_out);
  // A node that is itself a container, as kind's are, has an init of its own.
  if (inputs.first_process == "systemd" || inputs.first_process == "init")
    return warning(
        check,
        "this is not the kernel's first, but pid 1 is " + inputs.first_process + ": the node may be a container itself",
        way_out);
  return failure(check,
                 "this is a namespace of its own: its end would wait for a helper that waits for a device, and no next "
                 "agent could start",
                 way_out);
}

Finding network_namespace(const Inputs& inputs) {
  const char* check = "network-namespace";
  const char* way_out = "set `hostNetwork: true` in the pod";
  if (kernel_version(inputs.kernel) >= std::pair(6u, 4u)) return ok(check, "from Linux 6.4 on any will do");
  if (!inputs.host_network)
    return warning(check, "whether this is the host's could not be told; nbd before Linux 6.4 needs that", way_out);
  if (!*inputs.host_network)
    return failure(check, "this is not the host's, and nbd before Linux 6.4 is seen only from there", way_out);
  return ok(check, "this is the host's");
}

Finding propagation(const Inputs& inputs) {
  const auto shared = is_shared(inputs.mountinfo, inputs.kubelet_dir);
  const char* check = "mount-propagation";
  if (!shared)
    return failure(check, "no mount holds " + inputs.kubelet_dir,
                   "mount kubelet's folder at the same path into the pod");
  if (!*shared)
    return failure(check, "mounts below " + inputs.kubelet_dir + " stay in here: pods would see empty folders",
                   "mount kubelet's folder with `mountPropagation: Bidirectional`; on the host see `findmnt -o "
                   "TARGET,PROPAGATION`");
  return ok(check, "mounts below " + inputs.kubelet_dir + " reach the host");
}

Finding folders_runtime(const Inputs& inputs) {
  if (inputs.runtime_dir) return ok("runtime-dir", "it is on tmpfs");
  const Error& error = inputs.runtime_dir.error();
  if (error.code == errc::not_found)
    return warning("runtime-dir", error.text, "the agent makes it at its start; its parent must be on tmpfs");
  return failure("runtime-dir", error.text, "give --runtime-dir a folder below /run");
}

Finding folders_state(const Inputs& inputs) {
  if (inputs.state_dir_writable) return ok("state-dir", inputs.state_dir + " can be written");
  const Error& error = inputs.state_dir_writable.error();
  if (error.code == errc::not_found) return warning("state-dir", error.text, "the agent makes it at its start");
  return failure(
      "state-dir", error.text,
      "free or remount that disk, or give another --state-dir: without it no volume can be staged or unstaged");
}

Finding core_dumps(const Inputs& inputs) {
  if (!inputs.dumps_core) return ok("core-dumps", "no agent runs that could leave one");
  if (!*inputs.dumps_core) return ok("core-dumps", "the agent leaves none");
  return warning(
      "core-dumps",
      "the agent leaves a core dump when it crashes, with the Ceph keys and passphrases of its volumes in it",
      "start it without --allow-core-dumps once the defect is found, and remove the dumps");
}

Finding config(const Inputs& inputs) {
  const char* check = "config.json";
  const char* way_out = "see ceph-csi's ConfigMap ceph-csi-config: a list of {\"clusterID\", \"monitors\"}";
  if (!inputs.clusters) return failure(check, inputs.clusters.error().text, way_out);
  if (inputs.clusters->empty()) return failure(check, "it lists no cluster", way_out);
  for (const auto& cluster : *inputs.clusters)
    if (cluster.monitors.empty())
      return failure(check, "cluster \"" + cluster.cluster_id + "\" has no monitors", way_out);
  return ok(check, std::to_string(inputs.clusters->size()) + " cluster(s)");
}

void monitors(const Inputs& inputs, std::vector<Finding>& into) {
  if (!inputs.clusters) return;
  for (const auto& cluster : *inputs.clusters) {
    std::string silent;
    std::size_t all = 0, answer = 0;
    for (const auto& monitor : inputs.monitors) {
      if (monitor.cluster_id != cluster.cluster_id) continue;
      ++all;
      if (monitor.answers)
        ++answer;
      else
        silent += (silent.empty() ? "" : ", ") + monitor.text;
    }
    const std::string check = "monitors of " + cluster.cluster_id;
    const char* way_out =
        "check the addresses in config.json, the monitors (`ceph mon stat`), and the network and firewalls between";
    if (all == 0) continue;
    if (answer == all)
      into.push_back(ok(check, "all " + std::to_string(all) + " take connections"));
    else if (answer > 0)
      into.push_back(warning(check, "no connection to " + silent, way_out));
    else
      into.push_back(failure(check, "no connection to any: " + silent, way_out));
  }
}

Finding admin(const Inputs& inputs) {
  if (inputs.admin) return ok("agent", "it answers on " + inputs.admin_endpoint);
  return warning("agent", inputs.admin.error().text, "start the agent, or see its log; devices wait for it meanwhile");
}

void devices(const Inputs& inputs, std::vector<Finding>& into) {
  const bool agent = inputs.admin || inputs.csi;
  std::size_t served = 0;
  for (const auto& device : inputs.devices) {
    const std::string path = "/dev/nbd" + std::to_string(device.index);
    const std::string waits = device.waiting == 0 ? "" : "; " + std::to_string(device.waiting) + " requests wait";
    const bool ours = inputs.recorded.contains(device.backend);
    if (device.backend.empty() && !device.maker_lives)
      into.push_back(warning(path,
                             "the process that made it is gone, and it has no identifier: nobody may serve it" + waits,
                             "if nothing uses it: `nbd-client -d " + path + "`"));
    else if (!device.backend.empty() && !ours)
      into.push_back(warning(
          path, "no record here names its volume " + device.backend + waits,
          "look for another agent's --state-dir; if there is none and nothing uses it: `nbd-client -d " + path + "`"));
    else if (ours && !agent)
      into.push_back(warning(path, "volume " + device.backend + " waits for its agent" + waits,
                             "start the agent: it serves it again"));
    else
      ++served;
  }
  into.push_back(ok("devices", std::to_string(served) + " of " + std::to_string(inputs.devices.size()) +
                                   " have somebody to serve them"));
}

}  // namespace

std::optional<bool> dumps_core(std::string_view limits) {
  constexpr std::string_view name = "Max core file size";
  const auto at = limits.find(name);
  if (at == limits.npos) return std::nullopt;
  const auto soft = limits.find_first_not_of(' ', at + name.size());
  return soft != limits.npos && limits.substr(soft, limits.find(' ', soft) - soft) != "0";
}

std::pair<unsigned, unsigned> kernel_version(std::string_view release) {
  unsigned major = 0, minor = 0;
  const char* const end = release.data() + release.size();
  const auto first = std::from_chars(release.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return {0, 0};
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc()) return {0, 0};
  return {major, minor};
}

std::vector<Finding> judge(const Inputs& inputs) {
  std::vector<Finding> all;
  for (const auto check : {kernel, driver, kernel_client, capabilities, pid_namespace, network_namespace, propagation,
                           folders_runtime, folders_state, core_dumps, config})
    all.push_back(check(inputs));
  monitors(inputs, all);
  all.push_back(admin(inputs));
  devices(inputs, all);
  return all;
}

int exit_code(const std::vector<Finding>& findings) {
  auto worst = Grade::ok;
  for (const auto& finding : findings) worst = std::max(worst, finding.verdict);
  return static_cast<int>(worst);
}

}  // namespace corbd::cli
