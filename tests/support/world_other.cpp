// rbd-nbd on this node, and what ceph-csi leaves for it.
#include <algorithm>

#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

class Daemons final : public host::Daemons {
 public:
  explicit Daemons(World& world) : world_(world) {}
  task<result<bool>> serving(std::uint32_t index, std::string, Until until) override {
    const auto found = std::make_shared<bool>(false);
    auto done = co_await world_.ask_node("look for rbd-nbd", until, [&world = world_, index, found]() -> result<> {
      *found = world.others.contains(index);
      return {};
    });
    if (!done) co_return done.error();
    co_return *found;
  }
  task<result<>> dismiss(std::uint32_t index, std::string, Until until) override {
    co_return co_await world_.ask_node("dismiss rbd-nbd", until, [&world = world_, index]() -> result<> {
      world.other_ends(index, true);
      return {};
    });
  }

 private:
  World& world_;
};

}  // namespace

std::unique_ptr<host::Daemons> make_daemons(World& world) { return std::make_unique<Daemons>(world); }

std::uint32_t World::other_stages(const std::string& name, const std::string& staging_path, std::string volume_id) {
  if (volume_id.empty()) volume_id = name;
  FakeImage& image = images.at(name);
  const std::string client = "10.0.0.1:0/9" + std::to_string(++made);
  image.lock_owner = client;
  image.watchers.insert(client);
  image.changed();
  image.data = true;
  image.content = host::Probe::Kind::filesystem;
  image.fstype = "ext4";
  KernelDevice device;
  while (by_index(device.index) != nullptr) ++device.index;
  device.backend = volume_id;
  device.image_id = image.id;
  device.size = image.size;
  device.alive = true;
  device.request_timeout = true;
  device.link = ++made;
  device.visits = image.visits;
  devices.push_back(device);
  others[device.index] = client;
  host::Mount mount;
  mount.id = static_cast<std::uint64_t>(++made);
  mount.dev_major = 43;
  mount.dev_minor = device.index * 32;
  mount.root = "/";
  mount.target = plan::staging_target(volume_id, staging_path);
  mount.fstype = "ext4";
  mounts.push_back(mount);
  places.insert(mount.target);
  cephcsi::Stash stash;
  stash.pool = "pool";
  stash.image = name;
  stash.nbd = true;
  stash.device = device::path(device.index);
  stash.log_dir = "/var/log/ceph";
  stash.log_strategy = "remove";
  logs.insert("/var/log/ceph/rbd-nbd-" + volume_id + ".log");
  stashes[staging_path] = stash;
  return device.index;
}

task<result<std::optional<cephcsi::Stash>>> World::stash_at(std::string path) {
  const auto found = std::make_shared<std::optional<cephcsi::Stash>>();
  auto done = co_await ask_node("read stash", {}, [this, path, found]() -> result<> {
    if (const auto place = stashes.find(path); place != stashes.end()) *found = place->second;
    return {};
  });
  if (!done) co_return done.error();
  co_return *found;
}

task<result<>> World::leave_stash(std::string path, cephcsi::Stash stash) {
  // Through the bytes, as ceph-csi would read it.
  auto kept = cephcsi::parse_stash(cephcsi::encode(stash));
  if (!kept) co_return kept.error();
  co_return co_await ask_node("write stash", {}, [this, path, kept = std::move(*kept)]() -> result<> {
    stashes[path] = kept;
    return {};
  });
}

task<result<>> World::forget_stash(std::string path, std::string log) {
  co_return co_await ask_node("drop stash", {}, [this, path, log]() -> result<> {
    stashes.erase(path);
    logs.erase(log);
    return {};
  });
}

void World::other_heals(std::uint32_t index) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || device->alive || device->disconnected) return;
  FakeImage* image = by_id(device->image_id);
  if (image == nullptr) return;
  const std::string client = "10.0.0.1:0/9" + std::to_string(++made);
  trace("rbd-nbd serves " + device::path(index) + " again");
  if (!image->lock_owner.empty()) blocklist(image->lock_owner);
  if (image->exclusive) image->lock_owner = client;
  image->watchers.insert(client);
  image->changed();
  others[index] = client;
  device->request_timeout = true;
  connect_link(*device, ++made);
}

/// At once, and with its cache written through.
void World::other_serves(std::uint32_t index, int link, std::uint64_t id) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || !others.contains(index) || device->link != link || cluster_dead) return;
  FakeImage* image = by_id(device->image_id);
  const auto place = std::find_if(device->requests.begin(), device->requests.end(),
                                  [&](const auto& request) { return request.id == id; });
  if (image == nullptr || place == device->requests.end()) return;
  if (place->write) image->blocks[place->block] = place->number;
  answer(index, id, 0, image->blocks[place->block], false);
}

void World::other_ends(std::uint32_t index, bool cleanly) {
  const auto place = others.find(index);
  if (place == others.end()) return;
  const std::string client = place->second;
  others.erase(place);
  KernelDevice* device = by_index(index);
  // With a boot in between its device is gone, and it died as well.
  if (cleanly && device != nullptr) {
    if (FakeImage* image = by_id(device->image_id)) leave(*image, client, true);
  } else {
    expire_watches({client});
  }
  if (device != nullptr) link_ended(device->link);
  if (tell_dead && hazards == nullptr) tell_dead(index);
  let_go(index);
}

}  // namespace corbd::test
