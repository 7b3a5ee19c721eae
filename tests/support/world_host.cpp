// Mounts and filesystems of the node: helper processes that wait as long as a device has no server.
#include <algorithm>

#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

constexpr std::uint32_t kNowhere = ~0u;
constexpr std::string_view kMapper = "/dev/mapper/";

/// Of a mounted filesystem; nothing for one of no device.
std::optional<std::uint32_t> device_below(const host::Mount& mount) {
  if (mount.dev_major == 43) return mount.dev_minor / 32;
  if (mount.dev_major == kMappingMajor) return mount.dev_minor;
  return std::nullopt;
}

bool mounted(const World& world, std::uint32_t index) {
  return std::any_of(world.mounts.begin(), world.mounts.end(),
                     [&](const auto& mount) { return device_below(mount) == index; });
}

std::optional<std::uint32_t> mounted_device(const World& world, const std::string& target) {
  std::optional<std::uint32_t> found;
  for (const auto& mount : world.mounts)
    if (mount.target == target && device_below(mount)) found = device_below(mount);
  return found;
}

bool mounted_elsewhere(const World& world, std::uint32_t index, const std::string& target) {
  return std::any_of(world.mounts.begin(), world.mounts.end(),
                     [&](const auto& mount) { return mount.target != target && device_below(mount) == index; });
}

bool is_mapping(const std::string& path) { return path.starts_with(kMapper); }

/// Bytes of what a path of a device or mapping gives.
std::uint64_t bytes_of(const KernelDevice& on) { return on.mapping.value_or(on.size); }

/// Without hazards no link ends in the middle of anything: then it was the plan's mistake.
void needs_link(World& world, const std::string& device) {
  const KernelDevice* on = world.by_index(index_of(world, device));
  if (world.hazards == nullptr && (on == nullptr || !on->alive)) world.broke("a device without a live link was used");
  if (on != nullptr) world.used_by_kernel(*on);
}

FakeImage* image_of(World& world, const std::string& device) {
  const KernelDevice* on = world.by_index(index_of(world, device));
  return on == nullptr ? nullptr : world.by_id(on->image_id);
}

Error gone(const std::string& device) { return {errc::io, device + " is gone"}; }

