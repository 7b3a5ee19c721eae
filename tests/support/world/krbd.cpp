// The kernel's own rbd client: it needs no process, takes the lock when it maps, and does not mind mapping an image
// twice.
#include <algorithm>
#include <cerrno>

#include "corbd/cephcsi/key.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

class KernelClient final : public device::KernelClient {
 public:
  explicit KernelClient(World& world) : world_(world) {}

  result<device::Abilities> abilities() const override {
    if (!world_.kernel.rbd_module)
      return Error{errc::failed_precondition, "the kernel's rbd module is not there: run `modprobe rbd`"};
    return device::Abilities{world_.kernel.rbd_features, world_.kernel.rbd_aes256k};
  }

  result<std::vector<device::Mapped>> inventory() const override {
    std::vector<device::Mapped> all;
    for (const auto& known : world_.kernel.devices) {
      const FakeImage* of = world_.cluster.by_id(known.image_id);
      if (known.kind != device::Kind::krbd) continue;
      device::Mapped mapped;
      mapped.seen.kind = known.kind;
      mapped.seen.index = known.index;
      mapped.seen.size = known.size;
      mapped.seen.dev_major = 43;
      mapped.seen.dev_minor = known.index * 32;
      mapped.seen.client = world_.kernel.rbd_client();
      mapped.seen.user = known.mapped_by;
      mapped.seen.read_only = world_.kernel.takes_no_write(known);
      mapped.seen.holders = holders_of(known);
      mapped.key = {"fsid", of == nullptr ? 1 : of->pool_id, "", known.image_id, 0};
      mapped.name = {"pool", "", known.image_name};
      all.push_back(mapped);
    }
    return all;
  }

  task<result<>> map(device::MapArgs args, HelperOwner busy, Until until) override {
    co_return co_await world_.calls.ask_helper(
        "map krbd", std::nullopt, std::move(busy), until, [&world = world_, args]() -> result<> {
          if (auto admitted = world.cluster.knows(args.user, args.key); !admitted)
            return Error{errc::permission_denied, admitted.error().text};
          const auto place = world.cluster.images.find(args.name.image);
          if (place == world.cluster.images.end() || place->second.id != args.image.image_id)
            return Error{errc::not_found, "another image, or none"};
          if (cephcsi::key_type(args.key.reveal()) == cephcsi::KeyType::aes256k && !world.kernel.rbd_aes256k)
            return Error{errc::failed_precondition, "this kernel's RBD client does not know the type of the key"};
          world.kernel.rbd_options = args.options;
          auto mapped = world.kernel.krbd_maps(args.name.image, args.read_only);
          if (mapped) world.kernel.devices.back().mapped_by = args.user;
          return mapped;
        });
  }

  task<result<>> unmap(std::uint32_t index, std::string, HelperOwner busy, Until until) override {
    co_return co_await world_.calls.ask_helper("unmap krbd", std::nullopt, std::move(busy), until,
                                               [&world = world_, index] { return world.kernel.krbd_unmaps(index); });
  }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<device::KernelClient> make_kernel_client(World& world) { return std::make_unique<KernelClient>(world); }

std::string Kernel::rbd_client() const { return world_.agent.node_address + ":0/7" + std::to_string(boot_id.size()); }

result<> Kernel::krbd_maps(const std::string& name, bool read_only) {
  FakeImage& image = world_.cluster.images.at(name);
  if (world_.cluster.refuses(rbd_client()))
    return Error{errc::unavailable, "rbd: map failed: (108) Cannot send after transport endpoint shutdown"};
  if ((image.features & ~rbd_features) != 0)
    return Error{errc::failed_precondition, "a feature that the kernel does not know"};
  for (const auto& known : devices)
    if (known.kind == device::Kind::krbd && known.image_id == image.id) world_.broke("an image was mapped twice");
  if (!read_only) {
    // A living owner gives the lock away when it is asked; a dead one is cut off first, for the cluster's default time.
    if (image.exclusive && !image.lock_owner.empty() && !image.owner_lives())
      world_.cluster.blocklist(image.lock_owner, world_.cluster.default_expiry);
    if (image.exclusive) image.lock_by(rbd_client());
    image.watchers.insert(rbd_client());
    image.changed();
  }
  KernelDevice fresh;
  fresh.kind = device::Kind::krbd;
  fresh.index = 100;  // no index of an nbd device, for helpers that know a device by its number
  while (by_index(fresh.index) != nullptr) ++fresh.index;
  fresh.image_id = image.id;
  fresh.image_name = name;
  fresh.size = image.size;
  fresh.alive = true;
  fresh.read_only = read_only;
  devices.push_back(fresh);
  return {};
}

result<> Kernel::krbd_unmaps(std::uint32_t index) {
  const KernelDevice* known = by_index(index);
  if (known == nullptr) return {};
  if (known->kind != device::Kind::krbd) world_.broke("a device of nbd was to be unmapped by the kernel");
  if (std::ranges::any_of(mounts, [&](const auto& mount) { return shows_device(mount, index); }))
    world_.broke("a mounted device was unmapped");
  if (known->mapping || known->integrity) world_.broke("a device was unmapped below an open mapping");
  if (FakeImage* image = world_.cluster.by_id(known->image_id); image != nullptr) {
    image->watchers.erase(rbd_client());
    if (image->lock_owner == rbd_client()) image->lock_owner.clear();
    image->changed();
  }
  std::erase_if(devices, [&](const auto& one) { return one.index == index; });
  return {};
}

/// It waits for a cluster that it cannot reach, and takes the lock for a write.
void Kernel::krbd_serves(std::uint32_t index, std::uint64_t id) {
  if (world_.network.is_cut()) return world_.network.hold([this, index, id] { krbd_serves(index, id); });
  if (world_.cluster.dead) return world_.cluster.hold([this, index, id] { krbd_serves(index, id); });
  KernelDevice* device = by_index(index);
  if (device == nullptr) return;
  const auto request = std::ranges::find(device->requests, id, &KernelRequest::id);
  FakeImage* image = world_.cluster.by_id(device->image_id);
  if (image == nullptr || request == device->requests.end()) return;
  if (world_.cluster.refuses(rbd_client())) return answer(index, 0, {.request = id, .failed = -EIO, .tombstone = true});
  if (request->flush) return answer(index, 0, {id});
  if (request->write) {
    if (image->exclusive && image->lock_owner != rbd_client()) image->lock_by(rbd_client());
    image->blocks[request->block] = request->number;
    image->stored.insert(request->number);
    world_.cluster.stamp(*image);
  }
  answer(index, 0, {id, 0, image->blocks[request->block]});
}

void Kernel::krbd_used(const KernelDevice& device) {
  if (device.kind != device::Kind::krbd || device.read_only) return;
  const FakeImage* image = world_.cluster.by_id(device.image_id);
  if (image == nullptr || image->shared) return;
  for (const auto& watcher : image->watchers)
    if (watcher != rbd_client() && !world_.agent.clients.contains(watcher))
      world_.broke("a device of the kernel was used while " + watcher + " had its image");
}

}  // namespace corbd::test
