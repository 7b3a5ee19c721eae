// A staged volume, and its present server. Pure.
#pragma once

#include "inputs.hpp"

namespace corbd::migration {

enum class ServedBy {
  none,    ///< it has no device
  kernel,  ///< the kernel's own RBD client
  other,   ///< rbd-nbd
  agent,   ///< corbd
  nobody   ///< its nbd device has no server
};

/// Refers to the ForecastInputs from which it was made.
struct StagedVolume {
  const ForecastInputs& inputs;
  const StagedAt& at;
  ServedBy served_by = ServedBy::none;
  std::string device = {};  ///< "/dev/nbd0"; empty: it has none
  const NbdUser* nbd = nullptr;
  const VolumeFacts* facts = nullptr;              ///< null: the API server was not asked
  const kube::PersistentVolume* object = nullptr;  ///< null: not known
  const StageSecret* secret = nullptr;             ///< null: not known
  const cephcsi::Stash* stash = nullptr;           ///< null: there is none, or it cannot be read
};
StagedVolume make_staged_volume(const ForecastInputs& inputs, const StagedAt& at);

/// Returns an attribute of the volume; empty: it is not set, or unknown.
std::string attribute(const StagedVolume& of, const char* name);
/// Returns the cluster by the volume's ID, or the attributes of a static one; empty: unknown.
std::string cluster_of(const StagedVolume& of);
/// Returns the agent's view of it; null: it does not know the volume, or was not asked.
const doctor::AgentVolume* agent_volume(const StagedVolume& of);
/// Returns one of rbd-nbd's options in the volume's mapOptions: the value of "rbd_cache" in "nbd:rbd-cache=false".
std::optional<std::string> rbd_nbd_option(const StagedVolume& of, std::string_view name);
/// Returns the device of the kernel's client; null: the volume has none.
const device::Mapped* mapped_device(const StagedVolume& of);
/// Returns the image by the name that ceph-csi noted.
image::Name image_of(const cephcsi::Stash& stash);
/// Whether its PersistentVolume is ReadOnlyMany.
bool only_readers(const StagedVolume& of);
/// Forecast of corbd's next stage of the volume.
struct StageForecast {
  result<> adopted;                         ///< an error: corbd refuses the volume, whatever Ceph answers
  std::vector<std::string> not_known = {};  ///< questions that the stage asks Ceph
};
StageForecast forecast_stage(const StagedVolume& of);
/// Whether the CSIDriver says (attachRequired: false) that no volume of the driver has a VolumeAttachment.
bool attaches_nothing(const ForecastInputs& inputs);
/// Whether it is kubelet's folder with nothing in it: no volume is staged there.
bool is_empty(const StagedVolume& of);
/// Starts a forecast of either direction: names, device, present server.
VolumeForecast start_forecast(const StagedVolume& of);
/// Adds a finding.
void add_finding(VolumeForecast& into, Grade verdict, std::string check, std::string said, std::string remedy);
/// Judges the agent's own state of a volume that it has: FAIL unless it is staged, WARN if the agent cannot be asked.
void judge_agent(const StagedVolume& of, VolumeForecast& into);
/// Reports everything that could not be read or asked: kubelet's folder, mounts, records, the API server, processes of
/// this node.
std::vector<Finding> node_findings(const ForecastInputs& inputs);

}  // namespace corbd::migration
