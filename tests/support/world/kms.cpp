// The key management systems, and what they and a provisioner leave in an encrypted image.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

const std::string kState = "rbd.csi.ceph.com/encrypted", kKey = "rbd.csi.ceph.com/dek";
constexpr std::string_view kEncrypted = "encrypted";
constexpr std::string_view kPassphrase = "canary-passphrase";  // of encrypted_wish()

constexpr std::string_view kBy = "wrapped by ", kFor = " for ", kBefore = ": ";

std::string begin_of_wrapped(const std::string& volume_id, std::string_view passphrase) {
  return std::string(kBy).append(passphrase).append(kFor).append(volume_id).append(kBefore);
}

/// The volume's key as its KMS has it.
std::string_view key_of(const std::string& volume_id, const FakeImage& image) {
  const auto wrapped = image.metadata.find(kKey);
  if (wrapped == image.metadata.end()) return kPassphrase;
  const auto begin = kBy.size() + kPassphrase.size() + kFor.size() + volume_id.size() + kBefore.size();
  return std::string_view(wrapped->second).substr(begin);
}

/// "wrapped by <passphrase> for <volume id>: <key>"
class Kms final : public kms::Kms {
 public:
  explicit Kms(World& world) : world_(world) {}
  result<kms::Kind> kind(const std::string& kms_id) const override {
    const auto place = world_.disk.kms.find(kms_id);
    if (place == world_.disk.kms.end()) return Error{errc::unimplemented, "KMS " + kms_id + " is of type vault"};
    return place->second;
  }
  task<result<Secret>> unwrap(std::string, std::string volume_id, std::string wrapped, Secret passphrase,
                              Until until) override {
    auto done = co_await world_.calls.ask_node("unwrap key", until, [] { return result<>(); });
    if (!done) co_return done.error();
    const std::string prefix = begin_of_wrapped(volume_id, passphrase.reveal());
    if (!wrapped.starts_with(prefix)) co_return Error{errc::unauthenticated, "the passphrase does not open the key"};
    co_return Secret(wrapped.substr(prefix.size()));
  }
  task<result<std::string>> wrap(std::string, std::string volume_id, Secret key, Secret passphrase,
                                 Until until) override {
    auto done = co_await world_.calls.ask_node("wrap key", until, [] { return result<>(); });
    if (!done) co_return done.error();
    co_return begin_of_wrapped(volume_id, passphrase.reveal()) + std::string(key.reveal());
  }

 private:
  World& world_;
};

}  // namespace

void Cluster::provision_encrypted(const std::string& name, const std::string& kms_id) {
  FakeImage& image = images.at(name);
  if (nodes_.front()->disk.kms.at(kms_id) == kms::Kind::per_volume)
    image.metadata[kKey] = begin_of_wrapped(name, kPassphrase) + "a first key";
  image.metadata[kState] = "encryptionPrepared";
  if (image.content == host::Probe::Kind::nothing) return;
  finish_encryption(image);
  image.filesystem_bytes = image.size - kLuksHeader;
}

void Cluster::finish_encryption(FakeImage& image) {
  const auto place = std::ranges::find_if(images, [&](const auto& entry) { return &entry.second == &image; });
  if (!image.metadata.contains(kState)) return;
  image.metadata[kState] = kEncrypted;
  if (!image.luks || image.luks->keys.empty())
    image.luks = FakeLuks{{{0, std::string(key_of(place->first, image))}}, ""};
}

bool Cluster::opens(const std::string& name) const {
  const auto place = images.find(name);
  if (place == images.end()) return true;
  const FakeImage& image = place->second;
  if (image.metadata.empty()) return true;
  const auto state = image.metadata.find(kState);
  if (state == image.metadata.end() || state->second != kEncrypted) return true;
  return image.luks &&
         std::ranges::any_of(image.luks->keys, [&](const auto& key) { return key.second == key_of(name, image); });
}

std::unique_ptr<kms::Kms> make_kms(World& world) { return std::make_unique<Kms>(world); }

}  // namespace corbd::test
