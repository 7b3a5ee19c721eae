// Filesystems on the node's devices: helper processes that wait as long as a device has no server.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

bool mounted(const World& world, std::uint32_t index) {
  return std::any_of(world.kernel.mounts.begin(), world.kernel.mounts.end(),
                     [&](const auto& mount) { return device_below(mount) == index; });
}

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
        co_await world_.calls.ask_helper("probe", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<std::string>> mkfs(std::string device, std::string fstype, std::string, host::MkfsFor made_for,
                                 HelperOwner busy, Until until) override {
    needs_link(world_, device);
    // A client that was cut off must not overwrite another node's writes since the proof. Without the exclusive-lock
    // feature nothing keeps the other node away.
    const KernelDevice* to = world_.kernel.by_index(index_of(world_, device));
    if (const FakeImage* image = image_of(world_, device);
        made_for.zeroes && image != nullptr &&
        ((image->data && (image->exclusive ? to != nullptr && takes_writes(world_, *to) : image->visits == 0)) ||
         is_mapping(device)))
      world_.broke("a device whose unwritten blocks are not zeros was formatted as if they were");
    if (const KernelDevice* on = world_.kernel.by_index(index_of(world_, device));
        on != nullptr && on->alive && takes_writes(world_, *on))
      begin_format(world_, device);
    auto effect = [&world = world_, device, fstype, made_for]() -> result<> {
      FakeImage* image = image_of(world, device);
      if (image == nullptr) return gone(device);
      if (image->content != host::Probe::Kind::nothing) return Error{errc::not_empty, device + " has a signature"};
      if (!takes_writes(world, *world.kernel.by_index(index_of(world, device))))
        return Error{errc::io, device + " takes no write"};
      begin_format(world, device);
      image->content = host::Probe::Kind::filesystem;
      image->fstype = fstype;
      image->encrypts = made_for.files_encrypted;
      image->filesystem_bytes = bytes_of(*world.kernel.by_index(index_of(world, device)));
      ++image->generation;
      return {};
    };
    auto done =
        co_await world_.calls.ask_helper("mkfs", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return world_.mkfs_beyond_oldest;
  }

  task<result<>> fsck(std::string device, std::string, std::string, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only) world.broke("a read-only device was repaired");
      if (world.kernel.takes_no_write(*on)) return Error{errc::failed_precondition, device + " takes no write"};
      // e2fsck gives up on a mounted device (check_mount() of its unix.c). The checkers of xfs and btrfs do nothing.
      if (mounted(world, on->index)) return {};
      ++image->checks;
      if (image->beyond_repair) return Error{errc::failed_precondition, "fsck leaves errors"};
      return {};
    };
    co_return co_await world_.calls.ask_helper("fsck", index_of(world_, device), std::move(busy), until,
                                               std::move(effect));
  }

  task<result<std::string>> check(std::string device, std::string, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<std::string>();
    auto effect = [&world = world_, device, found]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (world.kernel.takes_no_write(*on)) world.broke("a journal was to be replayed on a read-only device");
      if (mounted(world, on->index)) world.broke("a mounted device was checked");
      ++image->checks;
      if (image->beyond_repair) *found = "a check finds errors";
      return {};
    };
    auto done =
        co_await world_.calls.ask_helper("check", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<host::Inspection>> inspect(std::string device, std::string, bool repair, HelperOwner busy,
                                         Until until) override {
    needs_link(world_, device);
    const auto found = std::make_shared<host::Inspection>();
    auto effect = [&world = world_, device, repair, found]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (mounted(world, on->index)) world.broke("a mounted device was inspected");
      ++image->inspections;
      if (repair) image->beyond_repair = false;
      *found = {!image->beyond_repair, repair ? "repair" : "inspect", image->beyond_repair ? "two errors" : "clean"};
      return {};
    };
    auto done = co_await world_.calls.ask_helper("inspect", index_of(world_, device), std::move(busy), until,
                                                 std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
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
        co_await world_.calls.ask_helper("extent", index_of(world_, device), std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> grow(std::string device, std::string, std::string, HelperOwner busy, Until until) override {
    needs_link(world_, device);
    auto effect = [&world = world_, device]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(index_of(world, device));
      FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (on->read_only || mounted_read_only(world, on->index)) world.broke("a read-only filesystem was grown");
      if (!mounted(world, on->index)) return Error{errc::failed_precondition, device + " is not mounted"};
      if (image->filesystem_bytes == bytes_of(*on)) world.broke("a filesystem was grown that fills its device");
      image->filesystem_bytes = bytes_of(*on);
      ++image->growths;
      return {};
    };
    co_return co_await world_.calls.ask_helper("grow", index_of(world_, device), std::move(busy), until,
                                               std::move(effect));
  }

  task<result<>> check_unused(std::string device, HelperOwner busy, Until until) override {
    auto effect = [&world = world_, device]() -> result<> {
      if (world.kernel.is_claimed(index_of(world, device))) return Error{errc::in_use, "mounted or mapped"};
      return {};
    };
    co_return co_await world_.calls.ask_helper("check unused", index_of(world_, device), std::move(busy), until,
                                               std::move(effect));
  }

  task<result<>> tune(std::string kernel_name, host::NumberUse use, HelperOwner busy, Until until) override {
    auto effect = [&world = world_, kernel_name, use]() -> result<> {
      auto* on = world.kernel.by_index(index_of(world, "/dev/" + kernel_name));
      if (on == nullptr) return {};
      if (use.read_only && !on->read_only)
        world.kernel.read_only_numbers.insert(on->index);
      else
        world.kernel.read_only_numbers.erase(on->index);
      on->io_timeout_ms = 1000;
      if (on->read_only && !use.read_only) return Error{errc::failed_precondition, kernel_name + " is read-only"};
      return {};
    };
    co_return co_await world_.calls.ask_helper("tune", std::nullopt, std::move(busy), until, std::move(effect));
  }

 private:
  World& world_;
};

}  // namespace

bool mounted_read_only(const World& world, std::uint32_t index) {
  return std::any_of(world.kernel.mounts.begin(), world.kernel.mounts.end(), [&](const auto& mount) {
    return device_below(mount) == index && host::mounts_read_only(mount.options);
  });
}

void begin_format(World& world, const std::string& device) {
  const KernelDevice* on = world.kernel.by_index(index_of(world, device));
  FakeImage* image = image_of(world, device);
  if (image == nullptr) return;
  if (on->read_only) world.broke("a read-only device was formatted");
  // Without the exclusive-lock feature nothing keeps another node away between the proof and the format.
  const bool guarded = image->exclusive || image->visits == 0;
  if (guarded && image->content != host::Probe::Kind::nothing) world.broke("a device with a signature was formatted");
  if (guarded && image->luks && !image->luks->keys.empty() && !is_mapping(device))
    world.broke("a LUKS header with a key was formatted over");
  if (image->luks && image->luks->keys.empty() && is_mapping(device))
    world.broke("a filesystem was made below a header whose format did not end");
  const bool allowed = image->only_formatted && image->metadata.contains("corbd/format");
  if (image->data && !allowed && guarded) world.broke("an image with data was formatted");
  image->data = image->only_formatted = true;
}

std::unique_ptr<host::Filesystems> make_filesystems(World& world) { return std::make_unique<Filesystems>(world); }

}  // namespace corbd::test
