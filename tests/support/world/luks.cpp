// LUKS on the node's devices.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

constexpr std::string_view kPrefix = "luks-rbd-";
constexpr std::string_view kInner = "_dif";
KernelDevice* mapped(World& world, const std::string& mapping) {
  const auto place = std::ranges::find_if(
      world.kernel.devices, [&](const auto& device) { return device.mapped_as == mapping && device.mapping; });
  return place == world.kernel.devices.end() ? nullptr : &*place;
}

/// Finds the inner mapping by its own name, too.
KernelDevice* mapped_or_inner(World& world, const std::string& mapping) {
  const auto place = std::ranges::find_if(world.kernel.devices, [&](const auto& device) {
    return (device.mapping && device.mapped_as == mapping) || (device.integrity && device.inner_mapping() == mapping);
  });
  return place == world.kernel.devices.end() ? nullptr : &*place;
}

std::uint64_t mapped_bytes(const KernelDevice& on, const FakeImage& image) {
  return on.size - kLuksHeader - (image.luks && image.luks->integrity ? kLuksTags : 0);
}

/// While this object lives, one more call derives a key.
struct Deriving {
  Deriving(World& of, const std::string& device) : world(of) {
    auto& kernel = world.kernel;
    const KernelDevice* on = kernel.by_index(index_of(world, device));
    const FakeImage* image = on == nullptr ? nullptr : world.cluster.by_id(on->image_id);
    if (image != nullptr && image->luks) memory_kib = image->luks->memory_kib;
    kernel.key_derivations_at_once = std::max(kernel.key_derivations_at_once, ++kernel.key_derivations);
    kernel.key_memory_kib += memory_kib;
    kernel.key_memory_kib_at_once = std::max(kernel.key_memory_kib_at_once, kernel.key_memory_kib);
  }
  ~Deriving() {
    --world.kernel.key_derivations;
    world.kernel.key_memory_kib -= memory_kib;
  }
  Deriving(const Deriving&) = delete;
  Deriving& operator=(const Deriving&) = delete;
  World& world;
  std::uint64_t memory_kib = host::kKeyMemoryKib;
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
                               found->integrity = image.luks && image.luks->integrity;
                               if (image.luks) found->memory_kib = image.luks->memory_kib;
                               if (image.luks)
                                 for (const auto& [slot, key] : image.luks->keys) found->key_slots.push_back(slot);
                               return {};
                             });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> format(std::string device, host::LuksFormat how, Secret passphrase, HelperOwner busy,
                        Until until) override {
    const Deriving one(world_, device);
    const bool integrity = !how.integrity.empty();
    // A death in the middle leaves a header without a key, and with integrity the mappings by which the tags are
    // written.
    if (KernelDevice* on = world_.kernel.by_index(index_of(world_, device));
        on != nullptr && on->alive && takes_writes(world_, *on)) {
      begin_format(world_, device);
      if (on->mapping || on->integrity) world_.broke("a header was written below an open mapping");
      if (FakeImage* image = world_.cluster.by_id(on->image_id);
          image != nullptr && image->content == host::Probe::Kind::nothing) {
        image->luks = FakeLuks{.keys = {}, .passphrase = {}, .integrity = integrity};
        if (integrity) on->map_as(how.mapping, mapped_bytes(*on, *image), true);
      }
    }
    co_return co_await ask(
        "luks format", device, std::move(busy), until,
        [device, passphrase, integrity](World& world, KernelDevice& on, FakeImage& image) -> result<> {
          if (integrity) {
            on.integrity = false;
            on.mapping.reset();
          }
          if (!takes_writes(world, on)) return Error{errc::io, device + " takes no write"};
          if ((image.luks && !image.luks->keys.empty()) || image.content != host::Probe::Kind::nothing)
            return Error{errc::not_empty, "has a signature"};
          begin_format(world, device);
          const std::string key(passphrase.reveal());
          image.luks = FakeLuks{.keys = {{0, key}}, .passphrase = key, .integrity = integrity};
          return {};
        });
  }

  task<result<>> open(std::string device, std::string mapping, Secret passphrase, host::LuksOpening how,
                      HelperOwner busy, Until until) override {
    const Deriving one(world_, device);
    if (!mapping.starts_with(kPrefix)) world_.broke("a mapping has a name that ceph-csi does not know");
    // A death in the middle leaves the inner mapping.
    if (KernelDevice* on = world_.kernel.by_index(index_of(world_, device));
        on != nullptr && on->alive && !on->mapping) {
      if (on->integrity) world_.broke("a mapping was opened beside what is left of an earlier one");
      const FakeImage* image = world_.cluster.by_id(on->image_id);
      on->integrity = image != nullptr && image->luks && image->luks->integrity && has(*image->luks, passphrase);
      on->mapped_as = mapping;
    }
    co_return co_await ask("luks open", device, std::move(busy), until,
                           [mapping, passphrase, how](World& world, KernelDevice& on, FakeImage& image) -> result<> {
                             if (on.mapping) return {};
                             on.integrity = false;
                             if (on.read_only && !how.read_only)
                               world.broke("a read-only device was opened for writing");
                             if (world.kernel.takes_no_write(on) && !how.read_only)
                               return Error{errc::failed_precondition, "read-only device"};
                             if (!image.luks || !has(*image.luks, passphrase))
                               return Error{errc::unauthenticated, "no key slot opens with this passphrase"};
                             if (image.luks->integrity && how.discard)
                               world.broke("discards were asked for through dm-integrity");
                             on.map_as(mapping, mapped_bytes(on, image), image.luks->integrity);
                             on.mapping_read_only = how.read_only;
                             on.mapping_discards = how.discard;
                             return {};
                           });
  }

  task<result<>> resize(std::string mapping, HelperOwner busy, Until until) override {
    co_return co_await world_.calls.ask_helper("luks resize", below(mapping), std::move(busy), until,
                                               [&world = world_, mapping]() -> result<> {
                                                 KernelDevice* on = mapped(world, mapping);
                                                 if (on == nullptr)
                                                   return Error{errc::unavailable, mapping + " is not open"};
                                                 if (on->integrity)
                                                   return Error{errc::failed_precondition, "has integrity"};
                                                 on->mapping = on->size - kLuksHeader;
                                                 return {};
                                               });
  }

  task<result<>> close(std::string mapping, HelperOwner busy, Until until) override {
    const auto device = below(mapping);
    const auto is_used = [](const World& world, const KernelDevice& on) {
      return std::ranges::any_of(world.kernel.mounts, [&](const auto& mount) { return shows_device(mount, on.index); });
    };
    // A death in the middle leaves the inner mapping.
    if (KernelDevice* on = mapped(world_, mapping); on != nullptr && on->integrity && !is_used(world_, *on))
      on->mapping.reset();
    co_return co_await world_.calls.ask_helper("luks close", device, std::move(busy), until,
                                               [&world = world_, mapping, is_used, device]() -> result<> {
                                                 KernelDevice* on = device ? world.kernel.by_index(*device) : nullptr;
                                                 if (on == nullptr) return {};
                                                 if (is_used(world, *on))
                                                   return Error{errc::in_use, mapping + " is mounted"};
                                                 if (on->mapping && mapping.ends_with(kInner))
                                                   return Error{errc::in_use, mapping + " is below another"};
                                                 on->mapping.reset();
                                                 on->integrity = false;
                                                 world.kernel.let_go(on->index);
                                                 return {};
                                               });
  }

  task<result<bool>> opens(std::string device, int slot, Secret passphrase, HelperOwner busy, Until until) override {
    const Deriving one(world_, device);
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
    const Deriving one(world_, device);
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
    const KernelDevice* on = mapped_or_inner(world_, mapping);
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
