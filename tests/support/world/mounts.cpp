// Mounts of the node: helper processes that wait as long as a device has no server.
//
// A real host differs as follows, also from filesystems.cpp, luks.cpp and fscrypt.cpp; stories on a real kernel cover
// it (tests/lab/stories_basic.py, stories_luks.py, stories_fscrypt.py):
// - mkfs, fsck and cryptsetup print, ask, take minutes, and differ between versions. Here each has one effect and a
//   code.
// - A filesystem is damaged in part, replays its journal, and turns read-only by itself.
// - A mount is busy while a file on it is open, and lazily unmounted ones live on. Here a test says so.
// - udev and other programs open a device at any moment. Here a test says who does.
// - Memory, descriptors and processes run out. Here only the agent's descriptors and the disk of its state do.
// - SELinux, cgroups and namespaces refuse. Here a pod's limits are taken or not.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

bool is_read_only_at(const World& world, const std::string& target) {
  const auto at = std::ranges::find(world.kernel.mounts, target, &host::Mount::target);
  return at != world.kernel.mounts.end() && at->filesystem_read_only;
}

/// A pod of a volume with encrypted files gets their folder, unlocked, and no other volume has one.
void look_at_published(World& world, const host::Mount& staged, bool folder) {
  const auto index = device_below(staged);
  const KernelDevice* on = index ? world.kernel.by_index(*index) : nullptr;
  const FakeImage* image = on == nullptr ? nullptr : world.cluster.by_id(on->image_id);
  if (image == nullptr) return;
  if (image->encrypts && !folder) world.broke("what is around an encrypted folder was published");
  if (folder && !(image->folder && on->folder_key)) world.broke("a locked folder was published");
}

