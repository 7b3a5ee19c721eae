// The kernel's view of a block device of this node: values, without a driver.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::device {

/// The server of a device: this agent, or the kernel's own rbd client. In the order of kTraits.
enum class Kind { nbd, krbd };

/// Differences between the kinds. Code that depends on such a difference reads it here, and does not compare kinds.
struct Traits {
  Kind kind;
  std::string_view name;    ///< name in records, in the log, and for people
  std::string_view prefix;  ///< prefix of a device's name: "nbd" in /dev/nbd0
  int records;  ///< first version of records with this kind: an older agent takes an unknown kind for a corrupt record,
                ///< and a newer version for what it is
  bool served;  ///< this agent serves it through a link, heals it, and can give it up. Otherwise the kernel serves it
                ///< without an agent
  bool identified;  ///< the kernel stores the volume ID with the device. Otherwise the device is found by its image
  bool shows_pid;   ///< sysfs has the attribute `pid` of a device while it is configured
  bool rbd_nbd;     ///< ceph-csi serves such a device with rbd-nbd. Otherwise ceph-csi lets the kernel serve it
};

/// A record without a kind has the first one.
inline constexpr std::array kTraits{
    Traits{.kind = Kind::nbd,
           .name = "nbd",
           .prefix = "nbd",
           .records = 1,
           .served = true,
           .identified = true,
           .shows_pid = true,
           .rbd_nbd = true},
    Traits{.kind = Kind::krbd,
           .name = "krbd",
           .prefix = "rbd",
           .records = 1,
           .served = false,
           .identified = false,
           .shows_pid = false,
           .rbd_nbd = false},
};

/// Kind of a new volume that this agent serves.
inline constexpr Kind kServing = Kind::nbd;
/// Kind of the devices of the kernel's own client (KernelClient).
inline constexpr Kind kMapped = Kind::krbd;
/// Kind of the devices of rbd-nbd.
inline constexpr Kind kOfRbdNbd = Kind::nbd;

constexpr const Traits& traits(Kind kind) { return kTraits[static_cast<std::size_t>(kind)]; }

static_assert(std::ranges::all_of(kTraits, [](const Traits& row) { return &traits(row.kind) == &row; }),
              "a row for each kind, in the order of Kind");
static_assert(traits(kServing).served && !traits(kMapped).served && traits(kOfRbdNbd).rbd_nbd);

/// Finds a kind by Traits::name; nullptr: this agent has no such kind.
constexpr const Traits* find_kind(std::string_view name) {
  const auto* found = std::ranges::find(kTraits, name, &Traits::name);
  return found == kTraits.end() ? nullptr : found;
}

/// Finds the row of a device by its name, "nbd0" or a partition's "nbd0p1"; nullptr: no kind has such names.
constexpr const Traits* traits_of(std::string_view device) {
  const auto* found = std::ranges::find_if(kTraits, [&](const Traits& row) { return device.starts_with(row.prefix); });
  return found == kTraits.end() ? nullptr : found;
}

/// The program that made a mapping, by the beginning of device-mapper's UUID.
enum class Maker { other, lvm, multipath, crypt };
inline Maker maker_of(std::string_view uuid) {
  if (uuid.starts_with("LVM-")) return Maker::lvm;
  if (uuid.starts_with("CRYPT-")) return Maker::crypt;
  return uuid.find("mpath-") == uuid.npos ? Maker::other : Maker::multipath;  // "part1-mpath-" is a partition of a map
}

/// A device on top of another, as sysfs shows it.
struct UpperDevice {
  std::string name;        ///< the kernel's: "dm-0"
  std::string mapping;     ///< device-mapper's: "luks-rbd-<volume id>"; empty for anything else
  std::uint64_t size = 0;  ///< bytes
  std::uint32_t dev_major = 0, dev_minor = 0;
  Maker maker = Maker::other;
  bool read_only = false;  ///< the kernel refuses writes
  bool operator==(const UpperDevice&) const = default;
};

/// Returns the volume group in device-mapper's name of a logical volume: "vg-1" in "vg--1-root".
inline std::string volume_group(std::string_view mapping) {
  std::string group;
  for (std::size_t at = 0; at < mapping.size(); ++at) {
    if (mapping[at] == '-' && (at + 1 == mapping.size() || mapping[++at] != '-')) break;
    group += mapping[at];
  }
  return group;
}

/// A configured device as sysfs shows it.
struct Seen {
  Kind kind = Kind();
  std::uint32_t index = 0;  ///< /dev/nbd<index>, /dev/rbd<index>
  std::string backend;      ///< nbd: the volume ID, given at connect. Empty: another program connected it without one
  std::string client;       ///< krbd: its client's address in the cluster, "10.0.0.1:0/123456789"
  std::string user;         ///< krbd: its client's Ceph user, without "client."; empty: the kernel does not tell
  std::uint64_t size = 0;   ///< bytes
  std::uint32_t dev_major = 0, dev_minor = 0;
  std::uint32_t io_timeout_ms = 0;
  /// Requests that the driver sent and that are not answered yet, also those sent on a link that died since. Requests
  /// that came after it died wait unsent, and do not count.
  std::uint32_t waiting = 0;
  /// nbd, while requests wait (else 0): requests answered since the kernel made the device. It is read before
  /// `waiting`: the same number twice means that the same requests still wait.
  std::uint64_t completed = 0;
  /// A command of this process disconnected it. It takes no link any more, and stays as long as somebody has it open.
  bool disconnected = false;
  bool read_only = false;  ///< the kernel refuses writes: connected so, or left so by an earlier user of the number
  std::vector<UpperDevice> holders;  ///< devices above it and above its partitions
};

/// Abilities of the kernel's own rbd client.
struct Abilities {
  std::uint64_t features = 0;  ///< image features that it knows, by librbd's numbers
  bool aes256k = false;        ///< it knows keys of that type
};

/// A command to the kernel's driver whose end is not known. It cannot be undone, and may outlive its caller.
struct Command {
  std::string what;                             ///< "disconnecting /dev/nbd0"
  std::chrono::system_clock::time_point since;  ///< start of the command
};

/// Returns "nbd0" or "rbd0".
inline std::string name(Kind kind, std::uint32_t index) {
  return std::string(traits(kind).prefix) + std::to_string(index);
}
/// Returns "/dev/nbd0" or "/dev/rbd0".
inline std::string path(std::uint32_t index, Kind kind = Kind()) { return "/dev/" + name(kind, index); }
inline std::string path(const Seen& seen) { return path(seen.index, seen.kind); }

}  // namespace corbd::device
