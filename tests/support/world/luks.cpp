// LUKS on the node's devices.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

constexpr std::string_view kPrefix = "luks-rbd-";
KernelDevice* mapped(World& world, const std::string& mapping) {
  const auto place = std::ranges::find_if(world.kernel.devices, [&](const auto& device) {
    return plan::mapping_name(device.backend) == mapping && device.mapping;
  });
  return place == world.kernel.devices.end() ? nullptr : &*place;
}

/// While it runs: one more that derives a key.
struct Deriving {
  explicit Deriving(World& of) : world(of) {
    world.kernel.key_derivations_at_once =
        std::max(world.kernel.key_derivations_at_once, ++world.kernel.key_derivations);
  }
  ~Deriving() { --world.kernel.key_derivations; }
  Deriving(const Deriving&) = delete;
  Deriving& operator=(const Deriving&) = delete;
  World& world;
};

class Luks final : public host::Luks {
 public:
  explicit Luks(World& world) : world_(world) {}

  task<result<host::LuksHeader>> look(std::string device, HelperOwner busy, Until until) override {
    const auto found = std::make_shared<host::LuksHeader>();
    auto done = co_await ask("luks look", device, std::move(busy), until,
                             [found](World&, KernelDevice&, FakeImage& image) -> result<> {
                               found->found = {image.luks ? host::Probe::Kind::other : image.content,
                                               image.luks ? "crypto_LUKS" : image.fstype};
                               if (image.luks)
                                 for (const auto& [slot, key] : image.luks->keys) found->key_slots.push_back(slot);
                               return {};
                             });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> format(std::string device, Secret passphrase, HelperOwner busy, Until until) override {
    const Deriving one(world_);
    // A death in the middle leaves a header without a key.
    if (KernelDevice* on = world_.kernel.by_index(index_of(world_, device));
        on != nullptr && on->alive && takes_writes(world_, *on)) {
      begin_format(world_, device);
      if (FakeImage* image = world_.cluster.by_id(on->image_id);
          image != nullptr && image->content == host::Probe::Kind::nothing)
        image->luks.emplace();
    }
    co_return co_await ask(
        "luks format", device, std::move(busy), until,
        [device, passphrase](World& world, KernelDevice& on, FakeImage& image) -> result<> {
          if (!takes_writes(world, on)) return Error{errc::io, device + " takes no write"};
          if ((image.luks && !image.luks->keys.empty()) || image.content != host::Probe::Kind::nothing)
            return Error{errc::not_empty, "has a signature"};
          begin_format(world, device);
          image.luks = FakeLuks{{{0, std::string(passphrase.reveal())}}, std::string(passphrase.reveal())};
          return {};
        });
  }

  task<result<>> open(std::string device, std::string mapping, Secret passphrase, bool read_only, HelperOwner busy,
                      Until until) override {
    const Deriving one(world_);
    if (!mapping.starts_with(kPrefix)) world_.broke("a mapping has a name that ceph-csi does not know");
    co_return co_await ask("luks open", device, std::move(busy), until,
                           [passphrase, read_only](World& world, KernelDevice& on, FakeImage& image) -> result<> {
                             if (on.mapping) return {};
                             if (on.read_only && !read_only) world.broke("a read-only device was opened for writing");
                             if (!image.luks || !has(*image.luks, passphrase))
                               return Error{errc::unauthenticated, "no key slot opens with this passphrase"};
                             on.mapping = on.size - kLuksHeader;
                             return {};
                           });
  }

  task<result<>> resize(std::string mapping, HelperOwner busy, Until until) override {
    co_return co_await world_.calls.ask_helper("luks resize", below(mapping), std::move(busy), until,
                                               [&world = world_, mapping]() -> result<> {
                                                 KernelDevice* on = mapped(world, mapping);
                                                 if (on == nullptr)
                                                   return Error{errc::unavailable, mapping + " is not open"};
                                                 on->mapping = on->size - kLuksHeader;
                                                 return {};
                                               });
  }

  task<result<>> close(std::string mapping, HelperOwner busy, Until until) override {
    co_return co_await world_.calls.ask_helper(
        "luks close", below(mapping), std::move(busy), until, [&world = world_, mapping]() -> result<> {
          KernelDevice* on = mapped(world, mapping);
          if (on == nullptr) return {};
          if (std::ranges::any_of(world.kernel.mounts,
                                  [&](const auto& mount) { return shows_device(mount, on->index); }))
            return Error{errc::in_use, mapping + " is mounted"};
          on->mapping.reset();
          world.kernel.let_go(on->index);
          return {};
        });
  }

  task<result<bool>> opens(std::string device, int slot, Secret passphrase, HelperOwner busy, Until until) override {
    const Deriving one(world_);
    const auto found = std::make_shared<bool>(false);
    auto done = co_await ask("luks try key", device, std::move(busy), until,
                             [found, slot, passphrase](World&, KernelDevice&, FakeImage& image) -> result<> {
                               *found = image.luks && image.luks->keys.contains(slot) &&
                                        image.luks->keys.at(slot) == passphrase.reveal();
                               return {};
                             });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> add_key(std::string device, int slot, Secret known, Secret added, HelperOwner busy,
                         Until until) override {
    const Deriving one(world_);
    co_return co_await ask("luks add key", device, std::move(busy), until,
                           [slot, known, added](World& world, KernelDevice&, FakeImage& image) -> result<> {
                             if (!image.luks || !has(*image.luks, known))
                               return Error{errc::unauthenticated, "no key slot opens with this passphrase"};
                             if (image.luks->keys.contains(slot)) world.broke("a key was put into a slot that has one");
                             image.luks->keys[slot] = added.reveal();
                             return {};
                           });
  }

  task<result<>> remove_key(std::string device, int slot, HelperOwner busy, Until until) override {
    co_return co_await ask("luks remove key", device, std::move(busy), until,
                           [slot](World& world, KernelDevice&, FakeImage& image) -> result<> {
                             if (image.luks->keys.size() == 1 && image.luks->keys.contains(slot))
                               world.broke("the last key was removed");
                             image.luks->keys.erase(slot);
                             return {};
                           });
  }

 private:
  static bool has(const FakeLuks& luks, const Secret& passphrase) {
    return std::ranges::any_of(luks.keys, [&](const auto& key) { return key.second == passphrase.reveal(); });
  }
  std::optional<std::uint32_t> below(const std::string& mapping) {
    const KernelDevice* on = mapped(world_, mapping);
    if (on != nullptr && !on->alive && !on->disconnected && world_.hazards == nullptr)
      world_.broke("a mapping without a live link was used");
    return on == nullptr ? std::nullopt : std::optional(on->index);
  }
  task<result<>> ask(std::string call, std::string device, HelperOwner busy, Until until,
                     std::function<result<>(World&, KernelDevice&, FakeImage&)> effect) {
    const std::uint32_t index = index_of(world_, device);
    const KernelDevice* now = world_.kernel.by_index(index);
    if (world_.hazards == nullptr && (now == nullptr || !now->alive))
      world_.broke("a device without a live link was used");
    auto on_device = [&world = world_, index, device, effect]() -> result<> {
      KernelDevice* on = world.kernel.by_index(index);
      FakeImage* image = on == nullptr ? nullptr : world.cluster.by_id(on->image_id);
      if (image == nullptr) return gone(device);
      return effect(world, *on, *image);
    };
    co_return co_await world_.calls.ask_helper(std::move(call), index, std::move(busy), until, std::move(on_device));
  }
  World& world_;
};

}  // namespace

std::unique_ptr<host::Luks> make_luks(World& world) { return std::make_unique<Luks>(world); }
}  // namespace corbd::test