class Mounts final : public host::Mounts {
 public:
  explicit Mounts(World& world) : world_(world) {}
  result<host::MountTable> table() const override {
    // Most looks find what the last one found.
    if (!shown_ || of_ != world_.kernel.mounts) {
      of_ = world_.kernel.mounts;
      shown_ = std::make_shared<const host::MountList>(of_);
    }
    return shown_;
  }

  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, HelperOwner busy,
                       Until until) override {
    needs_link(world_, device);
    world_.disk.places.insert(target);
    auto effect = [&world = world_, device, fstype, target, flags]() -> result<> {
      if (world.disk.filled_places.contains(target))
        return Error{errc::failed_precondition, target + " holds something"};
      const KernelDevice* on = world.kernel.by_index(index_of(world, device));
      const FakeImage* image = image_of(world, device);
      if (on == nullptr || image == nullptr) return gone(device);
      if (world.kernel.takes_no_write(*on) && !host::mounts_read_only(flags))
        return Error{errc::failed_precondition, "read-only device"};
      if (image->beyond_repair && !host::mounts_read_only(flags))
        world.broke("a damaged filesystem was mounted writable");
      if (image->fstype != fstype) return Error{errc::failed_precondition, "wrong fs type"};
      if (image->luks && !is_mapping(device)) return Error{errc::failed_precondition, "wrong fs type"};
      add(world, target, device, fstype, "/");
      world.kernel.mounts.back().options = flags;
      world.kernel.mounts.back().read_only = world.kernel.mounts.back().filesystem_read_only =
          host::mounts_read_only(flags);
      return {};
    };
    co_return co_await world_.calls.ask_helper("mount", index_of(world_, device), std::move(busy), until,
                                               std::move(effect));
  }

  task<result<>> bind(std::string source, std::string target, bool, std::string flags, HelperOwner busy,
                      Until until) override {
    world_.disk.places.insert(target);
    auto effect = [&world = world_, source, target, flags]() -> result<> {
      if (world.disk.filled_places.contains(target))
        return Error{errc::failed_precondition, target + " holds something"};
      world.kernel.bind_flags[target] = flags;
      if (source.starts_with("/dev/")) {
        if (world.kernel.by_index(index_of(world, source)) == nullptr) return gone(source);
        // The name is a link to the kernel's, as with udev.
        const bool mapped = is_mapping(source);
        add(world, target, source, "devtmpfs",
            mapped ? "/dm-" + std::to_string(index_of(world, source)) : "/" + source.substr(5));
        return {};
      }
      const std::string below = std::string("/") + host::kEncryptedFolder;
      const bool folder = source.ends_with(below);
      const std::string staged = folder ? source.substr(0, source.size() - below.size()) : source;
      const auto place = std::find_if(world.kernel.mounts.begin(), world.kernel.mounts.end(),
                                      [&](const auto& mount) { return mount.target == staged; });
      if (place == world.kernel.mounts.end()) {
        world.broke("something that is not mounted was published");
        return {};
      }
      look_at_published(world, *place, folder);
      host::Mount copy = *place;
      copy.target = target;
      copy.read_only = copy.read_only || host::mounts_read_only(flags);
      if (folder) copy.root = below;
      world.kernel.mounts.push_back(copy);
      return {};
    };
    co_return co_await world_.calls.ask_helper("bind", std::nullopt, std::move(busy), until, std::move(effect));
  }

  task<result<>> limit_io(std::string pod_uid, std::string line, HelperOwner busy, Until until) override {
    auto effect = [&world = world_, pod_uid, line]() -> result<> {
      if (!world.kernel.takes_limits) return Error{errc::not_found, "no cgroup"};
      world.kernel.io_max[pod_uid].insert(line);
      return {};
    };
    co_return co_await world_.calls.ask_helper("limit_io", std::nullopt, std::move(busy), until, std::move(effect));
  }

  /// The kernel knows nothing of a range: the fake counts pieces, and discards a GiB in each.
  task<result<>> discard(const char* what, std::string target, HelperOwner busy, Until until) {
    const auto of = mounted_device(world_, target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    auto effect = [&world = world_, of]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      if (on->read_only || mounted_read_only(world, on->index)) world.broke("a read-only filesystem was trimmed");
      if (on->mapping && !on->mapping_discards) return Error{errc::unimplemented, "the device cannot discard"};
      if (FakeImage* image = world.cluster.by_id(on->image_id)) ++image->trims;
      return {};
    };
    co_return co_await world_.calls.ask_helper(what, of, std::move(busy), until, std::move(effect));
  }

  task<result<std::uint64_t>> trim(std::string target, HelperOwner busy, Until until) override {
    auto done = co_await discard("trim", std::move(target), std::move(busy), until);
    if (!done) co_return done.error();
    co_return kTrimmedBytes;
  }

  task<result<host::TrimPiece>> trim_from(std::string target, std::uint64_t from, HelperOwner busy,
                                          Until until) override {
    const auto of = mounted_device(world_, target);
    const KernelDevice* on = of ? world_.kernel.by_index(*of) : nullptr;
    const std::uint64_t size = on == nullptr ? 0 : bytes_of(*on), next = from + kTrimmedBytes;
    auto done = co_await discard("trim_from", std::move(target), std::move(busy), until);
    if (!done) co_return done.error();
    co_return host::TrimPiece{kTrimmedBytes, next < size ? next : 0};
  }

  task<result<std::string>> freeze(std::string target, HelperOwner busy, Until until) override {
    const auto of = mounted_device(world_, target);
    if (!of) co_return std::string("nothing is mounted at " + target);
    const auto answer = std::make_shared<std::string>();
    auto effect = [&world = world_, of, answer]() -> result<> {
      KernelDevice* on = world.kernel.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      if (!world.kernel.can_freeze) *answer = "it cannot be frozen";
      if (on->frozen_by != KernelDevice::Freezer::nobody) *answer = "somebody else has frozen it";
      if (answer->empty()) on->frozen_by = KernelDevice::Freezer::agent;
      return {};
    };
    auto done = co_await world_.calls.ask_helper("freeze", of, std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *answer;
  }

  task<result<bool>> thaw(std::string target, HelperOwner busy, Until until) override {
    const auto of = mounted_device(world_, target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    const auto was = std::make_shared<bool>(false);
    auto effect = [&world = world_, of, was]() -> result<> {
      KernelDevice* on = world.kernel.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      if (on->frozen_by == KernelDevice::Freezer::somebody_else)
        world.broke("a filesystem was thawed that somebody else froze");
      *was = std::exchange(on->frozen_by, KernelDevice::Freezer::nobody) != KernelDevice::Freezer::nobody;
      return {};
    };
    auto done = co_await world_.calls.ask_helper("thaw", of, std::move(busy), until, std::move(effect));
    if (!done) co_return done.error();
    co_return *was;
  }

  task<result<host::Usage>> usage(std::string target, Until until) override {
    const auto of = mounted_device(world_, target);
    if (!of) co_return Error{errc::not_found, "nothing is mounted at " + target};
    const auto found = std::make_shared<host::Usage>();
    auto effect = [&world = world_, of, found]() -> result<> {
      const KernelDevice* on = world.kernel.by_index(*of);
      if (on == nullptr) return gone(device::path(*of));
      found->bytes = found->bytes_available = bytes_of(*on);
      return {};
    };
    auto done = co_await world_.calls.ask_helper("usage", of, "", until, std::move(effect));
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> unmount(std::string target, bool sync, HelperOwner busy, Until until) override {
    // syncfs writes to the device, and so does the end of a filesystem, whoever asked for it.
    auto waits_for = mounted_device(world_, target);
    const bool writes = waits_for && !is_read_only_at(world_, target);
    if (!writes || (!sync && mounted_elsewhere(world_, *waits_for, target))) waits_for.reset();
    auto effect = [&world = world_, target, sync]() -> result<> {
      if (world.kernel.open_files.contains(target)) return Error{errc::in_use, target + " is busy"};
      const auto of = mounted_device(world, target);
      const KernelDevice* on = of ? world.kernel.by_index(*of) : nullptr;
      if (on != nullptr && on->frozen_by == KernelDevice::Freezer::agent && !mounted_elsewhere(world, *of, target))
        world.broke("the last mount of a frozen filesystem was taken away");
      if (of && !sync && !mounted_elsewhere(world, *of, target))
        world.broke("the last mount of a filesystem was taken away without a sync: " + target);
      std::erase_if(world.kernel.mounts, [&](const auto& mount) { return mount.target == target; });
      if (of) world.kernel.unmounted(*of);
      if (of) world.kernel.let_go(*of);
      if (world.disk.filled_places.contains(target))
        return Error{errc::failed_precondition, target + " is not mounted and not empty; it stays"};
      world.disk.places.erase(target);
      return {};
    };
    co_return co_await world_.calls.ask_helper("unmount", waits_for, std::move(busy), until, std::move(effect));
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
    for (const auto& mount : world.kernel.mounts)
      if (mount.target == target) world.broke("something was mounted over another mount at " + target);
    world.kernel.mounts.push_back(made);
  }
  World& world_;
  mutable std::vector<host::Mount> of_;
  mutable host::MountTable shown_;
};

}  // namespace

void Kernel::mount_by_hand(std::uint32_t index, const std::string& target) {
  const KernelDevice* on = by_index(index);
  const FakeImage* image = on == nullptr ? nullptr : world_.cluster.by_id(on->image_id);
  if (image == nullptr || !on->alive || on->disconnected || image->content != host::Probe::Kind::filesystem) return;
  if (image->luks && !on->mapping) return;
  const auto of_device = [&](const Calls::UnderWay& command) { return command.backend == on->backend; };
  for (const World* process : processes)
    if (std::ranges::any_of(process->calls.under_way, of_device)) return;
  world_.trace("somebody mounts " + device::path(index) + " at " + target);
  host::Mount mount;
  mount.target = target;
  mount.fstype = image->fstype;
  mount.root = "/";
  mount.dev_major = image->luks ? kMappingMajor : 43;
  mount.dev_minor = image->luks ? index : index * 32;
  mounts.push_back(mount);
}

void Kernel::unmount_by_hand(std::uint32_t index, const std::string& target) {
  const auto there = [&](const host::Mount& mount) { return mount.target == target; };
  if (std::none_of(mounts.begin(), mounts.end(), there)) return;
  const KernelDevice* on = by_index(index);
  if (on != nullptr && !on->requests.empty() && !mounted_elsewhere(world_, index, target))
    return world_.loop().outside_in(std::chrono::milliseconds(100),
                                    [this, index, target] { unmount_by_hand(index, target); });
  world_.trace("somebody unmounts " + target);
  std::erase_if(mounts, there);
  unmounted(index);
  let_go(index);
}

void Kernel::unmount_lazily(const std::string& target) {
  const auto of = mounted_device(world_, target);
  std::erase_if(mounts, [&](const auto& mount) { return mount.target == target; });
  if (!of) return;
  if (open_files.contains(target)) detached[target] = *of;
  unmounted(*of);
  let_go(*of);
}

void Kernel::close_file(const std::string& target) {
  open_files.erase(target);
  const auto of = detached.extract(target);
  if (of.empty()) return;
  unmounted(of.mapped());
  let_go(of.mapped());
}

void Kernel::unmounted(std::uint32_t index) {
  KernelDevice* on = by_index(index);
  const bool lives = std::ranges::any_of(detached, [&](const auto& one) { return one.second == index; });
  if (on == nullptr || lives || mounted_elsewhere(world_, index, "")) return;
  if (std::exchange(on->folder_key, false)) ++keys_left;
}

std::optional<std::uint32_t> mounted_device(const World& world, const std::string& target) {
  std::optional<std::uint32_t> found;
  for (const auto& mount : world.kernel.mounts)
    if (mount.target == target && device_below(mount)) found = device_below(mount);
  return found;
}

std::unique_ptr<host::Mounts> make_mounts(World& world) { return std::make_unique<Mounts>(world); }
}  // namespace corbd::test
