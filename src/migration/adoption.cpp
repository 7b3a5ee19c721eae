// Whether corbd takes over the device that ceph-csi made: the planner itself decides, on an observation made of this
// node's files and of the volume's attributes. What only Ceph knows is taken to agree. Pure.
#include <charconv>

#include "case.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/plan/planner.hpp"

namespace corbd::migration {
namespace {

// Device numbers only tell one device of the observation from another.
device::Seen seen_as(device::Kind kind, const std::string& name) {
  device::Seen seen;
  seen.kind = kind;
  std::from_chars(name.data() + device::traits(kind).prefix.size(), name.data() + name.size(), seen.index);
  seen.dev_major = static_cast<std::uint32_t>(kind) + 1;
  seen.dev_minor = seen.index;
  return seen;
}

/// An nbd device is found by its identifier, one of the kernel's client by what ceph-csi noted.
std::vector<device::Seen> devices_of(const Case& of) {
  std::vector<device::Seen> found;
  for (const auto& one : of.inputs.nbd)
    if (one.backend == of.at.volume_id) found.push_back(seen_as(device::Kind::nbd, one.name));
  if (!found.empty() || of.stash == nullptr || of.stash->nbd) return found;
  for (const auto& one : of.inputs.krbd)
    if (has_image(one, *of.stash)) found.push_back(seen_as(device::Kind::krbd, one.name));
  return found;
}

/// The attributes of a static volume name its image. That of another volume is in its journal, in the cluster.
image::Resolved resolved_of(const Case& of) {
  image::Resolved image;
  if (of.stash == nullptr) return image;
  image.name = {of.stash->pool, of.stash->ns, of.stash->image};
  image.kms_id = of.stash->encrypted ? "not known" : "";
  if (of.object == nullptr) return image;
  const auto read = cephcsi::read_parameters(of.object->attributes);
  if (!read) return image;
  image.kms_id = read->kms_id;
  if (!read->is_static) return image;
  const std::string pool = attribute(of, "pool");
  const std::string name = read->migrated ? attribute(of, "imageName") : of.at.volume_id;
  if (!pool.empty()) image.name.pool = pool;
  if (!name.empty()) image.name.image = name;
  return image;
}

plan::Observation observed(const Case& of) {
  plan::Observation seen;
  seen.devices = devices_of(of);
  seen.facts.stash = of.stash == nullptr ? std::optional<cephcsi::Stash>() : *of.stash;
  seen.facts.resolved = resolved_of(of);
  if (!of.at.mounted || of.at.device.empty()) return seen;
  const auto below = seen_as(of.at.device.starts_with("rbd") ? device::Kind::krbd : device::Kind::nbd, of.at.device);
  host::Mount mount;
  mount.target = plan::staging_target(of.at.volume_id, of.at.path);
  mount.dev_major = below.dev_major;
  mount.dev_minor = below.dev_minor;
  seen.mounts.push_back(std::move(mount));
  return seen;
}

}  // namespace

result<> check_adoption(const Case& of) {
  plan::Staged wish;
  wish.path = of.at.path;
  plan::Policy policy;
  policy.driver = of.inputs.driver;
  const auto decision = plan::decide(of.at.volume_id, std::nullopt, wish, observed(of), policy);
  if (const auto* refused = std::get_if<plan::Fail>(&decision)) return refused->error;
  return {};
}

}  // namespace corbd::migration
