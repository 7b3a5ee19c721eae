#include <algorithm>

#include "corbd/core/overloaded.hpp"
#include "corbd/plan/planner.hpp"

namespace corbd::plan {
namespace {

constexpr std::string_view kMapping = "luks-rbd-", kInner = "_dif";

const device::UpperDevice* holder_called(const device::Seen& device, const std::string& mapping) {
  const auto place = std::ranges::find(device.holders, mapping, &device::UpperDevice::mapping);
  return place == device.holders.end() ? nullptr : &*place;
}

std::string inner_name(const std::string& volume_id) { return mapping_name(volume_id) + std::string(kInner); }

}  // namespace

bool asks_cluster(const Step& step) {
  const auto whom = Overloaded{[](const step::Look& look) { return step::row(look.fact).asks; },
                               []<class Other>(const Other&) { return Other::asks; }};
  return std::visit(whom, step) == step::Asks::cluster;
}

std::string_view name(const Wish& wish) {
  return std::visit([](const auto& one) { return one.name; }, wish);
}

std::string mapping_name(const std::string& volume_id) { return std::string(kMapping) + volume_id; }

std::string volume_of_mapping(std::string_view mapping) {
  if (!mapping.starts_with(kMapping) || mapping.ends_with(kInner)) return "";
  return std::string(mapping.substr(kMapping.size()));
}

const device::UpperDevice* mapping_of(const device::Seen& device, const std::string& volume_id) {
  return holder_called(device, mapping_name(volume_id));
}

const device::UpperDevice* integrity_of(const device::Seen& device, const std::string& volume_id) {
  return holder_called(device, inner_name(volume_id));
}

bool is_own_mapping(const device::UpperDevice& holder, const std::string& volume_id) {
  return holder.mapping == mapping_name(volume_id) || holder.mapping == inner_name(volume_id) ||
         holder.mapping.starts_with("temporary-cryptsetup-");
}

const device::UpperDevice* top_mapping(const device::Seen& device, const std::string& volume_id) {
  if (const auto* mapping = mapping_of(device, volume_id)) return mapping;
  const auto place =
      std::ranges::find_if(device.holders, [&](const auto& one) { return is_own_mapping(one, volume_id); });
  return place == device.holders.end() ? nullptr : &*place;
}

std::uint64_t usable_bytes(const device::Seen& device, const std::string& volume_id) {
  const auto* mapping = mapping_of(device, volume_id);
  return mapping == nullptr ? device.size : mapping->size;
}

bool shows(const host::Mount& mount, const device::Seen& device, const std::string& volume_id) {
  const auto* mapping = mapping_of(device, volume_id);
  // udev makes the mapping's name a link to the kernel's name. Without udev it is a node of its own.
  if (mount.fstype == "devtmpfs")
    return mount.root == "/" + device::name(device.kind, device.index) ||
           (mapping != nullptr && (mount.root == "/" + mapping->name || mount.root == "/mapper/" + mapping->mapping));
  const auto is_of = [&](std::uint32_t major, std::uint32_t minor) {
    return mount.dev_major == major && mount.dev_minor == minor;
  };
  return is_of(device.dev_major, device.dev_minor) ||
         (mapping != nullptr && is_of(mapping->dev_major, mapping->dev_minor));
}

bool wants_read_only(const Capability& capability) {
  return capability.read_only || host::mounts_read_only(capability.mount_flags);
}

Capability with_fstype(Capability capability) {
  if (!capability.block && capability.fstype.empty()) capability.fstype = host::kDefaultFilesystem;
  return capability;
}

std::string other_name(const AgentNames& staged_as, const AgentNames& own) {
  if (!staged_as.driver.empty() && staged_as.driver != own.driver)
    return "driver " + staged_as.driver + " staged the volume, and this agent is driver " + own.driver +
           ": set --drivername " + staged_as.driver;
  if (!staged_as.node.empty() && staged_as.node != own.node)
    return "the volume was staged on node " + staged_as.node + ", and this agent is node " + own.node +
           ": set --nodeid " + staged_as.node;
  return {};
}

bool is_at(const Record& record, const std::string& path) {
  const auto staged = [&](const Staging& staging) {
    return staging.path == path || staging_target(record.volume_id, staging.path) == path;
  };
  const auto published = [&](const Publish& publish) { return publish.target == path; };
  return std::ranges::any_of(record.stagings, staged) || std::ranges::any_of(record.publishes, published);
}

std::string staging_target(const std::string& volume_id, const std::string& staging_path) {
  return staging_path + "/" + volume_id;
}

}  // namespace corbd::plan
