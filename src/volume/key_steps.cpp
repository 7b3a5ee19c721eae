#include "key_steps.hpp"

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

constexpr const char* kVolumeKey = "rbd.csi.ceph.com/dek";  // image metadata, ceph-csi's
/// Image metadata that name the first key sent to a KMS that takes whatever arrives last. They stay.
constexpr const char* kFirstKey = "corbd/first-key";

const std::string& kms_of(const Volume& volume) { return volume.record->encryption->kms_id(); }

/// Names the volume and KMS of a note, because a clone has its parent's metadata, and another ID.
std::string whose(const Volume& volume) { return " of " + volume.id + " at " + kms_of(volume); }

/// Makes a note by the key's hash. The key has at least 160 random bits, so nobody can find it by that.
std::string note_of(const Volume& volume, const Secret& key) { return sha256_hex(key.reveal()) + whose(volume); }

}  // namespace

Error no_key(const Volume& volume) {
  return {errc::failed_precondition, "volume " + volume.id + " has no key, neither at its KMS " + kms_of(volume) +
                                         " nor in its image's metadata " + kVolumeKey +
                                         ": check the KMS config, or restore the key from a backup"};
}

task<result<std::optional<std::string>>> KeySteps::kept_metadata(Volume& volume, std::string name) {
  auto found = co_await volume.server.image()->metadata(name, deadline());
  if (!found || found->has_value()) co_return found;
  const std::string old_name = "." + name;
  found = co_await volume.server.image()->metadata(old_name, deadline());
  if (!found || !found->has_value() || volume.record->use.read_only) co_return found;
  auto moved = co_await volume.server.image()->set_metadata(name, **found, deadline());
  if (moved) moved = co_await volume.server.image()->remove_metadata(old_name, deadline());
  if (!moved) co_return moved.error();
  co_return found;
}

/// Finds the key. This node's client writes the image's metadata. It does one thing after another, and is cut off
/// before the next client writes.
task<result<KeySteps::Found>> KeySteps::find(Volume& volume, const Wish& wish) {
  const std::string kms_id = kms_of(volume);
  const auto terms = co_await ports_.kms.terms(kms_id, deadline());
  if (!terms) co_return terms.error();
  auto request = key_request(volume, kms_id, wish);
  if (terms->needs_passphrase && request.passphrase.empty()) co_return lacks_passphrase(volume.id);
  if (terms->kind == kms::Kind::shared) co_return Found{std::move(request.passphrase)};
  if (terms->kind == kms::Kind::stored) {
    auto stored = co_await ports_.kms.fetch(std::move(request), deadline());
    if (!stored) co_return stored.error();
    co_return Found{std::move(stored->key), {stored->version.has_value(), stored->version}};
  }
  auto wrapped = co_await kept_metadata(volume, kVolumeKey);
  if (!wrapped) co_return wrapped.error();
  if (!*wrapped) co_return Found{};
  auto key = co_await ports_.kms.unwrap(std::move(request), std::move(**wrapped), deadline());
  if (!key) co_return key.error();
  co_return Found{std::move(*key)};
}

task<result<Secret>> KeySteps::key(Volume& volume, const Wish& wish) {
  auto found = co_await find(volume, wish);
  if (!found) co_return found.error();
  if (found->key) co_return std::move(*found->key);
  co_return no_key(volume);
}

task<result<Secret>> KeySteps::passphrase(Volume& volume, const Wish& wish) {
  const std::string kms_id = kms_of(volume);
  const auto terms = co_await ports_.kms.terms(kms_id, deadline());
  if (!terms) co_return terms.error();
  auto request = key_request(volume, kms_id, wish);
  if (terms->needs_passphrase && request.passphrase.empty()) co_return lacks_passphrase(volume.id);
  co_return co_await ports_.kms.passphrase(std::move(request), deadline());
}

