// The encrypted folder of a mounted filesystem.
#include <functional>

#include "corbd/plan/combination.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

class Fscrypt final : public host::Fscrypt {
 public:
  explicit Fscrypt(World& world) : world_(world) {}

  task<result<host::EncryptedFolder>> look(std::string target, HelperOwner busy, Until until) override {
    const auto found = std::make_shared<host::EncryptedFolder>();
    auto done = co_await ask(
        "fscrypt look", target, std::move(busy), until, [found](KernelDevice& on, FakeImage& image) -> result<> {
          using enum host::EncryptedFolder;
          *found = image.plain_files ? plain : !image.folder ? none : on.folder_key ? unlocked : locked;
          return {};
        });
    if (!done) co_return done.error();
    co_return *found;
  }

  task<result<>> make(std::string target, host::FscryptSecret secret, HelperOwner busy, Until until) override {
    // A death in the middle leaves metadata that belong to no folder.
    if (const auto index = mounted_device(world_, target))
      if (KernelDevice* on = world_.kernel.by_index(*index); on != nullptr && on->alive && takes_writes(world_, *on))
        if (FakeImage* image = world_.cluster.by_id(on->image_id)) image->folder_begun = true;
    co_return co_await ask("fscrypt make", target, std::move(busy), until,
                           [&world = world_, secret](KernelDevice& on, FakeImage& image) -> result<> {
                             if (image.folder) return open(on, *image.folder, secret);
                             if (image.plain_files) return Error{errc::not_empty, "the folder holds files"};
                             if (!takes_writes(world, on)) return Error{errc::io, "the device takes no write"};
                             if (on.read_only) world.broke("an encrypted folder was made on a read-only device");
                             image.folder = FakeFolder{std::string(secret.secret.reveal()), secret.passphrase};
                             on.folder_key = true;
                             return {};
                           });
  }

  task<result<>> unlock(std::string target, host::FscryptSecret secret, HelperOwner busy, Until until) override {
    co_return co_await ask("fscrypt unlock", target, std::move(busy), until,
                           [secret](KernelDevice& on, FakeImage& image) -> result<> {
                             if (!image.folder) return Error{errc::failed_precondition, "no encrypted folder"};
                             return open(on, *image.folder, secret);
                           });
  }

  task<result<>> lock(std::string target, HelperOwner busy, Until until) override {
    co_return co_await ask("fscrypt lock", target, std::move(busy), until,
                           [&world = world_, target](KernelDevice& on, FakeImage&) -> result<> {
                             if (world.hazards == nullptr && mounted_elsewhere(world, on.index, target))
                               world.broke("a folder was locked that is mounted elsewhere");
                             on.folder_key = false;
                             return {};
                           });
  }

 private:
  static result<> open(KernelDevice& on, const FakeFolder& folder, const host::FscryptSecret& secret) {
    if (folder.secret != secret.secret.reveal() || folder.passphrase != secret.passphrase)
      return Error{errc::unauthenticated, "no key opens"};
    on.folder_key = true;
    return {};
  }

  using OnFilesystem = std::function<result<>(KernelDevice& on, FakeImage& image)>;

  task<result<>> ask(std::string call, std::string target, HelperOwner busy, Until until, OnFilesystem effect) {
    const auto index = mounted_device(world_, target);
    if (!index) co_return Error{errc::not_found, "nothing is mounted at " + target};
    needs_link(world_, device::path(*index));
    // A filesystem that was made without that feature shows no folder.
    auto performed = [&world = world_, target, looks = call == "fscrypt look",
                      effect = std::move(effect)]() -> result<> {
      const auto now = mounted_device(world, target);
      KernelDevice* on = now ? world.kernel.by_index(*now) : nullptr;
      FakeImage* image = on == nullptr ? nullptr : world.cluster.by_id(on->image_id);
      if (image == nullptr) return Error{errc::not_found, "nothing is mounted at " + target};
      if (!image->encrypts && !looks) return error_of(plan::not_served::kMadeWithoutFolders, target);
      return effect(*on, *image);
    };
    co_return co_await world_.calls.ask_helper(std::move(call), index, std::move(busy), until, std::move(performed));
  }

  World& world_;
};

}  // namespace

std::unique_ptr<host::Fscrypt> make_fscrypt(World& world) { return std::make_unique<Fscrypt>(world); }

}  // namespace corbd::test
