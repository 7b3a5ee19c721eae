// Forecasts the next stage of a volume that ceph-csi staged. The planner itself decides, on an observation made of this
// node's files and of the volume's attributes. The answers that the planner needs of Ceph are unknown here. Pure.
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/overloaded.hpp"
#include "corbd/plan/planner.hpp"
#include "staged_volume.hpp"

namespace corbd::migration {
namespace {

/// Finds an nbd device by its identifier, one of the kernel's client by ceph-csi's note.
std::vector<device::Seen> devices_of(const StagedVolume& of) {
  std::vector<device::Seen> found;
  for (const auto& one : of.inputs.nbd)
    if (one.seen.backend == of.at.volume_id) found.push_back(one.seen);
  if (found.empty() && of.stash != nullptr && !of.stash->nbd)
    found = device::of_name(of.inputs.krbd, image_of(*of.stash));
  // The planner compares the size with the image's, which is unknown here, and mappings with its encryption.
  for (auto& seen : found) {
    seen.size = seen.waiting = 0;
    seen.holders.clear();
  }
  return found;
}

/// Returns the image that ceph-csi noted: corbd refuses the volume with any other.
image::Resolved noted_image(const StagedVolume& of) {
  image::Resolved image;
  if (of.stash == nullptr) return image;
  image.name = image_of(*of.stash);
  image.kms_id = of.stash->encrypted ? "not known" : "";
  if (of.object == nullptr) return image;
  if (const auto read = cephcsi::read_parameters(of.object->attributes)) {
    image.kms_id = read->kms_id;
    image.encryption_type = read->encryption_type;
  }
  return image;
}

/// Reads the attributes of a static volume, which name its image. The image of another volume is in its journal, in the
/// cluster.
std::optional<image::Resolved> resolved_of(const StagedVolume& of) {
  if (of.object == nullptr) return std::nullopt;
  const auto read = cephcsi::read_parameters(of.object->attributes);
  if (!read || !read->is_static) return std::nullopt;
  auto image = noted_image(of);
  const std::string pool = attribute(of, "pool");
  const std::string name = read->migrated ? attribute(of, "imageName") : of.at.volume_id;
  if (!pool.empty()) image.name.pool = pool;
  if (!name.empty()) image.name.image = name;
  return image;
}

/// Finds other volumes on the same image. Of two, the agent refuses the one that is staged later: here the one that was
/// found later, unless the agent has a record of it.
void find_neighbours(const StagedVolume& of, plan::Observation& seen) {
  const std::string cluster = cluster_of(of);
  if (of.stash == nullptr || cluster.empty()) return;
  for (const auto& at : of.inputs.staged) {
    if (at.volume_id == of.at.volume_id || (&at > &of.at && !of.inputs.records.volumes.contains(at.volume_id)))
      continue;
    if (!at.stash || !*at.stash || image_of(**at.stash) != image_of(*of.stash)) continue;
    if (const StagedVolume other = make_staged_volume(of.inputs, at); cluster_of(other) == cluster)
      (only_readers(other) ? seen.image_reader : seen.image_writer) = at.volume_id;
  }
}

/// Describes the time after the change: ceph-csi's rbd-nbd has ended, and the stage brings a key.
plan::Observation observed(const StagedVolume& of) {
  plan::Observation seen;
  seen.devices = devices_of(of);
  seen.key_known = true;
  seen.facts.served_by_other = false;
  seen.facts.stash = of.stash == nullptr ? std::optional<cephcsi::Stash>() : *of.stash;
  seen.facts.resolved = resolved_of(of);
  find_neighbours(of, seen);
  if (!of.at.mounted) return seen;
  host::Mount mount;
  mount.target = plan::staging_target(of.at.volume_id, of.at.path);
  mount.fstype = host::kDefaultFilesystem;  // corbd takes the filesystem that is there, of any type
  const auto* mapped = mapped_device(of);
  if (const auto* below = of.nbd != nullptr ? &of.nbd->seen : mapped != nullptr ? &mapped->seen : nullptr) {
    mount.dev_major = below->dev_major;
    mount.dev_minor = below->dev_minor;
  }
  seen.mounts.push_back(std::move(mount));
  return seen;
}

/// Phrases a question that the planner asks Ceph, with the commands by which an operator can ask it.
std::string question(plan::Fact fact, const std::string& image) {
  if (fact == plan::Fact::resolved) return "which image the volume's journal names";
  if (fact == plan::Fact::ownership)
    return "who has the image locked or open (`rbd lock ls " + image + "; rbd status " + image +
           "`), and its features (`rbd info " + image + "`; dirty-cache: a persistent cache has its newest writes)";
  return "what else Ceph tells about the image";
}

}  // namespace

StageForecast forecast_stage(const StagedVolume& of) {
  plan::Staged wish;
  wish.path = of.at.path;
  wish.capability.block = of.at.block;
  wish.capability.read_only = only_readers(of);
  plan::Policy policy;
  policy.driver = of.inputs.options.driver;
  auto seen = observed(of);
  if (const auto& image = seen.facts.resolved) {
    wish.source.pool = image->name.pool;
    wish.source.image = image->name.image;
  } else {
    wish.reserved.emplace();
  }
  std::optional<plan::Record> record;
  StageForecast forecast;
  // A plan has at most 40 steps (invariant I7 of the planner).
  bool goes_on = true;
  for (int steps = 0; goes_on && steps < 40; ++steps) {
    const auto decision = plan::decide(of.at.volume_id, record, wish, seen, policy);
    if (const auto* refused = std::get_if<plan::Refusal>(&decision)) return {refused->error, {}};
    const auto* step = std::get_if<plan::Step>(&decision);
    if (step == nullptr) break;
    goes_on = std::visit(
        Overloaded{[&](const plan::step::WriteRecord& write) {
                     record = write.record;
                     return true;
                   },
                   [&](const plan::step::Fence&) {
                     seen.facts.fenced = true;
                     return true;
                   },
                   [&](const plan::step::OpenImage&) { return seen.image_open = true; },
                   [&](const plan::step::Look& look) {
                     const auto& image = seen.facts.resolved;
                     if (plan::asks_cluster(look))
                       forecast.not_known.push_back(question(look.fact, image ? image->name.text() : "POOL/IMAGE"));
                     if (look.fact != plan::Fact::resolved) return false;
                     seen.facts.resolved = noted_image(of);
                     return true;
                   },
                   [](const auto&) { return false; }},
        *step);
  }
  return forecast;
}

}  // namespace corbd::migration
