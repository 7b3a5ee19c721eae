#include "staged_volume.hpp"

#include <algorithm>

#include "corbd/cephcsi/handle.hpp"
#include "corbd/core/text.hpp"

namespace corbd::migration {
namespace {

template <class Device, class Fits>
const Device* only(const std::vector<Device>& devices, Fits fits) {
  const auto found = std::find_if(devices.begin(), devices.end(), fits);
  return found == devices.end() ? nullptr : &*found;
}

bool carries(const NbdUser& device, const std::string& volume_id) {
  return !volume_id.empty() && device.seen.backend == volume_id;
}

/// Finds the device: best by the mount, then by the identifier, then by ceph-csi's note.
void find_device(StagedVolume& of) {
  const auto& inputs = of.inputs;
  const auto at = [&](const std::string& path) {
    return only(inputs.nbd, [&](const NbdUser& one) { return path == device::path(one.seen); });
  };
  if (!of.at.device.empty()) {
    of.device = "/dev/" + of.at.device;
    of.nbd = at(of.device);
    return;
  }
  of.nbd = only(inputs.nbd, [&](const NbdUser& one) { return carries(one, of.at.volume_id); });
  if (of.nbd == nullptr && of.stash != nullptr && of.stash->nbd) {
    const auto* noted = at(of.stash->device);
    if (noted != nullptr && noted->seen.backend.empty()) of.nbd = noted;
  }
  if (of.nbd != nullptr) {
    of.device = device::path(of.nbd->seen);
  } else if (of.stash != nullptr && !of.stash->nbd) {
    const auto mapped = device::of_name(inputs.krbd, image_of(*of.stash));
    if (!mapped.empty()) of.device = device::path(mapped.front());
  }
}

/// Returns the agent's state of the volume; null: it has none, or was not asked.
const std::string* state_of(const StagedVolume& of) {
  const auto* volume = agent_volume(of);
  return volume == nullptr ? nullptr : &volume->state;
}

ServedBy served_by_now(const StagedVolume& of) {
  if (of.device.empty()) return ServedBy::none;
  if (of.device.starts_with("/dev/rbd")) return ServedBy::kernel;
  if (of.nbd != nullptr && !of.nbd->daemons.empty()) return ServedBy::other;
  if (of.inputs.agent && (of.inputs.records.volumes.contains(of.at.volume_id) || state_of(of) != nullptr))
    return ServedBy::agent;
  return ServedBy::nobody;
}

std::string server_text(const StagedVolume& of) {
  const auto waits = [&]() -> std::string {
    if (of.nbd == nullptr || of.nbd->seen.waiting == 0) return "";
    return ": " + std::to_string(of.nbd->seen.waiting) + " requests wait";
  };
  switch (of.served_by) {
    case ServedBy::none:
      return "nobody: it has no device";
    case ServedBy::kernel:
      return "the kernel";
    case ServedBy::other:
      return "rbd-nbd, process " + std::to_string(of.nbd->daemons.front());
    case ServedBy::agent:
      return state_of(of) == nullptr || *state_of(of) == "staged" ? "corbd" : "corbd: " + *state_of(of);
    case ServedBy::nobody:
      return of.inputs.daemons ? "nobody" + waits() : "not known: " + of.inputs.daemons.error().text;
  }
  return "";
}

}  // namespace

StagedVolume make_staged_volume(const ForecastInputs& inputs, const StagedAt& at) {
  StagedVolume of{inputs, at};
  if (at.stash && *at.stash) of.stash = &**at.stash;
  find_device(of);
  of.served_by = served_by_now(of);
  const auto known = inputs.facts.find(at.volume_id);
  if (known == inputs.facts.end()) return of;
  of.facts = &known->second;
  if (of.facts->volume) of.object = &*of.facts->volume;
  if (of.facts->secret) of.secret = &*of.facts->secret;
  return of;
}

std::string attribute(const StagedVolume& of, const char* name) {
  if (of.object == nullptr) return "";
  const auto found = of.object->attributes.find(name);
  return found == of.object->attributes.end() ? "" : found->second;
}

std::string cluster_of(const StagedVolume& of) {
  if (of.object != nullptr) return cephcsi::mounter_case(of.at.volume_id, of.object->attributes).cluster_id;
  const auto handle = cephcsi::decode_handle(of.at.volume_id);
  return handle ? handle->cluster_id : "";
}

const device::Mapped* mapped_device(const StagedVolume& of) {
  return only(of.inputs.krbd, [&](const device::Mapped& one) { return device::path(one.seen) == of.device; });
}

image::Name image_of(const cephcsi::Stash& stash) { return {stash.pool, stash.ns, stash.image}; }

bool only_readers(const StagedVolume& of) {
  return of.object != nullptr && !of.object->access_modes.empty() &&
         std::ranges::all_of(of.object->access_modes, [](const auto& mode) { return mode == "ReadOnlyMany"; });
}

bool attaches_nothing(const ForecastInputs& inputs) { return inputs.attaches && !*inputs.attaches; }

bool is_empty(const StagedVolume& of) {
  return of.served_by == ServedBy::none && of.at.stash && of.stash == nullptr && !of.at.mounted;
}

VolumeForecast start_forecast(const StagedVolume& of) {
  VolumeForecast made;
  made.volume_id = of.at.volume_id;
  made.path = of.at.path;
  made.device = of.device;
  made.now = server_text(of);
  made.persistent_volume = of.object != nullptr ? of.object->name : of.at.persistent_volume;
  if (of.object != nullptr && of.object->claim)
    made.claim = of.object->claim->name_space + "/" + of.object->claim->name;
  return made;
}

const doctor::AgentVolume* agent_volume(const StagedVolume& of) {
  if (!of.inputs.volumes) return nullptr;
  const auto found = of.inputs.volumes->find(of.at.volume_id);
  return found == of.inputs.volumes->end() ? nullptr : &found->second;
}

std::optional<std::string> rbd_nbd_option(const StagedVolume& of, std::string_view name) {
  const auto read = cephcsi::split_map_options(attribute(of, "mapOptions"));
  if (!read) return std::nullopt;
  std::optional<std::string> found;
  for (const auto option : pieces(read->nbd, ',')) {
    std::string text(option);
    std::erase(text, ' ');
    const auto equals = std::min(text.find('='), text.size());
    std::replace(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals), '-', '_');
    // The last one counts.
    if (text.substr(0, equals) == name) found = equals < text.size() ? text.substr(equals + 1) : "";
  }
  return found;
}

