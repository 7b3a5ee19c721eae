// Plays rbd-nbd on this node, and ceph-csi's files for it.
#include <algorithm>
#include <cerrno>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

int pid_of(std::uint32_t index) { return 4000 + static_cast<int>(index); }

class Daemons final : public host::Daemons {
 public:
  explicit Daemons(World& world) : world_(world) {}
  task<result<host::OtherServer>> serving(std::uint32_t index, std::string, Until until) override {
    const auto found = std::make_shared<host::OtherServer>();
    auto done =
        co_await world_.calls.ask_node("look for rbd-nbd", until, [&world = world_, index, found]() -> result<> {
          if (world.ceph_csi.daemons.contains(index)) found->pids.push_back(pid_of(index));
          found->uncached = world.ceph_csi.uncached(index);
          return {};
        });
    if (!done) co_return done.error();
    co_return std::move(*found);
  }
  task<result<>> dismiss(std::uint32_t index, std::string, Until until) override {
    co_return co_await world_.calls.ask_node("dismiss rbd-nbd", until, [&world = world_, index]() -> result<> {
      world.ceph_csi.ends(index, true);
      return {};
    });
  }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<host::Daemons> make_daemons(World& world) { return std::make_unique<Daemons>(world); }

std::uint32_t CephCsi::stages(const std::string& name, const std::string& staging_path, std::string volume_id,
                              const plan::Capability& use) {
  if (volume_id.empty()) volume_id = name;
  FakeImage& image = world_.cluster.images.at(name);
  const std::string client = world_.agent.node_address + ":0/9" + std::to_string(world_.cluster.new_serial());
  if (!use.read_only) {
    if (image.exclusive) image.lock_by(client);
    image.watchers.insert(client);
    image.changed();
    world_.cluster.stamp(image);
  }
  KernelDevice device;
  while (world_.kernel.by_index(device.index) != nullptr) ++device.index;
  device.backend = volume_id;
  device.image_id = image.id;
  device.size = image.size;
  device.alive = true;
  device.request_timeout = true;
  device.read_only = use.read_only;
  device.link = world_.cluster.new_serial();
  device.visits = image.visits;
  world_.kernel.devices.push_back(device);
  world_.kernel.read_only_numbers.erase(device.index);
  begins(device.index, client);
  stages_contents(name, world_.kernel.devices.back(), staging_path, volume_id, use);
  cephcsi::Stash& stash = world_.disk.stashes[staging_path];
  stash.nbd = true;
  stash.device = device::path(device.index);
  stash.log_dir = "/var/log/ceph";
  stash.log_strategy = "remove";
  world_.disk.logs.insert("/var/log/ceph/rbd-nbd-" + volume_id + ".log");
  return device.index;
}

void CephCsi::stages_contents(const std::string& name, KernelDevice& device, const std::string& staging_path,
                              const std::string& volume_id, const plan::Capability& use) {
  FakeImage& image = world_.cluster.images.at(name);
  image.data = true;
  if (!use.block && image.content == host::Probe::Kind::nothing) {
    image.content = host::Probe::Kind::filesystem;
    image.fstype = "ext4";
  }
  cephcsi::Stash& stash = world_.disk.stashes[staging_path] = {};
  stash.pool = "pool";
  stash.image = name;
  if (image.luks) {
    stash.encrypted = true;
    const std::uint64_t around = kLuksHeader + (image.luks->integrity ? kLuksTags : 0);
    device.map_as(plan::mapping_name(volume_id), device.size - around, image.luks->integrity);
  }
  if (image.folder) device.folder_key = true;
  host::Mount mount;
  mount.id = static_cast<std::uint64_t>(world_.cluster.new_serial());
  mount.target = plan::staging_target(volume_id, staging_path);
  if (use.block) {
    mount.fstype = "devtmpfs";
    mount.root = device.mapping ? "/dm-" + std::to_string(device.index) : "/" + device::name(device.kind, device.index);
  } else {
    mount.dev_major = device.mapping ? kMappingMajor : 43;
    mount.dev_minor = device.mapping ? device.index : device.index * 32;
    mount.root = "/";
    mount.fstype = image.fstype;
    mount.options = use.mount_flags;
    mount.read_only = mount.filesystem_read_only = plan::wants_read_only(use);
  }
  world_.kernel.mounts.push_back(mount);
  world_.disk.places.insert(mount.target);
}

std::uint32_t CephCsi::stages_with_krbd(const std::string& name, const std::string& staging_path, std::string volume_id,
                                        const plan::Capability& use) {
  static_cast<void>(world_.kernel.krbd_maps(name, use.read_only));
  KernelDevice& device = world_.kernel.devices.back();
  stages_contents(name, device, staging_path, volume_id, use);
  return device.index;
}

void CephCsi::publishes(const std::string& volume_id, const std::string& staging_path, const std::string& target) {
  const auto staged = plan::staging_target(volume_id, staging_path);
  host::Mount mount = *std::ranges::find(world_.kernel.mounts, staged, &host::Mount::target);
  mount.id = static_cast<std::uint64_t>(world_.cluster.new_serial());
  mount.target = target;
  const auto index = device_below(mount);
  const KernelDevice* device = index ? world_.kernel.by_index(*index) : nullptr;
  if (device != nullptr && device->folder_key) mount.root = std::string("/") + host::kEncryptedFolder;
  world_.kernel.mounts.push_back(mount);
  world_.disk.places.insert(target);
}

void CephCsi::unstages(std::uint32_t index, const std::string& volume_id, const std::string& staging_path) {
  const auto target = plan::staging_target(volume_id, staging_path);
  std::erase_if(world_.kernel.mounts, [&](const auto& mount) { return mount.target == target; });
  world_.disk.places.erase(target);
  world_.kernel.unmounted(index);
  KernelDevice& device = *world_.kernel.by_index(index);
  device.mapping.reset();
  device.integrity = false;
  if (device.kind == device::Kind::krbd)
    static_cast<void>(world_.kernel.krbd_unmaps(index));
  else
    world_.kernel.disconnect(index);
  world_.disk.stashes.erase(staging_path);
}

void CephCsi::opens_luks(std::uint32_t index, const std::string& staging_path, const std::string& volume_id,
                         const std::string& passphrase) {
  KernelDevice& device = *world_.kernel.by_index(index);
  FakeImage& image = *world_.cluster.by_id(device.image_id);
  image.luks = FakeLuks{.keys = {{0, passphrase}}, .passphrase = passphrase};
  image.metadata["rbd.csi.ceph.com/encrypted"] = "encrypted";
  image.filesystem_bytes = device.size - kLuksHeader;
  for (auto& mount : world_.kernel.mounts) {
    if (!shows_device(mount, index)) continue;
    if (mount.fstype == "devtmpfs") {
      mount.root = "/dm-" + std::to_string(index);
      continue;
    }
    mount.dev_major = kMappingMajor;
    mount.dev_minor = index;
  }
  device.map_as(plan::mapping_name(volume_id), image.filesystem_bytes, false);
  world_.disk.stashes[staging_path].encrypted = true;
}

void CephCsi::heals(std::uint32_t index) {
  KernelDevice* device = world_.kernel.by_index(index);
  if (device == nullptr || device->alive || device->disconnected || world_.kernel.frozen) return;
  FakeImage* image = world_.cluster.by_id(device->image_id);
  if (image == nullptr) return;
  const std::string client = world_.agent.node_address + ":0/9" + std::to_string(world_.cluster.new_serial());
  world_.trace("rbd-nbd serves " + device::path(index) + " again");
  if (!image->lock_owner.empty()) world_.cluster.blocklist(image->lock_owner);
  if (image->exclusive) image->lock_by(client);
  image->watchers.insert(client);
  image->changed();
  begins(index, client);
  world_.kernel.read_only_numbers.erase(index);
  device->request_timeout = true;
  device->io_timeout_ms = KernelDevice().io_timeout_ms;
  world_.kernel.connect_link(*device, world_.cluster.new_serial());
}

void CephCsi::begins(std::uint32_t index, const std::string& client) {
  daemons[index] = client;
  begun_[index] = world_.loop().clock.now();
}

std::string CephCsi::uncached(std::uint32_t index) const {
  const auto place = daemons.find(index);
  if (place == daemons.end() || caching.contains(index) ||
      world_.loop().clock.now() - begun_.at(index) < std::chrono::seconds(60))
    return "";
  return "the process of " + place->second;
}

/// Its client may have been cut off before its end.
void CephCsi::store(std::uint32_t index, FakeImage& image) {
  const auto client = daemons.find(index);
  if (client == daemons.end() || world_.cluster.refuses(client->second)) return;
  if (!cache_[index].empty()) world_.cluster.stamp(image);
  for (const auto& [block, numbers] : cache_[index]) {
    image.blocks[block] = numbers.back();
    image.stored.insert(numbers.begin(), numbers.end());
  }
  cache_.erase(index);
}

void CephCsi::stops(bool stopped) {
  stopped_ = stopped;
  for (const auto& [index, link, id] : std::exchange(unread_, {})) serves(index, link, id);
}

/// Serves at once.
void CephCsi::serves(std::uint32_t index, int link, std::uint64_t id) {
  if (stopped_) {
    unread_.push_back({index, link, id});
    return;
  }
  KernelDevice* device = world_.kernel.by_index(index);
  if (device == nullptr || !daemons.contains(index) || device->link != link || world_.cluster.dead) return;
  FakeImage* image = world_.cluster.by_id(device->image_id);
  const auto place = std::find_if(device->requests.begin(), device->requests.end(),
                                  [&](const auto& request) { return request.id == id; });
  if (image == nullptr || place == device->requests.end()) return;
  // The error is its own, as a tombstone's is.
  if (world_.cluster.refuses(daemons.at(index)))
    return world_.kernel.answer(index, link, {.request = id, .failed = -ESHUTDOWN, .tombstone = true});
  if (place->flush) {
    store(index, *image);
    // A write that an earlier rbd-nbd lost counts as stored for this one, and nobody can repair that.
    const auto is_lost = [&](const auto& write) { return !image->stored.contains(write.second); };
    std::erase_if(place->covers, is_lost);
    std::erase_if(device->unflushed, is_lost);
    return world_.kernel.answer(index, link, {id});
  }
  // librbd's cache writes through until the first flush, unless rbd_cache_writethrough_until_flush is off.
  if (place->write && caching.contains(index) && (device->flush || image->caches_before_flush)) {
    cache_[index][place->block].push_back(place->number);
    return world_.kernel.answer(index, link, {.request = id, .cached = true});
  }
  if (const auto cached = cache_[index].find(place->block); !place->write && cached != cache_[index].end())
    return world_.kernel.answer(index, link, {id, 0, cached->second.back()});
  if (place->write) {
    image->blocks[place->block] = place->number;
    image->stored.insert(place->number);
    world_.cluster.stamp(*image);
  }
  world_.kernel.answer(index, link, {id, 0, image->blocks[place->block]});
}

void CephCsi::ends(std::uint32_t index, bool cleanly) {
  const auto place = daemons.find(index);
  if (place == daemons.end()) return;
  const std::string client = place->second;
  KernelDevice* device = world_.kernel.by_index(index);
  if (FakeImage* image = device == nullptr ? nullptr : world_.cluster.by_id(device->image_id);
      cleanly && image != nullptr)
    store(index, *image), image->features &= ~FakeImage::kDirtyCache;
  if (device != nullptr) device->cache_died |= !cleanly;
  cache_.erase(index);
  caching.erase(index);
  daemons.erase(place);
  // After a boot in between its device is gone, and it died as well.
  if (cleanly && device != nullptr) {
    if (FakeImage* image = world_.cluster.by_id(device->image_id)) world_.cluster.leave(*image, client, true);
  } else {
    world_.cluster.expire_watches({client});
  }
  if (device != nullptr) world_.kernel.link_ended(device->link);
  if (world_.hazards == nullptr)
    for (const auto& [process, tell] : world_.kernel.tell_dead) tell(index);
  world_.kernel.let_go(index);
}

}  // namespace corbd::test
