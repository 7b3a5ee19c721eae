// Finds what lies below a path, a mount or a mapping.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

constexpr std::uint32_t kNowhere = ~0u;
constexpr std::string_view kMapper = "/dev/mapper/";

}  // namespace

std::optional<std::uint32_t> device_below(const host::Mount& mount) {
  if (mount.dev_major == 43) return mount.dev_minor / 32;
  if (mount.dev_major == kMappingMajor) return mount.dev_minor;
  return std::nullopt;
}

bool is_mapping(const std::string& path) { return path.starts_with(kMapper); }

std::uint64_t bytes_of(const KernelDevice& on) { return on.mapping.value_or(on.size); }

void needs_link(World& world, const std::string& device) {
  const KernelDevice* on = world.kernel.by_index(index_of(world, device));
  if (world.hazards == nullptr && (on == nullptr || !on->alive)) world.broke("a device without a live link was used");
  if (on != nullptr) world.kernel.krbd_used(*on);
}

FakeImage* image_of(World& world, const std::string& device) {
  const KernelDevice* on = world.kernel.by_index(index_of(world, device));
  return on == nullptr ? nullptr : world.cluster.by_id(on->image_id);
}

Error gone(const std::string& device) { return {errc::io, device + " is gone"}; }

bool mounted_elsewhere(const World& world, std::uint32_t index, const std::string& target) {
  return std::any_of(world.kernel.mounts.begin(), world.kernel.mounts.end(),
                     [&](const auto& mount) { return mount.target != target && device_below(mount) == index; });
}

bool shows_device(const host::Mount& mount, std::uint32_t index) {
  if (mount.fstype != "devtmpfs") return device_below(mount) == index;
  return mount.root == "/nbd" + std::to_string(index) || mount.root == "/rbd" + std::to_string(index) ||
         mount.root == "/dm-" + std::to_string(index);
}

std::vector<device::UpperDevice> holders_of(const KernelDevice& device) {
  std::vector<device::UpperDevice> holders;
  if (device.integrity)
    holders.push_back({"dm-1" + std::to_string(device.index), device.inner_mapping(),
                       device.size - kLuksHeader - kLuksTags, kMappingMajor, device.index + 1000});
  if (device.mapping)
    holders.push_back({"dm-" + std::to_string(device.index), device.mapped_as, *device.mapping, kMappingMajor,
                       device.index, device::Maker::crypt, device.mapping_read_only});
  return holders;
}

std::uint32_t index_of(const World& world, const std::string& path) {
  if (!is_mapping(path)) return static_cast<std::uint32_t>(std::stoul(path.substr(8)));
  for (const auto& device : world.kernel.devices)
    if (device.mapping && kMapper.data() + device.mapped_as == path) return device.index;
  return kNowhere;
}

/// The cluster takes no write of a client that is cut off, and a tombstone has no image.
bool takes_writes(const World& world, const KernelDevice& on) {
  if (world.kernel.read_only_numbers.contains(on.index)) return false;
  const auto link = world.kernel.links.find(on.link);
  if (link == world.kernel.links.end()) return true;
  const FakeOpened* opened = link->second->opened();
  const auto of = std::find_if(world.cluster.images.begin(), world.cluster.images.end(),
                               [&](const auto& entry) { return entry.second.id == on.image_id; });
  return opened != nullptr && of != world.cluster.images.end() && world.cluster.may_write(of->second, opened->client());
}

}  // namespace corbd::test
