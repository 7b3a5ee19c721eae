// Port to LUKS on this node's devices, by libcryptsetup in a helper process, with ceph-csi's parameters
// (docs/sources.md#luks). Each call that takes a passphrase costs an argon2, with as much memory as the header says
// (LuksHeader::memory_kib): the caller bounds how many run at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/host/host.hpp"

namespace corbd::host {

/// Memory that a key slot of corbd or ceph-csi needs, and the limit for any slot: cryptsetup by itself takes no more.
inline constexpr std::uint32_t kKeyMemoryKib = 32 << 10, kMaxKeyMemoryKib = 1 << 20;

/// Parameters of a new header.
struct LuksFormat {
  std::string cipher = "aes-xts-plain64";
  std::uint32_t key_bits = 512;
  std::string integrity;           ///< "hmac-sha256", "hmac-sha512"; "": none
  std::uint32_t sector_bytes = 0;  ///< 0: the device's preferred size
  std::string mapping;             ///< name of the volume's mapping: with it the tags of integrity are written
  static constexpr std::tuple fields{
      fields::required("cipher", &LuksFormat::cipher), fields::required("key_bits", &LuksFormat::key_bits),
      fields::required("integrity", &LuksFormat::integrity),
      fields::required("sector_bytes", &LuksFormat::sector_bytes), fields::required("mapping", &LuksFormat::mapping)};
};

/// How a mapping is opened.
struct LuksOpening {
  bool read_only = false;
  bool discard = false;  ///< it lets discards through. Not with integrity
  static constexpr std::tuple fields{fields::required("read_only", &LuksOpening::read_only),
                                     fields::required("discard", &LuksOpening::discard)};
};

/// unauthenticated: no key slot (or not that one) opens with the passphrase; nothing was changed. exhausted: the memory
/// limit of this process's cgroup leaves less than the header needs.
class Luks {
 public:
  virtual ~Luks() = default;
  virtual task<result<LuksHeader>> look(std::string device, HelperOwner owner, Until until) = 0;
  /// Writes a LUKS2 header with sha256, argon2id with 32 MiB, and the passphrase in slot 0. not_empty for a device with
  /// anything but a header without a key. With integrity it writes the whole device once, before any key opens it, and
  /// may take hours.
  virtual task<result<>> format(std::string device, LuksFormat how, Secret passphrase, HelperOwner owner,
                                Until until) = 0;
  /// Opens it as /dev/mapper/<mapping>, with the volume key in no keyring. Succeeds too if it is open on this device
  /// already, however it was opened; in_use if it is open on another.
  virtual task<result<>> open(std::string device, std::string mapping, Secret passphrase, LuksOpening how,
                              HelperOwner owner, Until until) = 0;
  /// Makes an open mapping as large as its device. Succeeds too if it already is.
  virtual task<result<>> resize(std::string mapping, HelperOwner owner, Until until) = 0;
  /// Closes a mapping. Succeeds too if it is not open. in_use if somebody uses it. With integrity the mapping below is
  /// closed too. That one, and the remains of a killed format, can be closed by their own names.
  virtual task<result<>> close(std::string mapping, HelperOwner owner, Until until) = 0;
  /// Whether the slot is in use and opens with the passphrase.
  virtual task<result<bool>> opens(std::string device, int slot, Secret passphrase, HelperOwner owner, Until until) = 0;
  /// Puts `added` into a free slot; `known` opens any other.
  virtual task<result<>> add_key(std::string device, int slot, Secret known, Secret added, HelperOwner owner,
                                 Until until) = 0;
  /// Wipes a slot. Succeeds too if the slot is free. Never wipes the last one.
  virtual task<result<>> remove_key(std::string device, int slot, HelperOwner owner, Until until) = 0;
};

}  // namespace corbd::host
