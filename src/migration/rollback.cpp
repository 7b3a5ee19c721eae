// Forecasts ceph-csi's treatment of the volumes that this agent has staged (docs/sources.md#healer). Pure.
#include <algorithm>

#include "corbd/cephcsi/handle.hpp"
#include "staged_volume.hpp"

namespace corbd::migration {
namespace {

using std::chrono::seconds;

/// The agent's default, for a volume whose attributes set none (docs/developers/rules.md#rule-6).
constexpr seconds kDeadConnection = std::chrono::hours(24);
constexpr const char* kDrain =
    "drain first: `corbd drain` on this node, and `kubectl drain NODE` to move its pods away; continue when nothing is "
    "left here";

std::string duration(seconds of) {
  const auto hours = std::chrono::duration_cast<std::chrono::hours>(of);
  return of >= std::chrono::hours(2) && of == hours ? std::to_string(hours.count()) + " h"
                                                    : std::to_string(of.count()) + " s";
}

/// Returns how long I/O waits before it fails, if nobody serves the device.
seconds patience(const StagedVolume& of) {
  if (of.object == nullptr) return kDeadConnection;
  const auto read = cephcsi::read_parameters(of.object->attributes, {cephcsi::Mounter::nbd, cephcsi::Mounter::nbd});
  if (!read || !read->serving.dead_conn_timeout_s) return kDeadConnection;
  return seconds(*read->serving.dead_conn_timeout_s);
}

/// Forecasts ceph-csi's unstage. ceph-csi takes a volume that its own client did not map for unmapped, and reports
/// success. An encrypted volume is unmapped by its device, and that fails.
std::string unstage_of(const StagedVolume& of) {
  return of.stash != nullptr && of.stash->encrypted
             ? "ceph-csi's unstage of it fails for ever"
             : "ceph-csi's unstage of it says that it is done, and leaves " + of.device;
}

void nobody_will(const StagedVolume& of, VolumeForecast& into, const std::string& why) {
  into.after = "nobody";
  add_finding(into, Grade::failure, "io",
              why + ": its I/O waits for " + duration(patience(of)) + " and then fails. " + unstage_of(of), kDrain);
}

/// Returns why ceph-csi's healer would not find the device; empty if it would.
std::string misled(const StagedVolume& of) {
  if (!of.at.stash) return of.at.stash.error().text;
  if (of.stash == nullptr) return cephcsi::stash_file(of.at.path) + " is missing";
  if (!of.stash->nbd) return cephcsi::stash_file(of.at.path) + " says that the kernel mapped it";
  if (of.stash->device != of.device)
    return cephcsi::stash_file(of.at.path) +
           (of.stash->device.empty() ? " names no device" : " names " + of.stash->device) + ", not " + of.device;
  return "";
}

/// Judges a device that sends no flushes: rbd-nbd's cache then writes through, unless that is switched off.
void judge_flushes(const StagedVolume& of, VolumeForecast& into) {
  const auto is_off = [&](const char* option) {
    const auto value = rbd_nbd_option(of, option);
    return value == "false" || value == "0";
  };
  if (of.nbd == nullptr || of.nbd->sends_flushes || is_off("rbd_cache")) return;
  constexpr const char* kOption = "rbd_cache_writethrough_until_flush";
  const bool by_attributes = is_off(kOption);
  const auto* volume = agent_volume(of);
  const auto effective = volume == nullptr ? std::nullopt : volume->caches_before_flush;
  if (!by_attributes && !effective)
    return add_finding(into, Grade::warning, "flush",
                       of.device + " sends no flushes, and whether " + kOption + " is on is not known",
                       std::string("see that it is on (`rbd config image list POOL/IMAGE`), or ") + kDrain);
  if (!by_attributes && !*effective) return;
  const std::string who = by_attributes ? "the volume's mapOptions switch "
                                        : "the configuration of its cluster, pool, image or node switches ";
  add_finding(into, Grade::failure, "flush",
              of.device + " sends no flushes, and " + who + kOption +
                  " off: rbd-nbd would acknowledge writes from its cache, and fsync would not store them",
              by_attributes ? kDrain
                            : std::string("switch ") + kOption +
                                  " on again (`ceph config`, ceph.conf, `rbd config`), or " + kDrain);
}

/// Judges a device that takes WRITE_ZEROES: a filesystem sends it such a request by itself.
void judge_zeroes(const StagedVolume& of, VolumeForecast& into) {
  if (of.nbd == nullptr ||
      std::ranges::find(of.inputs.zeroing_numbers, of.nbd->seen.index) == of.inputs.zeroing_numbers.end())
    return;
  add_finding(into, Grade::failure, "write-zeroes",
              of.device +
                  " takes WRITE_ZEROES, because an agent with --no-rbd-nbd had its number: rbd-nbd answers nothing "
                  "after the first "
                  "such request, and I/O then waits",
              std::string(kDrain) + ". Then, " + doctor::kLoadNbdAnew);
}

/// Judges a lost cache: rbd-nbd does not know of it, and answers the next flush as if all data were stored.
void judge_lost_cache(const StagedVolume& of, VolumeForecast& into) {
  if (const auto* volume = agent_volume(of); volume == nullptr || !volume->cache_lost) return;
  add_finding(
      into, Grade::failure, "lost-cache",
      "its rbd-nbd died with acknowledged writes, and corbd fails every flush for that reason. After ceph-csi "
      "serves it, fsync succeeds again, and nobody hears that data is lost",
      "first end its pods on this node, or accept the loss with `corbd heal " + of.at.volume_id + " --loss-accepted`");
}

/// Judges a volume that this agent serves. ceph-csi heals a filesystem whose attributes say rbd-nbd. It tries once,
/// when its pod starts.
void judge_served(const StagedVolume& of, VolumeForecast& into) {
  if (const std::string why = misled(of); !why.empty()) return nobody_will(of, into, "ceph-csi cannot heal it: " + why);
  if (attaches_nothing(of.inputs))
    return nobody_will(of, into,
                       "ceph-csi heals what its VolumeAttachments name, and the CSIDriver " + of.inputs.options.driver +
                           " says attachRequired: false");
  if (of.inputs.api && of.facts != nullptr && !of.facts->attached && of.facts->attached.error().code == errc::not_found)
    return nobody_will(of, into, "ceph-csi heals what its VolumeAttachments name, and this volume has none");
  if (of.at.block || (of.object != nullptr && of.object->mode == "Block"))
    return nobody_will(of, into, "ceph-csi before its fix of April 2026 does not heal raw block");
  if (of.object == nullptr)
    return nobody_will(of, into,
                       "whether its attributes say mounter: rbd-nbd is not known, and ceph-csi heals no other volume");
  if (attribute(of, "mounter") != "rbd-nbd")
    return nobody_will(of, into, "its attributes do not say mounter: rbd-nbd, so ceph-csi does not heal it");
  into.after = "rbd-nbd, when ceph-csi's pod has started and the API server answers it";
  judge_flushes(of, into);
  judge_zeroes(of, into);
  if (only_readers(of))
    add_finding(into, Grade::warning, "read-only",
                "ceph-csi 3.13 attaches a volume for readers for writing when it heals it", kDrain);
  add_finding(
      into, Grade::warning, "io",
      "its I/O waits for at least 30 s: ceph-csi waits until corbd's watch on the image is gone. It tries once; if "
      "that fails, I/O waits for " +
          duration(patience(of)) + " and then fails",
      kDrain);
}

/// Judges a volume that the kernel's client serves. ceph-csi unmaps by the names in its file.
void judge_mapped(const StagedVolume& of, VolumeForecast& into) {
  into.after = "the kernel, without a break";
  const auto* seen = mapped_device(of);
  if (!of.at.stash || of.stash == nullptr)
    add_finding(into, Grade::failure, "image-meta.json",
                of.at.stash ? cephcsi::stash_file(of.at.path) + " is missing: ceph-csi's unstage fails"
                            : of.at.stash.error().text,
                kDrain);
  else if (of.stash->nbd)
    add_finding(into, Grade::failure, "unstage",
                cephcsi::stash_file(of.at.path) + " says that rbd-nbd mapped it: " + unstage_of(of), kDrain);
  else if (seen != nullptr && seen->name != image_of(*of.stash))
    add_finding(into, Grade::failure, "unstage",
                cephcsi::stash_file(of.at.path) + " names the image " + of.stash->pool + "/" + of.stash->image +
                    ", but " + of.device + " has " + seen->name.pool + "/" + seen->name.image + ": " + unstage_of(of),
                kDrain);
}

void judge_unserved(const StagedVolume& of, VolumeForecast& into) {
  into.after = "nobody";
  if (!of.inputs.daemons) return;
  add_finding(
      into, Grade::failure, "io", "nobody serves " + of.device + ": its I/O waits now. " + unstage_of(of),
      "leave corbd here until it has healed it (`corbd volume ID` says what it waits for; `corbd heal ID`), then "
      "drain");
}

VolumeForecast rolled_back(const StagedVolume& of) {
  auto made = start_forecast(of);
  switch (of.served_by) {
    case ServedBy::none:
      made.after = "nobody: there is nothing to serve";
      break;
    case ServedBy::kernel:
      judge_mapped(of, made);
      break;
    case ServedBy::other:
      made.after = made.now + ", which ceph-csi takes for its own";
      judge_flushes(of, made);
      judge_zeroes(of, made);
      break;
    case ServedBy::agent:
      judge_served(of, made);
      judge_agent(of, made);
      judge_lost_cache(of, made);
      break;
    case ServedBy::nobody:
      judge_unserved(of, made);
      break;
  }
  made.next_stage = "ceph-csi";
  return made;
}

/// Finds free numbers that take WRITE_ZEROES: ceph-csi's next volumes get them.
void free_numbers(const ForecastInputs& inputs, std::vector<Finding>& into) {
  auto numbers = inputs.zeroing_numbers;
  std::erase_if(numbers, [&](std::uint32_t number) {
    return std::ranges::any_of(inputs.nbd, [&](const NbdUser& one) { return one.seen.index == number; });
  });
  if (numbers.empty()) return;
  into.push_back({"write-zeroes", Grade::failure,
                  doctor::paths_of(numbers) + ": free, and an agent with --no-rbd-nbd left WRITE_ZEROES on them: an "
                                              "rbd-nbd that gets one answers nothing after the first such request",
                  doctor::kLoadNbdAnew});
}

/// Finds devices that have a record and are staged nowhere: ceph-csi would not learn of them.
void forgotten(const ForecastInputs& inputs, std::vector<Finding>& into) {
  for (const auto& device : inputs.nbd) {
    const std::string& volume = device.seen.backend;
    const auto same = [&](const StagedAt& at) { return at.volume_id == volume; };
    if (!inputs.records.volumes.contains(volume) || std::ranges::any_of(inputs.staged, same)) continue;
    into.push_back(
        {device::path(device.seen), Grade::failure,
         "corbd serves volume " + volume + ", and no folder of kubelet's names it: ceph-csi would never unstage it",
         "look at it with `corbd volume " + volume + "`; have it unstaged (--unstage-orphans) before you go back"});
  }
}

}  // namespace

Forecast forecast_rollback(const ForecastInputs& inputs) {
  Forecast forecast{node_findings(inputs), {}};
  if (!inputs.agent && !(inputs.staged.empty() && inputs.records.volumes.empty()))
    forecast.node.insert(forecast.node.begin(),
                         {"agent", Grade::warning, "no agent answers here: I/O on its nbd devices waits now",
                          "start the agent, or name its socket with --admin-endpoint; if ceph-csi runs here already, "
                          "put the agent back on this node"});
  for (const auto& at : inputs.staged)
    if (const StagedVolume of = make_staged_volume(inputs, at); !is_empty(of))
      forecast.volumes.push_back(rolled_back(of));
  forgotten(inputs, forecast.node);
  free_numbers(inputs, forecast.node);
  return forecast;
}

}  // namespace corbd::migration