task<result<>> KeySteps::store(Volume& volume, const Wish& wish, Secret key, plan::KeyWrites writes, bool fresh) {
  const std::string kms_id = kms_of(volume);
  const auto terms = co_await ports_.kms.terms(kms_id, deadline());
  if (!terms) co_return terms.error();
  auto request = key_request(volume, kms_id, wish);
  result<> stored;
  if (terms->kind == kms::Kind::stored) {
    stored = co_await ports_.kms.store(std::move(request), std::move(key), writes.version, deadline());
  } else {
    auto wrapped = co_await ports_.kms.wrap(std::move(request), std::move(key), deadline());
    if (!wrapped) co_return wrapped.error();
    stored = co_await volume.server.image()->set_metadata(kVolumeKey, std::move(*wrapped), deadline());
  }
  if (!stored) co_return stored;
  volume.facts.key_stored = plan::KeyStored{fresh};
  if (writes.version) volume.facts.key_stored->version = *writes.version + 1;
  co_return result<>();
}

/// Looks at the first key. An encrypted folder has a key of its own only if its KMS stores it
/// (docs/sources.md#fscrypt).
task<result<>> KeySteps::look_at_first(Volume& volume, const Wish& wish) {
  const auto terms = co_await ports_.kms.terms(kms_of(volume), deadline());
  if (!terms) co_return terms.error();
  if (volume.record->encrypts_files() && terms->kind == kms::Kind::wrapped) {
    const auto secret = co_await passphrase(volume, wish);
    if (!secret) co_return secret.error();
    volume.facts.first_key = plan::FirstKey{};
    co_return result<>();
  }
  const auto found = co_await find(volume, wish);
  if (!found) co_return found.error();
  plan::FirstKey key{found->key.has_value(), found->writes};
  if (!key.writes.ordered) {
    const auto noted = co_await volume.server.image()->metadata(kFirstKey, deadline());
    if (!noted) co_return noted.error();
    const auto sent = sent_.find(volume.id);
    key.sent = *noted && (*noted)->ends_with(whose(volume));
    key.is_sent = key.sent && found->key && **noted == note_of(volume, *found->key);
    key.at_hand = key.sent && sent != sent_.end() && **noted == note_of(volume, sent->second);
    if (key.is_sent && key.at_hand) sent_.erase(sent);
  }
  volume.facts.first_key = key;
  co_return result<>();
}

task<result<>> KeySteps::make(Volume& volume, const Wish& wish) {
  const plan::FirstKey known = *volume.facts.first_key;
  volume.facts.first_key.reset();
  auto key = known.at_hand
                 ? result<Secret>(sent_.at(volume.id))
                 : kms::make_volume_key(volume.record->encrypts_files() ? kms::kFileKeyBytes : kms::kLuksKeyBytes);
  if (!key) co_return key.error();
  if (!known.writes.ordered) {
    sent_.insert_or_assign(volume.id, *key);
    auto noted = co_await volume.server.image()->set_metadata(kFirstKey, note_of(volume, *key), deadline());
    if (!noted) co_return noted;
  }
  auto stored = co_await store(volume, wish, std::move(*key), known.writes, true);
  // The KMS refused it at the first try: it never arrives, and the next agent need not wait for it.
  if (!stored && !known.writes.ordered && !known.at_hand && final_for_caller(stored.error().code)) {
    const auto forgotten = co_await volume.server.image()->remove_metadata(kFirstKey, deadline());
    // No other key may be sent as long as the metadata name this one.
    if (forgotten) sent_.erase(volume.id);
    if (!forgotten) log::warning("kms.first_key_noted", {{"volume", volume.id}, {"error", forgotten.error().text}});
  }
  if (!traits(volume.record->device.kind).served)
    volume.facts.ownership.reset();  // metadata raise the header's version
  if (stored) log::info("kms.first_key", {{"volume", volume.id}, {"kms", kms_of(volume)}});
  co_return stored;
}

task<result<>> KeySteps::confirm(Volume& volume, const Wish& wish) {
  const plan::KeyWrites writes = volume.facts.keys->writes;
  volume.facts.keys.reset();
  auto found = co_await find(volume, wish);
  if (!found) co_return found.error();
  if (!found->key) co_return no_key(volume);
  if (found->writes.version != writes.version)
    co_return Error{errc::unavailable, "the key of volume " + volume.id + " at its KMS changed meanwhile: repeat it"};
  co_return co_await store(volume, wish, std::move(*found->key), writes, false);
}

}  // namespace corbd::volume
