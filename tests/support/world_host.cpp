// Mounts and filesystems of the node: helper processes that wait as long as a device has no server.
#include <algorithm>

#include "support/world_ports.hpp"

namespace corbd::test {
namespace {

std::uint32_t index_of(const std::string& device) { return static_cast<std::uint32_t>(std::stoul(device.substr(8))); }

bool mounted(const World& world, std::uint32_t index) {
  const auto shows = [&](const auto& mount) { return mount.dev_major == 43 && mount.dev_minor == index * 32; };
  return std::any_of(world.mounts.begin(), world.mounts.end(), shows);
}

/// Without hazards no link ends in the middle of anything: then it was the plan's mistake.
void needs_link(World& world, const std::string& device) {
  const KernelDevice* on = world.by_index(index_of(device));
  if (world.hazards == nullptr && (on == nullptr || !on->alive)) world.broke("a device without a live link was used");
  if (on != nullptr) world.used_by_kernel(*on);
}

FakeImage* image_of(World& world, const std::string& device) {
  const KernelDevice* on = world.by_index(index_of(device));
  return on == nullptr ? nullptr : world.by_id(on->image_id);
}

Error gone(const std::string& device) { return {errc::io, device + " is gone"}; }

class Mounts final : public host::Mounts {
 public:
  explicit Mounts(World& world) : world_(world) {}
  result<std::vector<host::Mount>> table() const override { return world_.mounts; }

  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, std::string busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device, fstype, target, flags]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(device));
      const FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only && ("," + flags + ",").find(",ro,") == std::string::npos) return Error{errc::failed_precondition, "read-only device"};
      if (image->fstype != fstype) return Error{errc::failed_precondition, "wrong fs type"};
      add(world, target, on->index, fstype, "/");
      return {};
    };
    co_return co_await world_.ask_helper("mount", index_of(device), std::move(busy), until, std::move(effect));
  }

  task<result<>> bind(std::string source, std::string target, bool, std::string, std::string busy, Until until) override {
    auto effect = [&world = world_, source, target]() -> result<> {
      if (source.starts_with("/dev/")) {
        if (world.by_index(index_of(source)) == nullptr) return gone(source);
        add(world, target, index_of(source), "devtmpfs", "/" + source.substr(5));
        return {};
      }
      const auto place = std::find_if(world.mounts.begin(), world.mounts.end(), [&](const auto& mount) { return mount.target == source; });
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

  task<result<std::uint64_t>> trim(std::string target, std::string busy, Until until) override {
    const auto of = device_at(target);
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
    const auto of = device_at(target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    const auto found = std::make_shared<host::Usage>();
    auto effect = [&world = world_, of, found]() -> result<> {
      const KernelDevice* on = world.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      found->bytes = found->bytes_available = on->size;
      return {};
    };
    auto done = co_await world_.ask_helper("usage", of, "", until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> unmount(std::string target, std::string busy, Until until) override {
    // syncfs waits for what the device owes.
    std::optional<std::uint32_t> waits_for;
    for (const auto& mount : world_.mounts)
      if (mount.target == target && mount.dev_major == 43) waits_for = mount.dev_minor / 32;
    auto effect = [&world = world_, target]() -> result<> {
      std::erase_if(world.mounts, [&](const auto& mount) { return mount.target == target; });
      return {};
    };
    co_return co_await world_.ask_helper("unmount", waits_for, std::move(busy), until, std::move(effect));
  }

 private:
  std::optional<std::uint32_t> device_at(const std::string& target) const {
    for (const auto& mount : world_.mounts)
      if (mount.target == target && mount.dev_major == 43) return mount.dev_minor / 32;
    return std::nullopt;
  }
  static void add(World& world, const std::string& target, std::uint32_t index, const std::string& fstype, const std::string& root) {
    host::Mount made;
    made.target = target;
    made.fstype = fstype;
    made.root = root;
    if (fstype != "devtmpfs") {
      made.dev_major = 43;
      made.dev_minor = index * 32;
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

  task<result<host::Probe>> probe(std::string device, std::string busy, Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<host::Probe>();
    auto effect = [&world = world_, device, found]() -> result<> {
      const FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      found->kind = image->content;
      found->type = image->fstype;
      return {};
    };
    auto done = co_await world_.ask_helper("probe", index_of(device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> mkfs(std::string device, std::string fstype, std::string, std::string busy, Until until) override {
    needs_link(world_, device);
    if (const KernelDevice* on = world_.by_index(index_of(device)); on != nullptr && on->alive && reaches(world_, *on)) begin_format(world_, device);
    auto effect = [&world = world_, device, fstype]() -> result<> {
      FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      if (image->content != host::Probe::Kind::nothing) return Error{errc::not_empty, device + " has a signature"};
      if (!reaches(world, *world.by_index(index_of(device)))) return Error{errc::io, device + " takes no write"};
      begin_format(world, device);
      image->content = host::Probe::Kind::filesystem;
      image->fstype = fstype;
      image->filesystem_bytes = world.by_index(index_of(device))->size;
      ++image->generation;
      return {};
    };
    co_return co_await world_.ask_helper("mkfs", index_of(device), std::move(busy), until, std::move(effect));
  }

  task<result<>> fsck(std::string device, std::string busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only) world.broke("a read-only device was repaired");
      if (mounted(world, on->index)) world.broke("a mounted filesystem was repaired");
      ++image->checks;
      if (image->beyond_repair) return Error{errc::failed_precondition, "fsck leaves errors"};
      return {};
    };
    co_return co_await world_.ask_helper("fsck", index_of(device), std::move(busy), until, std::move(effect));
  }

  task<result<host::Extent>> extent(std::string device, std::string, std::string, std::string busy, Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<host::Extent>();
    auto effect = [&world = world_, device, found]() -> result<> {
      const FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      *found = {image->filesystem_bytes == 0 ? image->size : image->filesystem_bytes, 4096};
      return {};
    };
    auto done = co_await world_.ask_helper("extent", index_of(device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> grow(std::string device, std::string, std::string, std::string busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.by_index(index_of(device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only) world.broke("the filesystem of a read-only device was grown");
      if (!mounted(world, on->index)) return Error{errc::failed_precondition, device + " is not mounted"};
      if (image->filesystem_bytes == on->size) world.broke("a filesystem was grown that fills its device");
      image->filesystem_bytes = on->size;
      ++image->growths;
      return {};
    };
    co_return co_await world_.ask_helper("grow", index_of(device), std::move(busy), until, std::move(effect));
  }

  task<result<>> check_unused(std::string device, std::string busy, Until until) override {
    auto effect = [&world = world_, device]() -> result<> {
      if (mounted(world, index_of(device))) return Error{errc::in_use, "mounted"};
      return {};
    };
    co_return co_await world_.ask_helper("check unused", index_of(device), std::move(busy), until, std::move(effect));
  }

  task<result<>> tune(std::string kernel_name, std::string busy, Until until) override {
    auto effect = [&world = world_, kernel_name]() -> result<> {
      if (auto* on = world.by_index(index_of("/dev/" + kernel_name))) on->io_timeout_ms = 1000;
      return {};
    };
    co_return co_await world_.ask_helper("tune", std::nullopt, std::move(busy), until, std::move(effect));
  }

 private:
  /// Whether a write through the device would be stored: the cluster takes none of a client that is cut off, a tombstone has no image.
  static bool reaches(const World& world, const KernelDevice& on) {
    const auto link = world.links.find(on.link);
    if (link == world.links.end()) return true;
    const World::FakeOpened* opened = link->second->opened();
    const auto of = std::find_if(world.images.begin(), world.images.end(), [&](const auto& entry) { return entry.second.id == on.image_id; });
    return opened != nullptr && of != world.images.end() && world.may_write(of->second, opened->client());
  }
  /// A death in the middle leaves extents and no signature.
  static void begin_format(World& world, const std::string& device) {
    const KernelDevice* on = world.by_index(index_of(device));
    FakeImage* image = image_of(world, device);
    if (image == nullptr) return;
    if (on->read_only) world.broke("a read-only device was formatted");
    // Without the exclusive-lock feature nothing keeps another node away between the proof and the format.
    const bool guarded = image->exclusive || image->visits == 0;
    if (guarded && image->content != host::Probe::Kind::nothing) world.broke("a device with a signature was formatted");
    const bool allowed = image->only_formatted && image->metadata.contains("corbd/format");
    if (image->data && !allowed && guarded) world.broke("an image with data was formatted");
    image->data = image->only_formatted = true;
  }
  World& world_;
};

}  // namespace

std::unique_ptr<host::Mounts> make_mounts(World& world) { return std::make_unique<Mounts>(world); }
std::unique_ptr<host::Filesystems> make_filesystems(World& world) { return std::make_unique<Filesystems>(world); }

}  // namespace corbd::test
