#include "cephcsi.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "corbd/core/process.hpp"

namespace corbd::cli {
namespace {

constexpr const char* kKeys = "/tmp/csi/keys";  // ceph-csi's DaemonSet mounts a tmpfs there
constexpr const char* kRun = "/run/corbd";
constexpr std::uint16_t kLivenessPort = 8080;

Error invalid(std::string text) { return {errc::invalid_argument, std::move(text)}; }

/// The last one counts, as in Go.
const Given* last(const std::vector<Given>& given, std::string_view name) {
  const auto place =
      std::find_if(given.rbegin(), given.rend(), [&](const Given& one) { return one.flag->name == name; });
  return place == given.rend() ? nullptr : &*place;
}

std::string text(const std::vector<Given>& given, std::string_view name, std::string fallback = {}) {
  const auto* one = last(given, name);
  return one == nullptr ? fallback : one->value;
}

/// The parser has checked the value. Every true boolean begins like this.
bool is_on(const std::vector<Given>& given, std::string_view name) {
  const std::string value = text(given, name);
  return value.starts_with('1') || value.starts_with('t') || value.starts_with('T');
}

result<Run> agent_flags(const std::vector<Given>& given, const Node& node) {
  Run run;
  run.addons_endpoint = "unix:///tmp/csi-addons.sock";
  run.metricsip = "0.0.0.0";
  run.registers = false;  // a sidecar of ceph-csi's DaemonSet registers the driver
  // A volume keeps its attributes for life. If ceph-csi came back, its healer would ignore a volume that was served
  // over NBD by mistake.
  run.default_mounter = "rbd";
  for (const Flag& flag : flags()) {
    const std::string stands_in = flag.env == nullptr ? std::string() : node.variable(flag.env);
    if (stands_in.empty()) continue;
    if (auto assigned = assign(flag, stands_in, run); !assigned) return assigned.error();
  }
  for (const auto& [flag, value] : given) {
    if (auto assigned = assign(*flag, value, run); !assigned) return assigned.error();
    if (std::holds_alternative<std::monostate>(flag->field)) run.ignored.emplace_back(flag->name);
  }
  return run;
}

result<> check_name(const std::string& driver) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '.'; };
  if (!driver.empty() && driver.size() <= 63 && std::ranges::all_of(driver, fits) && driver.front() != '-' &&
      driver.front() != '.')
    return {};
  return invalid("--drivername '" + driver +
                 "' is not a name for a CSI driver: use at most 63 letters, digits, '-' and '.'");
}

/// Keys in this folder survive a restart of the container, and are gone with its pod.
result<std::string> memory_folder(const Node& node) {
  if (node.in_memory(kKeys)) return std::string(kKeys);
  if (node.in_memory(kRun) || node.in_memory("/run")) return std::string(kRun);
  return Error{errc::failed_precondition,
               std::string("neither ") + kKeys + " nor " + kRun +
                   " is on tmpfs, so Ceph keys would reach a disk: mount an emptyDir with medium Memory at " + kKeys +
                   ", as ceph-csi's DaemonSet does, or give --runtime-dir"};
}

std::string folder_above(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return std::filesystem::path(path).parent_path();
}

result<Command> agent(const std::vector<Given>& given, Run run, const Node& node) {
  if (is_on(given, "controllerserver") && !run.fencing_only)
    return Error{errc::unimplemented,
                 "--controllerserver=true: corbd replaces only ceph-csi's node plugin, and of its controller the "
                 "fencing, with --fencing-only. Keep ceph-csi's image in the provisioner's Deployment"};
  if (!is_on(given, "nodeserver") && !run.fencing_only)
    return invalid("--type=rbd has nothing to serve: add --nodeserver=true");
  if (run.nodeid.empty()) return invalid("--nodeid is missing: give the name of this node");
  if (auto named = check_name(run.drivername); !named) return named.error();
  // This folder contains kubelet's plugins, wherever the distribution puts it.
  if (last(given, "kubelet-dir") == nullptr) run.kubelet_dir = folder_above(run.pluginpath);
  if (last(given, "runtime-dir") == nullptr && node.variable("CORBD_RUNTIME_DIR").empty()) {
    auto found = memory_folder(node);
    if (!found) return found.error();
    run.runtime_dir = std::move(*found);
  }
  complete(run);
  return Command(std::move(run));
}