void add_finding(VolumeForecast& into, Grade verdict, std::string check, std::string said, std::string remedy) {
  into.findings.push_back({std::move(check), verdict, std::move(said), std::move(remedy)});
}

void judge_agent(const StagedVolume& of, VolumeForecast& into) {
  if (!of.inputs.volumes)
    return add_finding(into, Grade::warning, "state",
                       "whether corbd serves it is not known: " + of.inputs.volumes.error().text,
                       "`corbd volumes` shows it; go on when it is staged");
  const auto* state = state_of(of);
  if (state == nullptr || *state != "staged")
    add_finding(into, Grade::failure, "state",
                "corbd does not serve it: it is " + (state == nullptr ? "no volume that corbd knows" : *state),
                "leave corbd here until it is proven and staged (`corbd volume ID` says what it waits for)");
}

namespace {

void judge_readings(const ForecastInputs& inputs, std::vector<Finding>& into) {
  if (!inputs.kubelet)
    into.push_back({"kubelet", Grade::failure, "which volumes are staged is not known: " + inputs.kubelet.error().text,
                    "give kubelet's folder with --kubelet-dir, mount it here at the same path, and run this as root"});
  if (!inputs.mounts)
    into.push_back({"mounts", Grade::failure, "cannot tell what is mounted: " + inputs.mounts.error().text,
                    "run this as root, with the host's /proc"});
  if (!inputs.records.complete)
    into.push_back({"records", Grade::failure,
                    "which volumes corbd has is not known: " + inputs.records.complete.error().text,
                    "run this as root in the agent's pod; --state-dir names the folder of the records"});
  if (!inputs.other_drivers.empty())
    into.push_back({"driver", Grade::warning,
                    "kubelet has no folder of the driver " + inputs.options.driver + ", but one of " +
                        inputs.other_drivers.front(),
                    "give the driver's name with --drivername, or in DRIVER_NAME"});
  const std::size_t devices = inputs.nbd.size() + inputs.krbd.size();
  if (inputs.staged.empty() && devices > 0)
    into.push_back({"devices", Grade::warning,
                    std::to_string(devices) +
                        " device(s) of nbd or of the kernel's RBD client are here, and nothing "
                        "is staged by the driver " +
                        inputs.options.driver,
                    "check --drivername and --kubelet-dir; or see what uses the devices (`lsblk`)"});
}

}  // namespace

std::vector<Finding> node_findings(const ForecastInputs& inputs) {
  std::vector<Finding> all;
  judge_readings(inputs, all);
  if (inputs.staged.empty()) return all;
  if (!inputs.api)
    all.push_back({"api-server", Grade::warning,
                   "the attributes and secrets of the volumes are not known: " + inputs.api.error().text,
                   "run this in ceph-csi's pod or one with its service account, or set KUBERNETES_CONFIG_PATH to a "
                   "kubeconfig"});
  if (!inputs.attaches)
    all.push_back({"csidriver", Grade::warning,
                   "whether the volumes of " + inputs.options.driver +
                       " are attached at all is not known, and taken for yes: " + inputs.attaches.error().text,
                   "give this pod's service account the right to get it (deploy/migration/rights.yaml), and ask again; "
                   "`kubectl get csidriver " +
                       inputs.options.driver + "` shows it too"});
  if (!inputs.daemons && !inputs.nbd.empty())
    all.push_back({"rbd-nbd", Grade::warning, inputs.daemons.error().text,
                   "run this as root in the host's PID namespace (`hostPID: true`)"});
  return all;
}

}  // namespace corbd::migration
