// The kernel's own rbd client: it needs no process, takes the lock when it maps, and does not mind mapping an image
// twice.
#include <algorithm>

#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

class KernelClient final : public device::KernelClient {
 public:
  explicit KernelClient(World& world) : world_(world) {}

  result<std::uint64_t> features() const override {
    if (!world_.rbd_module)
      return Error{errc::failed_precondition, "the kernel's rbd module is not there: run `modprobe rbd`"};
    return world_.kernel_features;
  }

  result<std::vector<device::Mapped>> inventory() const override {
    std::vector<device::Mapped> all;
    for (const auto& known : world_.devices) {
      const FakeImage* of = world_.by_id(known.image_id);
      if (known.kind != device::Kind::krbd) continue;
      device::Mapped mapped;
      mapped.seen.kind = known.kind;
      mapped.seen.index = known.index;
      mapped.seen.size = known.size;
      mapped.seen.dev_major = 43;
      mapped.seen.dev_minor = known.index * 32;
      mapped.seen.client = world_.kernel_client();
      mapped.key = {"fsid", of == nullptr ? 1 : of->pool_id, "", known.image_id, 0};
      mapped.name = {"pool", "", known.image_name};
      all.push_back(mapped);
    }
    return all;
  }

  task<result<>> map(device::MapArgs args, HelperOwner busy, Until until) override {
    co_return co_await world_.ask_helper("map krbd", std::nullopt, std::move(busy), until,
                                         [&world = world_, args]() -> result<> {
                                           if (args.key != world.cluster_key)
                                             return Error{errc::permission_denied, "the cluster refuses the key"};
                                           const auto place = world.images.find(args.name.image);
                                           if (place == world.images.end() || place->second.id != args.image.image_id)
                                             return Error{errc::not_found, "another image, or none"};
                                           world.kernel_options = args.options;
                                           return world.krbd_maps(args.name.image, args.read_only);
                                         });
  }

  task<result<>> unmap(std::uint32_t index, std::string, HelperOwner busy, Until until) override {
    co_return co_await world_.ask_helper("unmap krbd", std::nullopt, std::move(busy), until,
                                         [&world = world_, index] { return world.krbd_unmaps(index); });
  }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<device::KernelClient> make_kernel_client(World& world) { return std::make_unique<KernelClient>(world); }

result<> World::krbd_maps(const std::string& name, bool read_only) {
  FakeImage& image = images.at(name);
  if ((image.features & ~kernel_features) != 0)
    return Error{errc::failed_precondition, "a feature that the kernel does not know"};
  for (const auto& known : devices)
    if (known.kind == device::Kind::krbd && known.image_id == image.id) broke("an image was mapped twice");
  if (!read_only) {
    // An owner that lives gives the lock when it is asked; a dead one is cut off first.
    if (image.exclusive && !image.lock_owner.empty() && !image.watchers.contains(image.lock_owner))
      blocklist(image.lock_owner);
    if (image.exclusive) image.lock_owner = kernel_client();
    image.watchers.insert(kernel_client());
    image.changed();
  }
  KernelDevice fresh;
  fresh.kind = device::Kind::krbd;
  fresh.index = 100;  // of no device of nbd, for the sake of helpers that know a device by its number
  while (by_index(fresh.index) != nullptr) ++fresh.index;
  fresh.image_id = image.id;
  fresh.image_name = name;
  fresh.size = image.size;
  fresh.alive = true;
  fresh.read_only = read_only;
  devices.push_back(fresh);
  return {};
}

result<> World::krbd_unmaps(std::uint32_t index) {
  const KernelDevice* known = by_index(index);
  if (known == nullptr) return {};
  if (known->kind != device::Kind::krbd) broke("a device of nbd was to be unmapped by the kernel");
  const bool mounted = std::ranges::any_of(mounts, [&](const auto& mount) {
    return mount.dev_major == 43 ? mount.dev_minor == index * 32 : mount.root == "/rbd" + std::to_string(index);
  });
  if (mounted) broke("a mounted device was unmapped");
  if (FakeImage* image = by_id(known->image_id); image != nullptr) {
    image->watchers.erase(kernel_client());
    if (image->lock_owner == kernel_client()) image->lock_owner.clear();
    image->changed();
  }
  std::erase_if(devices, [&](const auto& one) { return one.index == index; });
  return {};
}

std::uint32_t World::krbd_stages(const std::string& name, const std::string& staging_path, std::string volume_id) {
  FakeImage& image = images.at(name);
  image.data = true;
  image.content = host::Probe::Kind::filesystem;
  image.fstype = "ext4";
  static_cast<void>(krbd_maps(name, false));
  const std::uint32_t index = devices.back().index;
  host::Mount mount;
  mount.id = static_cast<std::uint64_t>(++made);
  mount.dev_major = 43;
  mount.dev_minor = index * 32;
  mount.root = "/";
  mount.target = plan::staging_target(volume_id, staging_path);
  mount.fstype = "ext4";
  mounts.push_back(mount);
  places.insert(mount.target);
  cephcsi::Stash stash;
  stash.pool = "pool";
  stash.image = name;
  stashes[staging_path] = stash;
  return index;
}

void World::used_by_kernel(const KernelDevice& device) {
  if (device.kind != device::Kind::krbd || device.read_only) return;
  const FakeImage* image = by_id(device.image_id);
  if (image == nullptr || image->shared) return;
  for (const auto& watcher : image->watchers)
    if (watcher != kernel_client() && !clients.contains(watcher))
      broke("a device of the kernel was used while " + watcher + " had its image");
}

}  // namespace corbd::test
