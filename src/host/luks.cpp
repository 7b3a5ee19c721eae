// Implements the operations on LUKS with libcryptsetup. Each has a context of its own, so that nothing of a header or
// key outlives its request.
#include <fcntl.h>
#include <libcryptsetup.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "corbd/core/fd.hpp"
#include "corbd/host/luks.hpp"
#include "failure.hpp"
#include "luks_device.hpp"
#include "ops.hpp"

namespace corbd::host::ops {
namespace {

/// A mode of integrity as crypt_format() takes it, and the bytes of its key.
struct Integrity {
  std::string_view name;
  const char* hash;
  std::size_t key_bytes;
};
constexpr std::array kIntegrityModes{Integrity{"hmac-sha256", "hmac(sha256)", 32},
                                     Integrity{"hmac-sha512", "hmac(sha512)", 64}};

const Integrity* integrity_named(std::string_view name) {
  const auto* place = std::ranges::find(kIntegrityModes, name, &Integrity::name);
  return place == kIntegrityModes.end() ? nullptr : place;
}

crypt_pbkdf_type key_derivation(std::uint32_t iterations) {
  crypt_pbkdf_type pbkdf = *crypt_get_pbkdf_default(CRYPT_LUKS2);
  pbkdf.type = CRYPT_KDF_ARGON2ID;
  pbkdf.hash = "sha256";
  pbkdf.max_memory_kb = kKeyMemoryKib;  // ceph-csi's --pbkdf-memory
  if (iterations != 0) {
    pbkdf.iterations = iterations;
    pbkdf.flags |= CRYPT_PBKDF_NO_BENCHMARK;
  }
  return pbkdf;
}

/// Writes a header without a key slot.
result<> write_header(LuksDevice& on, const std::string& device, std::uint32_t iterations, const LuksFormat& how) {
  const auto* integrity = integrity_named(how.integrity);
  const std::size_t dash = how.cipher.find('-');
  if ((integrity == nullptr && !how.integrity.empty()) || dash == how.cipher.npos)
    return Error{errc::invalid_argument,
                 "no LUKS header is made with cipher '" + how.cipher + "' and integrity '" + how.integrity + "'"};
  const auto pbkdf = key_derivation(iterations);
  crypt_params_luks2 parameters{};
  parameters.pbkdf = &pbkdf;
  parameters.sector_size = how.sector_bytes;
  std::size_t key_bytes = how.key_bits / 8;
  if (integrity != nullptr) {
    parameters.integrity = integrity->hash;
    key_bytes += integrity->key_bytes;
  }
  const int r = crypt_format(on.context.get(), CRYPT_LUKS2, how.cipher.substr(0, dash).c_str(),
                             how.cipher.substr(dash + 1).c_str(), nullptr, nullptr, key_bytes, &parameters);
  if (r < 0) return on.failed("writing a LUKS header on " + device, r);
  return {};
}

/// Writes each sector once, because a sector without a tag cannot be read. No journal is used: a format that does not
/// end starts over.
result<> write_tags(LuksDevice& on, const std::string& device, const std::string& mapping) {
  constexpr std::size_t kPiece = 1 << 20;  // bytes
  crypt_volume_key_keyring(on.context.get(), 0);
  int r = crypt_activate_by_volume_key(on.context.get(), mapping.c_str(), nullptr, 0,
                                       CRYPT_ACTIVATE_PRIVATE | CRYPT_ACTIVATE_NO_JOURNAL);
  if (r < 0) return on.failed("opening the new LUKS volume on " + device, r);
  r = crypt_wipe(on.context.get(), ("/dev/mapper/" + mapping).c_str(), CRYPT_WIPE_ZERO, 0, 0, kPiece, 0, nullptr,
                 nullptr);
  result<> written;
  if (r < 0) written = on.failed("writing the tags of integrity on " + device, r);
  r = crypt_deactivate(on.context.get(), mapping.c_str());
  if (r < 0 && written) written = on.failed("closing the mapping " + mapping, r);
  return written;
}

/// Whether libcryptsetup uses this mapping below another, or temporarily, and does not close it by that name.
bool is_inner(std::string_view mapping) {
  return mapping.ends_with("_dif") || mapping.starts_with("temporary-cryptsetup-");
}

/// Works like `dmsetup remove`.
result<> remove_inner(const std::string& mapping) {
  const Fd control(::open("/dev/mapper/control", O_RDWR | O_CLOEXEC));
  if (!control) return failure("opening /dev/mapper/control", errno);
  dm_ioctl request{};
  request.version[0] = DM_VERSION_MAJOR;
  request.data_size = sizeof request;
  if (mapping.size() >= sizeof request.name) return Error{errc::invalid_argument, mapping + " is no name of a mapping"};
  std::ranges::copy(mapping, request.name);
  if (::ioctl(control.get(), DM_DEV_REMOVE, &request) != 0 && errno != ENXIO)
    return failure("closing the mapping " + mapping, errno);
  // udev does this on hosts that run it.
  ::unlink(("/dev/mapper/" + mapping).c_str());
  return {};
}

}  // namespace

result<LuksHeader> luks_look(const std::string& device) {
  auto found = probe(device);
  if (!found) return found.error();
  LuksHeader header{std::move(*found), {}};
  if (!is_luks(header.found)) return header;
  LuksDevice on;
  if (auto begun = begin(on, device); !begun) return begun.error();
  const int r = crypt_load(on.context.get(), CRYPT_LUKS, nullptr);
  if (r == 0) header.key_slots = used_slots(on.context.get());
  if (r == 0) header.memory_kib = memory_of(on.context.get());
  crypt_params_integrity integrity{};
  header.integrity =
      r == 0 && crypt_get_integrity_info(on.context.get(), &integrity) == 0 && integrity.integrity != nullptr;
  if (r < 0 && r != -EINVAL) return on.failed("reading the LUKS header of " + device, r);
  return header;
}

result<> luks_format(const std::string& device, const Secret& passphrase, std::uint32_t iterations,
                     const LuksFormat& how) {
  const auto header = luks_look(device);
  if (!header) return header.error();
  const bool unfinished = is_luks(header->found) && header->key_slots.empty();
  if (header->found.kind != Probe::Kind::nothing && !unfinished)
    return Error{errc::not_empty, "refusing to encrypt " + device + ": it already holds data" +
                                      (header->found.type.empty() ? "" : ", " + header->found.type)};
  LuksDevice on;
  if (auto begun = begin(on, device); !begun) return begun;
  if (auto written = write_header(on, device, iterations, how); !written) return written;
  if (!how.integrity.empty())
    if (auto written = write_tags(on, device, how.mapping); !written) return written;
  const auto text = passphrase.reveal();
  const int r = crypt_keyslot_add_by_volume_key(on.context.get(), 0, nullptr, 0, text.data(), text.size());
  if (r < 0) return on.failed("writing the first LUKS key on " + device, r);
  return {};
}

result<> luks_open(const std::string& device, const std::string& mapping, const Secret& passphrase, LuksOpening how) {
  LuksDevice open;
  const auto there = find_mapping(open, mapping);
  if (!there) return there.error();
  if (*there) {
    const char* below = crypt_get_device_name(open.context.get());
    if (below != nullptr && below == device) return {};
    return Error{errc::in_use, "the mapping " + mapping + " is open on " +
                                   (below == nullptr ? "another device" : below) + ", not on " + device +
                                   ": close it with `cryptsetup close`"};
  }
  LuksDevice on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  if (auto fits = check_costs(on, device); !fits) return fits;
  crypt_volume_key_keyring(on.context.get(), 0);
  const auto text = passphrase.reveal();
  const std::uint32_t flags =
      (how.read_only ? CRYPT_ACTIVATE_READONLY : 0) | (how.discard ? CRYPT_ACTIVATE_ALLOW_DISCARDS : 0);
  const int r =
      crypt_activate_by_passphrase(on.context.get(), mapping.c_str(), CRYPT_ANY_SLOT, text.data(), text.size(), flags);
  if (r < 0) return on.failed("opening the LUKS volume on " + device, r);
  return {};
}

result<> luks_resize(const std::string& mapping) {
  LuksDevice on;
  const auto there = find_mapping(on, mapping);
  if (!there) return there.error();
  if (!*there) return Error{errc::unavailable, "the mapping " + mapping + " is not open"};
  const int r = crypt_resize(on.context.get(), mapping.c_str(), 0);
  if (r < 0) return on.failed("making the mapping " + mapping + " as large as its device", r);
  return {};
}

result<> luks_close(const std::string& mapping) {
  if (is_inner(mapping)) return remove_inner(mapping);
  LuksDevice on;
  const auto there = find_mapping(on, mapping);
  if (!there) return there.error();
  if (!*there) return {};
  const int r = crypt_deactivate(on.context.get(), mapping.c_str());
  if (r < 0 && r != -ENODEV) return on.failed("closing the mapping " + mapping, r);
  return {};
}

result<bool> luks_opens(const std::string& device, int slot, const Secret& passphrase) {
  LuksDevice on;
  if (auto loaded = load(on, device); !loaded) return loaded.error();
  if (auto fits = check_costs(on, device); !fits) return fits.error();
  const auto text = passphrase.reveal();
  const int r = crypt_activate_by_passphrase(on.context.get(), nullptr, slot, text.data(), text.size(), 0);
  if (r == -EPERM) return false;
  if (r < 0) return on.failed("trying key slot " + std::to_string(slot) + " of " + device, r);
  return true;
}

result<> luks_add_key(const std::string& device, int slot, const Secret& known, const Secret& added,
                      std::uint32_t iterations) {
  LuksDevice on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  if (auto fits = check_costs(on, device); !fits) return fits;
  const auto pbkdf = key_derivation(iterations);
  const auto old_text = known.reveal(), new_text = added.reveal();
  int r = crypt_set_pbkdf_type(on.context.get(), &pbkdf);
  if (r >= 0)
    r = crypt_keyslot_add_by_passphrase(on.context.get(), slot, old_text.data(), old_text.size(), new_text.data(),
                                        new_text.size());
  if (r < 0) return on.failed("writing key slot " + std::to_string(slot) + " of " + device, r);
  return {};
}

result<> luks_remove_key(const std::string& device, int slot) {
  LuksDevice on;
  if (auto loaded = load(on, device); !loaded) return loaded;
  switch (crypt_keyslot_status(on.context.get(), slot)) {
    case CRYPT_SLOT_INACTIVE:
      return {};
    case CRYPT_SLOT_ACTIVE_LAST:
      return Error{errc::failed_precondition, "key slot " + std::to_string(slot) + " of " + device +
                                                  " is the last one, and nothing else opens the volume"};
    default:
      break;
  }
  const int r = crypt_keyslot_destroy(on.context.get(), slot);
  if (r < 0) return on.failed("wiping key slot " + std::to_string(slot) + " of " + device, r);
  return {};
}

}  // namespace corbd::host::ops