result<Command> liveness(const std::vector<Given>& given, const Run& run) {
  Liveness watch;
  watch.endpoint = run.endpoint;
  watch.address = run.metricsip;
  watch.port = last(given, "metricsport") == nullptr ? kLivenessPort : run.metricsport;
  watch.path = run.metricspath;
  // The parser has checked these values.
  watch.poll = parse_go_duration(text(given, "polltime", "60s")).value();
  watch.timeout = parse_go_duration(text(given, "timeout", "3s")).value();
  if (watch.poll <= std::chrono::milliseconds::zero()) return invalid("--polltime must be longer than 0");
  if (watch.timeout <= std::chrono::milliseconds::zero()) return invalid("--timeout must be longer than 0");
  return Command(std::move(watch));
}

}  // namespace

result<Command> cephcsi_command(const std::vector<Given>& given, const Node& node) {
  auto run = agent_flags(given, node);
  if (!run) return run.error();
  if (!run->metricspath.starts_with('/'))
    return invalid("--metricspath '" + run->metricspath + "' does not begin with /");
  if (std::ranges::find(kMounters, run->default_mounter) == kMounters.end())
    return invalid("--default-mounter '" + run->default_mounter +
                   "' is not known: use rbd (the kernel client) or rbd-nbd (this agent)");
  if (std::ranges::find(kVolumeMetrics, run->volume_metrics) == kVolumeMetrics.end())
    return invalid("--volume-metrics '" + run->volume_metrics + "' is not known: use none, counters or latency");
  const std::string type = text(given, "type");
  if (type == "rbd") return agent(given, std::move(*run), node);
  if (type == "liveness") return liveness(given, *run);
  constexpr std::array<std::string_view, 6> types{"rbd", "liveness", "cephfs", "nfs", "nvmeof", "controller"};
  if (type.empty()) return invalid("--type is missing: use rbd or liveness");
  if (std::ranges::find(types, type) != types.end())
    return Error{
        errc::unimplemented,
        "--type=" + type + ": corbd replaces ceph-csi only for rbd on nodes. Keep ceph-csi's image in that pod"};
  const std::string near = nearest(type, types);
  return invalid("--type=" + type + " is not known" +
                 (near.empty() ? ": use rbd or liveness" : ": did you mean " + near + "?"));
}

Command parse_cephcsi(std::span<const std::string> arguments, const std::string& version) {
  const auto refuse = [](const Error& error) {
    std::cerr << "cephcsi: " << error.text << "\n";
    return Exit{error.code == errc::invalid_argument ? 2 : 1};
  };
  if (std::ranges::any_of(arguments,
                          [](const auto& word) { return word == "-h" || word == "-help" || word == "--help"; })) {
    std::cout << version << ", in place of ceph-csi's node plugin for rbd. Flags:\n";
    for (const Flag& flag : flags())
      std::cout << "  --" << flag.name << (*flag.help == '\0' ? "" : "\t") << flag.help << "\n";
    return Exit{0};
  }
  const auto given = parse_go(arguments);
  if (!given) return refuse(given.error());
  if (is_on(*given, "version")) {
    std::cout << "Cephcsi Version: " << version << "\n";
    return Exit{0};
  }
  Node node;
  node.variable = environment;
  node.in_memory = [](const std::string& folder) { return check_tmpfs(folder).has_value(); };
  auto command = cephcsi_command(*given, node);
  if (!command) return refuse(command.error());
  if (node.variable("POD_IP").empty() && std::holds_alternative<Liveness>(*command))
    std::cerr << "cephcsi: POD_IP is not set: serving on every address\n";
  return std::move(*command);
}

}  // namespace corbd::cli
