// Fake key management systems, and the traces that they and a provisioner leave in an encrypted image.
//
// Real ones differ as follows. No package of Debian has one, so there is no contract test; the requests and answers of
// each type are tested against its documentation (tests/unit/kms, tests/lab/kms_servers.py, vault.py):
// - They authenticate: logins expire, roles lack a right, certificates end. Here every caller is let in.
// - They throttle, redirect, are sealed, or are a standby. Here only reads may be a standby's (standby_keys).
// - They disable, delete and restore a key or a version of it. Here a key is there or not.
// - They limit the length of a key and of its wrapping.
// - A Secret or ConfigMap of a tenant comes from the API server, which may be silent while the KMS answers.
// - Wrapping is encryption. Here it is text, which tells a test by whom and for which volume.
#include <algorithm>
#include <memory>

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

const std::string kState = "rbd.csi.ceph.com/encrypted", kKey = "rbd.csi.ceph.com/dek";
constexpr std::string_view kEncrypted = "encrypted";
constexpr std::string_view kPassphrase = "canary-passphrase";  // the one of encrypted_wish()

constexpr std::string_view kBy = "wrapped by ", kFor = " for ", kBefore = ": ";

std::string begin_of_wrapped(const std::string& volume_id, std::string_view passphrase) {
  return std::string(kBy).append(passphrase).append(kFor).append(volume_id).append(kBefore);
}

/// Returns the volume's key in its KMS.
std::string_view key_of(const Cluster& cluster, const std::string& volume_id, const FakeImage& image) {
  if (const auto kept = cluster.kept_keys.find(volume_id); kept != cluster.kept_keys.end()) return kept->second.key;
  const auto wrapped = image.metadata.find(kKey);
  if (wrapped == image.metadata.end()) return kPassphrase;
  const auto begin = kBy.size() + kPassphrase.size() + kFor.size() + volume_id.size() + kBefore.size();
  return std::string_view(wrapped->second).substr(begin);
}

/// Wraps a key as "wrapped by <passphrase> for <volume id>: <key>".
class Kms final : public kms::Kms {
 public:
  explicit Kms(World& world) : world_(world) {}
  task<result<kms::Terms>> terms(std::string kms_id, Until) override {
    const auto place = world_.disk.kms.find(kms_id);
    if (place == world_.disk.kms.end()) co_return Error{errc::unimplemented, "KMS " + kms_id + " is of type other"};
    // A KMS of that name wraps keys without a passphrase, as KMIP does, so it has none for files.
    co_return kms::Terms{place->second, place->second != kms::Kind::stored, kms_id != "kmip"};
  }
  task<result<Secret>> unwrap(kms::KeyRequest request, std::string wrapped, Until until) override {
    auto done = co_await world_.calls.ask_node("unwrap key", until, [] { return result<>(); });
    if (!done) co_return done.error();
    const std::string prefix = begin_of_wrapped(request.owner.volume_id, request.passphrase.reveal());
    if (!wrapped.starts_with(prefix)) co_return Error{errc::unauthenticated, "the passphrase does not open the key"};
    co_return Secret(wrapped.substr(prefix.size()));
  }
  task<result<std::string>> wrap(kms::KeyRequest request, Secret key, Until until) override {
    auto done = co_await world_.calls.ask_node("wrap key", until, [] { return result<>(); });
    if (!done) co_return done.error();
    co_return begin_of_wrapped(request.owner.volume_id, request.passphrase.reveal()) + std::string(key.reveal());
  }
  task<result<Secret>> passphrase(kms::KeyRequest request, Until) override { co_return request.passphrase; }
  task<result<kms::Stored>> fetch(kms::KeyRequest request, Until until) override {
    world_.cluster.asked_as.insert(request.owner.tenant);
    const auto found = std::make_shared<kms::Stored>();
    if (!world_.disk.takes_what_comes.contains(request.kms_id)) found->version = 0;
    auto read = [&cluster = world_.cluster, id = request.owner.volume_id, found]() -> result<> {
      const auto& keys = cluster.standby_keys ? *cluster.standby_keys : cluster.kept_keys;
      const auto kept = keys.find(id);
      if (kept == keys.end()) return {};
      found->key = Secret(kept->second.key);
      if (found->version) found->version = kept->second.version;
      return {};
    };
    auto done = co_await world_.calls.ask_kms("fetch key", until, std::move(read));
    if (!done) co_return done.error();
    co_return *found;
  }
  task<result<>> store(kms::KeyRequest request, Secret key, std::optional<std::uint64_t> version,
                       Until until) override {
    if (version.has_value() == world_.disk.takes_what_comes.contains(request.kms_id))
      world_.broke("a key was stored as if its KMS were of another type");
    auto store = [&cluster = world_.cluster, id = request.owner.volume_id, version,
                  key = std::string(key.reveal())]() -> result<> {
      const auto kept = cluster.kept_keys.find(id);
      const std::uint64_t now = kept == cluster.kept_keys.end() ? 0 : kept->second.version;
      if (version && now != *version)
        return Error{errc::unavailable, "the check-and-set parameter did not match the current version"};
      cluster.kept_keys[id] = {key, now + 1};
      return {};
    };
    co_return co_await world_.calls.ask_kms("store key", until, std::move(store), true);
  }

 private:
  World& world_;
};

}  // namespace

void Cluster::provision_encrypted(const std::string& name, const std::string& kms_id) {
  FakeImage& image = images.at(name);
  const auto kind = nodes_.front()->disk.kms.at(kms_id);
  if (kind == kms::Kind::wrapped) image.metadata[kKey] = begin_of_wrapped(name, kPassphrase) + "a first key";
  if (kind == kms::Kind::stored) kept_keys[name] = {"a first key"};
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
    image.luks = FakeLuks{{{0, std::string(key_of(*this, place->first, image))}}, ""};
}

bool Cluster::opens(const std::string& name) const {
  const auto place = images.find(name);
  if (place == images.end()) return true;
  const FakeImage& image = place->second;
  const auto kept = kept_keys.find(name);
  if (image.folder && kept != kept_keys.end() && image.folder->secret != kept->second.key) return false;
  const auto state = image.metadata.find(kState);
  if (state == image.metadata.end() || state->second != kEncrypted) return true;
  return image.luks && std::ranges::any_of(image.luks->keys,
                                           [&](const auto& slot) { return slot.second == key_of(*this, name, image); });
}

std::unique_ptr<kms::Kms> make_kms(World& world) { return std::make_unique<Kms>(world); }

}  // namespace corbd::test
