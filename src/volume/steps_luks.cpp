// The steps for an encrypted volume: its key, its LUKS header and its mapping.
#include <algorithm>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

// ceph-csi's keys of image metadata. Its older versions put a dot in front.
constexpr const char *kState = "rbd.csi.ceph.com/encrypted", *kVolumeKey = "rbd.csi.ceph.com/dek";
constexpr int kFirst = 0, kSecond = 1;  // the key slots of a rotation

Secret passphrase_of(const Wish& wish) {
  if (const auto* staged = std::get_if<Staged>(&wish)) return staged->passphrase;
  if (const auto* rekeyed = std::get_if<Rekeyed>(&wish)) return rekeyed->passphrase;
  return {};
}

}  // namespace

task<result<std::optional<std::string>>> Steps::kept_metadata(Volume& live, std::string name) {
  auto found = co_await live.image->metadata(name, soon());
  if (!found || found->has_value()) co_return found;
  const std::string old_name = "." + name;
  found = co_await live.image->metadata(old_name, soon());
  if (!found || !found->has_value() || live.record->read_only) co_return found;
  auto moved = co_await live.image->set_metadata(name, **found, soon());
  if (moved) moved = co_await live.image->remove_metadata(old_name, soon());
  if (!moved) co_return moved.error();
  co_return found;
}

task<result<Secret>> Steps::volume_key(Volume& live, const Wish& wish) {
  const auto kind = ports_.kms.kind(live.record->kms_id);
  if (!kind) co_return kind.error();
  Secret passphrase = passphrase_of(wish);
  if (passphrase.empty())
    co_return Error{errc::invalid_argument,
                    "volume " + live.id + " is encrypted: add the field 'encryptionPassphrase' to its secret"};
  if (*kind == kms::Kind::shared) co_return passphrase;
  const auto wrapped = co_await kept_metadata(live, kVolumeKey);
  if (!wrapped) co_return wrapped.error();
  if (*wrapped)
    co_return co_await ports_.kms.unwrap(live.record->kms_id, live.id, **wrapped, std::move(passphrase), soon());
  co_return Error{errc::not_found, std::string("the image of volume ") + live.id + " has no metadata " + kVolumeKey +
                                       ", which must hold the volume's key"};
}

task<result<>> Steps::store_key(Volume& live, Secret key, Secret passphrase) {
  auto wrapped = co_await ports_.kms.wrap(live.record->kms_id, live.id, std::move(key), std::move(passphrase), soon());
  if (!wrapped) co_return wrapped.error();
  co_return co_await live.image->set_metadata(kVolumeKey, std::move(*wrapped), soon());
}

/// ceph-csi's provisioner makes the keys of its volumes. A static volume gets its key here.
task<result<Secret>> Steps::first_key(Volume& live, const Wish& wish) {
  auto key = co_await volume_key(live, wish);
  if (key || key.error().code != errc::not_found) co_return key;
  key = kms::make_volume_key();
  if (!key) co_return key;
  auto stored = co_await store_key(live, *key, passphrase_of(wish));
  if (!stored) co_return stored.error();
  co_return key;
}

task<result<Slots::Guard>> Steps::key_derivation(const Volume& live) {
  if (key_derivations_.free() == 0)
    log::info("luks.waits",
              {{"volume", live.id},
               {"why", "two other volumes of this node are deriving their keys, which takes 32 MiB each"}});
  co_return co_await key_derivations_.take(later());
}

task<result<>> Steps::look_at_luks(Volume& live, Fact fact, const Wish& wish) {
  if (fact == Fact::keys) co_return co_await look_at_keys(live, wish);
  if (fact == Fact::encryption) {
    const auto found = co_await kept_metadata(live, kState);
    if (!found) co_return found.error();
    live.facts.encryption = trimmed(found->value_or(""));
    co_return result<>();
  }
  const auto device = device_path(live);
  if (!device) co_return device.error();
  auto header = co_await ports_.luks.look(*device, owner(live), while_served(live, soon()));
  if (!header) co_return header.error();
  live.facts.luks = std::move(*header);
  co_return result<>();
}

