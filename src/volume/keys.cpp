// Tells which Ceph users and keys a volume has, and which it is to have. Pure.
#include "corbd/core/append_wiping.hpp"
#include "volume.hpp"

namespace corbd::volume {
namespace {

ShownKey shown(const Credential& of) { return volume::shown(of.user, of.key); }

/// The user and key that serve the volume, or are to heal it. `key` may be empty: the kernel tells the user of its
/// client, and nobody its key. An rbd-nbd tells neither.
std::optional<Credential> present_of(const Volume& volume, const device::Seen* seen) {
  if (volume.record->adopting) return std::nullopt;
  if (const auto* own = volume.server.own()) return own->opened_as;
  const bool by_kernel = !traits(volume.record->device.kind).served;
  const bool mapped = by_kernel && volume.record->device.index && !volume.device.gone;
  if (seen == nullptr && mapped) return std::nullopt;
  if (!by_kernel || seen == nullptr) {
    const Credential& known = volume.credentials.known();
    return known.empty() ? std::nullopt : std::optional(known);
  }
  if (seen->user.empty()) return std::nullopt;
  const auto& mapped_as = volume.device.mapped_as;
  return mapped_as && mapped_as->user == seen->user ? *mapped_as : Credential{seen->user, {}};
}

/// Finds what the volume is to have, if that is something else.
std::optional<Credential> next_of(const Volume& volume, const Credential& present) {
  const auto differs = [&](const Credential& one) {
    return !one.empty() && (present.empty() ? one.user != present.user : one != present);
  };
  const Credential& known = volume.credentials.known();
  if (differs(known)) return known;
  const auto& unused = volume.unused_key;
  return unused && differs(unused->credential) ? std::optional(unused->credential) : std::nullopt;
}

std::string why_not(const Volume& volume, const std::optional<Credential>& next, bool mapped) {
  if (!next) return volume.secret_unread;
  if (mapped)
    return "the kernel's client keeps the user and key with which it mapped the image: end the volume's pods on this "
           "node, so that it is unstaged, and stage it again";
  return volume.unused_key && volume.unused_key->credential == *next ? volume.unused_key->why : "";
}

}  // namespace

ShownKey shown(const std::string& user, const Secret& key) {
  constexpr std::size_t digits = 12;
  if (key.empty()) return {user, {}, {}, {}};
  std::string text = "client." + user + " ";
  append_wiping(text, key.reveal());
  const Secret both(std::move(text));
  return {user, sha256_hex(both.reveal()).substr(0, digits), cephcsi::key_type(key.reveal()),
          cephcsi::made_at(key.reveal())};
}

VolumeKeys keys_of(const Volume& volume, const device::Seen* seen) {
  VolumeKeys keys;
  const auto present = present_of(volume, seen);
  if (present) keys.present = shown(*present);
  const auto next = present ? next_of(volume, *present) : std::nullopt;
  if (next) keys.next = shown(*next);
  keys.why_not = why_not(volume, next, seen != nullptr && !traits(volume.record->device.kind).served);
  const auto add_other = [&](const std::string& user) {
    if (!user.empty() && (!present || present->user != user)) keys.others.push_back(user);
  };
  if (const auto& other = volume.credentials.other()) add_other(other->user);
  // The next agent reads the files.
  if (volume.record->user != volume.credentials.known().user) add_other(volume.record->user);
  return keys;
}

}  // namespace corbd::volume