class Mounts final : public host::Mounts {
 public:
  explicit Mounts(World& world) : world_(world) {}
  result<host::MountTable> table() const override {
    return std::make_shared<const std::vector<host::Mount>>(world_.mounts);
  }

  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, HelperOwner busy,
                       Until until) override {
    needs_link(world_, device);
    world_.places.insert(target);
    auto effect = [&world = world_, device, fstype, target, flags]() -> result<> {
      if (world.filled_places.contains(target)) return Error{errc::failed_precondition, target + " holds something"};
      const KernelDevice* on = world.by_index(index_of(world, device));
      const FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only && ("," + flags + ",").find(",ro,") == std::string::npos)
        return Error{errc::failed_precondition, "read-only device"};
      if (image->fstype != fstype) return Error{errc::failed_precondition, "wrong fs type"};
      if (image->luks && !is_mapping(device)) return Error{errc::failed_precondition, "wrong fs type"};
      add(world, target, device, fstype, "/");
      return {};
    };
    co_return co_await world_.ask_helper("mount", index_of(world_, device), std::move(busy), until, std::move(effect));
  }

  task<result<>> bind(std::string source, std::string target, bool, std::string, HelperOwner busy,
                      Until until) override {
    world_.places.insert(target);
    auto effect = [&world = world_, source, target]() -> result<> {
      if (world.filled_places.contains(target)) return Error{errc::failed_precondition, target + " holds something"};
      if (source.starts_with("/dev/")) {
        if (world.by_index(index_of(world, source)) == nullptr) return gone(source);
        // As with udev: the name is a link to the kernel's.
        const bool mapped = is_mapping(source);
        add(world, target, source, "devtmpfs",
            mapped ? "/dm-" + std::to_string(index_of(world, source)) : "/" + source.substr(5));
        return {};
      }
      const auto place = std::find_if(world.mounts.begin(), world.mounts.end(),
                                      [&](const auto& mount) { return mount.target == source; });
      if (place == world.mounts.end()) {
        world.broke("something that is not mounted was published");
        return {};
      }
      host::Mount copy = *place;
      copy.target = target;
      world.mounts.push_back(copy);
      return {};
    };
    co_return co_await world_.ask_helper("bind", std::nullopt, std::move(busy), until, std::move(effect));
  }

  task<result<std::uint64_t>> trim(std::string target, HelperOwner busy, Until until) override {
    const auto of = mounted_device(world_, target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    auto effect = [&world = world_, of]() -> result<> {
      const KernelDevice* on = world.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      if (on->read_only) world.broke("a read-only device was trimmed");
      if (FakeImage* image = world.by_id(on->image_id)) ++image->trims;
      return {};
    };
    auto done = co_await world_.ask_helper("trim", of, std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return std::uint64_t{0};
  }

  task<result<host::Usage>> usage(std::string target, Until until) override {
    const auto of = mounted_device(world_, target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    const auto found = std::make_shared<host::Usage>();
    auto effect = [&world = world_, of, found]() -> result<> {
      const KernelDevice* on = world.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      found->bytes = found->bytes_available = bytes_of(*on);
      return {};
    };
    auto done = co_await world_.ask_helper("usage", of, "", until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> unmount(std::string target, bool sync, HelperOwner busy, Until until) override {
    // syncfs waits for what the device owes, and so does the end of the filesystem, whoever asked for it.
    auto waits_for = mounted_device(world_, target);
    if (!sync && waits_for && mounted_elsewhere(world_, *waits_for, target)) waits_for.reset();
    auto effect = [&world = world_, target, sync]() -> result<> {
      const auto of = mounted_device(world, target);
      if (of && !sync && !mounted_elsewhere(world, *of, target))
        world.broke("the last mount of a filesystem was taken away without a sync: " + target);
      std::erase_if(world.mounts, [&](const auto& mount) { return mount.target == target; });
      if (of) world.let_go(*of);
      if (world.filled_places.contains(target))
        return Error{errc::failed_precondition, target + " is not mounted and not empty; it stays"};
      world.places.erase(target);
      return {};
    };
    co_return co_await world_.ask_helper("unmount", waits_for, std::move(busy), until, std::move(effect));
  }

 private:
  static void add(World& world, const std::string& target, const std::string& device, const std::string& fstype,
                  const std::string& root) {
    host::Mount made;
    made.target = target;
    made.fstype = fstype;
    made.root = root;
    if (fstype != "devtmpfs") {
      const std::uint32_t index = index_of(world, device);
      made.dev_major = is_mapping(device) ? kMappingMajor : 43;
      made.dev_minor = is_mapping(device) ? index : index * 32;
    }
    for (const auto& mount : world.mounts)
      if (mount.target == target) world.broke("something was mounted over another mount at " + target);
    world.mounts.push_back(made);
  }
  World& world_;
};

class Filesystems final : public host::Filesystems {
 public:
  explicit Filesystems(World& world) : world_(world) {}

  task<result<host::Probe>> probe(std::string device, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<host::Probe>();
    auto effect = [&world = world_, device, found]() -> result<> {
      const FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      const bool header = image->luks && !is_mapping(device);
      found->kind = header ? host::Probe::Kind::other : image->content;
      found->type = header ? "crypto_LUKS" : image->fstype;
      return {};
    };
    auto done =
        co_await world_.ask_helper("probe", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> mkfs(std::string device, std::string fstype, std::string, bool zeroes, HelperOwner busy,
                      Until until) override {
    needs_link(world_, device);
    // What another node wrote since the proof is not overwritten by a client that was cut off for that. Without the
    // exclusive-lock feature nothing keeps the other node away.
    const KernelDevice* to = world_.by_index(index_of(world_, device));
    if (const FakeImage* image = image_of(world_, device);
        zeroes && image != nullptr &&
        ((image->data && (image->exclusive ? to != nullptr && takes_writes(world_, *to) : image->visits == 0)) ||
         is_mapping(device)))
      world_.broke("a device whose unwritten blocks are not zeros was formatted as if they were");
    if (const KernelDevice* on = world_.by_index(index_of(world_, device));
        on != nullptr && on->alive && takes_writes(world_, *on))
      begin_format(world_, device);
    auto effect = [&world = world_, device, fstype]() -> result<> {
      FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      if (image->content != host::Probe::Kind::nothing) return Error{errc::not_empty, device + " has a signature"};
      if (!takes_writes(world, *world.by_index(index_of(world, device))))
        return Error{errc::io, device + " takes no write"};
      begin_format(world, device);
      image->content = host::Probe::Kind::filesystem;
      image->fstype = fstype;
      image->filesystem_bytes = bytes_of(*world.by_index(index_of(world, device)));
      ++image->generation;
      return {};
    };
    co_return co_await world_.ask_helper("mkfs", index_of(world_, device), std::move(busy), until, std::move(effect));
  }

  task<result<>> fsck(std::string device, std::string, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only) world.broke("a read-only device was repaired");
      if (mounted(world, on->index)) world.broke("a mounted filesystem was repaired");
      ++image->checks;
      if (image->beyond_repair) return Error{errc::failed_precondition, "fsck leaves errors"};
      return {};
    };
    co_return co_await world_.ask_helper("fsck", index_of(world_, device), std::move(busy), until, std::move(effect));
  }

  task<result<host::Extent>> extent(std::string device, std::string, std::string, HelperOwner busy,
                                    Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<host::Extent>();
    auto effect = [&world = world_, device, found]() -> result<> {
      const FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      *found = {image->filesystem_bytes == 0 ? image->size : image->filesystem_bytes, 4096};
      return {};
    };
    auto done =
        co_await world_.ask_helper("extent", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> grow(std::string device, std::string, std::string, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only) world.broke("the filesystem of a read-only device was grown");
      if (!mounted(world, on->index)) return Error{errc::failed_precondition, device + " is not mounted"};
      if (image->filesystem_bytes == bytes_of(*on)) world.broke("a filesystem was grown that fills its device");
      image->filesystem_bytes = bytes_of(*on);
      ++image->growths;
      return {};
    };
    co_return co_await world_.ask_helper("grow", index_of(world_, device), std::move(busy), until, std::move(effect));
  }

  task<result<>> check_unused(std::string device, HelperOwner busy, Until until) override {
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(world, device));
      if (mounted(world, index_of(world, device)) || (on != nullptr && on->mapping))
        return Error{errc::in_use, "mounted or mapped"};
      return {};
    };
    co_return co_await world_.ask_helper("check unused", index_of(world_, device), std::move(busy), until,
                                         std::move(effect));
  }

  task<result<>> tune(std::string kernel_name, HelperOwner busy, Until until) override {
    auto effect = [&world = world_, kernel_name]() -> result<> {
      if (auto* on = world.by_index(index_of(world, "/dev/" + kernel_name))) on->io_timeout_ms = 1000;
      return {};
    };
    co_return co_await world_.ask_helper("tune", std::nullopt, std::move(busy), until, std::move(effect));
  }

 private:
  World& world_;
};

}  // namespace

bool shows_device(const host::Mount& mount, std::uint32_t index) {
  if (mount.fstype != "devtmpfs") return device_below(mount) == index;
  return mount.root == "/nbd" + std::to_string(index) || mount.root == "/dm-" + std::to_string(index);
}

std::uint32_t index_of(const World& world, const std::string& path) {
  if (!is_mapping(path)) return static_cast<std::uint32_t>(std::stoul(path.substr(8)));
  for (const auto& device : world.devices)
    if (device.mapping && kMapper.data() + plan::mapping_name(device.backend) == path) return device.index;
  return kNowhere;
}

/// The cluster takes no write of a client that is cut off, a tombstone has no image.
bool takes_writes(const World& world, const KernelDevice& on) {
  const auto link = world.links.find(on.link);
  if (link == world.links.end()) return true;
  const World::FakeOpened* opened = link->second->opened();
  const auto of = std::find_if(world.images.begin(), world.images.end(),
                               [&](const auto& entry) { return entry.second.id == on.image_id; });
  return opened != nullptr && of != world.images.end() && world.may_write(of->second, opened->client());
}

void World::mount_by_hand(std::uint32_t index, const std::string& target) {
  const KernelDevice* on = by_index(index);
  const FakeImage* image = on == nullptr ? nullptr : by_id(on->image_id);
  if (image == nullptr || !on->alive || on->disconnected || image->content != host::Probe::Kind::filesystem) return;
  if (image->luks && !on->mapping) return;
  const auto of_device = [&](const UnderWay& command) { return command.backend == on->backend; };
  if (std::ranges::any_of(under_way, of_device)) return;
  trace("somebody mounts " + device::path(index) + " at " + target);
  host::Mount mount;
  mount.target = target;
  mount.fstype = image->fstype;
  mount.root = "/";
  mount.dev_major = image->luks ? kMappingMajor : 43;
  mount.dev_minor = image->luks ? index : index * 32;
  mounts.push_back(mount);
}

void World::unmount_by_hand(std::uint32_t index, const std::string& target) {
  const auto there = [&](const host::Mount& mount) { return mount.target == target; };
  if (std::none_of(mounts.begin(), mounts.end(), there)) return;
  const KernelDevice* on = by_index(index);
  if (on != nullptr && !on->requests.empty() && !mounted_elsewhere(*this, index, target))
    return loop_.outside_in(std::chrono::milliseconds(100), [this, index, target] { unmount_by_hand(index, target); });
  trace("somebody unmounts " + target);
  std::erase_if(mounts, there);
  let_go(index);
}

void begin_format(World& world, const std::string& device) {
  const KernelDevice* on = world.by_index(index_of(world, device));
  FakeImage* image = image_of(world, device);
  if (image == nullptr) return;
  if (on->read_only) world.broke("a read-only device was formatted");
  // Without the exclusive-lock feature nothing keeps another node away between the proof and the format.
  const bool guarded = image->exclusive || image->visits == 0;
  if (guarded && image->content != host::Probe::Kind::nothing) world.broke("a device with a signature was formatted");
  if (guarded && image->luks && !image->luks->keys.empty() && !is_mapping(device))
    world.broke("a LUKS header with a key was formatted over");
  const bool allowed = image->only_formatted && image->metadata.contains("corbd/format");
  if (image->data && !allowed && guarded) world.broke("an image with data was formatted");
  image->data = image->only_formatted = true;
}

std::unique_ptr<host::Mounts> make_mounts(World& world) { return std::make_unique<Mounts>(world); }
std::unique_ptr<host::Filesystems> make_filesystems(World& world) { return std::make_unique<Filesystems>(world); }

}  // namespace corbd::test