task<result<>> Steps::look_at_keys(Volume& live, const Wish& wish) {
  const auto kind = ports_.kms.kind(live.record->kms_id);
  if (!kind) co_return kind.error();
  if (*kind == kms::Kind::shared)
    co_return Error{errc::unimplemented, "the KMS of volume " + live.id +
                                             " has one passphrase for all volumes, so there is no key to rotate"};
  const auto device = device_path(live);
  if (!device) co_return device.error();
  const auto key = co_await volume_key(live, wish);
  if (!key) co_return key.error();
  const auto header = co_await ports_.luks.look(*device, owner(live), while_served(live, soon()));
  if (!header) co_return header.error();
  Keys keys;
  for (const int slot : {kFirst, kSecond}) {
    auto& one = slot == kFirst ? keys.first : keys.second;
    one.used = std::ranges::find(header->key_slots, slot) != header->key_slots.end();
    if (!one.used) continue;
    const auto turn = co_await key_derivation(live);
    if (!turn) co_return turn.error();
    const auto opens = co_await ports_.luks.opens(*device, slot, *key, owner(live), while_served(live, later()));
    if (!opens) co_return opens.error();
    one.opens = *opens;
  }
  live.facts.keys = keys;
  co_return result<>();
}

task<result<>> Steps::luks_format(Volume& live, const Wish& wish) {
  const auto device = device_path(live);
  if (!device) co_return device.error();
  auto key = co_await first_key(live, wish);
  if (!key) co_return key.error();
  const auto turn = co_await key_derivation(live);
  if (!turn) co_return turn.error();
  auto made = co_await ports_.luks.format(*device, std::move(*key), owner(live), while_served(live, later()));
  if (!made) co_return made;
  log::info("luks.made", {{"volume", live.id}, {"device", *device}});
  live.facts.luks.reset();
  co_return result<>();
}

task<result<>> Steps::luks_note(Volume& live) {
  auto noted = co_await live.image->set_metadata(kState, kEncrypted, soon());
  if (noted) live.facts.encryption = kEncrypted;
  if (!traits(live.record->kind).served) live.facts.ownership.reset();  // the note raised the header's version
  co_return noted;
}

task<result<>> Steps::luks_open(Volume& live, const Wish& wish) {
  const auto device = device_path(live);
  if (!device) co_return device.error();
  auto key = co_await volume_key(live, wish);
  if (!key) co_return key.error();
  const auto turn = co_await key_derivation(live);
  if (!turn) co_return turn.error();
  auto opened = co_await ports_.luks.open(*device, mapping_name(live.id), std::move(*key), live.record->read_only,
                                          owner(live), while_served(live, later()));
  if (!opened) co_return opened;
  log::info("luks.opened", {{"volume", live.id}, {"device", *device}});
  live.facts.fits = true;
  co_return result<>();
}

task<result<>> Steps::luks_resize(Volume& live) {
  auto resized = co_await ports_.luks.resize(mapping_name(live.id), owner(live), while_served(live, soon()));
  if (resized) live.facts.fits = true;
  co_return resized;
}

task<result<>> Steps::luks_close(Volume& live) {
  auto closed = co_await ports_.luks.close(mapping_name(live.id), owner(live), while_served(live, soon()));
  if (closed) log::info("luks.closed", {{"volume", live.id}});
  co_return closed;
}

task<result<>> Steps::add_key(Volume& live, const Wish& wish) {
  const auto device = device_path(live);
  if (!device) co_return device.error();
  const auto key = co_await volume_key(live, wish);
  if (!key) co_return key.error();
  live.facts.keys.reset();
  const auto turn = co_await key_derivation(live);
  if (!turn) co_return turn.error();
  co_return co_await ports_.luks.add_key(*device, kSecond, *key, *key, owner(live), while_served(live, later()));
}

task<result<>> Steps::new_key(Volume& live, const Wish& wish) {
  const auto device = device_path(live);
  if (!device) co_return device.error();
  const auto old_key = co_await volume_key(live, wish);
  if (!old_key) co_return old_key.error();
  const auto key = kms::make_volume_key();
  if (!key) co_return key.error();
  live.facts.keys.reset();
  const auto turn = co_await key_derivation(live);
  if (!turn) co_return turn.error();
  auto added = co_await ports_.luks.add_key(*device, kFirst, *old_key, *key, owner(live), while_served(live, later()));
  if (!added) co_return added;
  if (auto stopped = failpoint::hit("step.new_key.added"); !stopped) co_return stopped;
  auto stored = co_await store_key(live, *key, passphrase_of(wish));
  if (!stored) co_return stored;
  log::info("luks.rekeyed", {{"volume", live.id}});
  live.facts.rekeyed = true;
  co_return result<>();
}

task<result<>> Steps::remove_key(Volume& live, int slot) {
  const auto device = device_path(live);
  if (!device) co_return device.error();
  live.facts.keys.reset();
  co_return co_await ports_.luks.remove_key(*device, slot, owner(live), while_served(live, soon()));
}

}  // namespace corbd::volume
