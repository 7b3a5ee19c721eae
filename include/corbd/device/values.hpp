// What the kernel shows of a block device of this node: values, without a driver.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace corbd::device {

/// Who answers for a device: this agent, or the kernel's own rbd client.
enum class Kind { nbd, krbd };

/// What differs between the kinds. Code that depends on such a difference asks here, not for the kind.
struct Traits {
  Kind kind;
  std::string_view prefix;  ///< of a device's name: "nbd" in /dev/nbd0
  std::string_view record;  ///< the kind, as a record has it
  bool served;  ///< this agent answers for it through a link, heals it, and can give it up. Otherwise the kernel does,
                ///< and needs no agent
  bool identified;  ///< the kernel keeps the volume ID with the device. Otherwise the device is found by its image
  bool rbd_nbd;     ///< ceph-csi has rbd-nbd serve such a device. Otherwise ceph-csi has the kernel serve it
};

/// In the order of Kind.
inline constexpr std::array kTraits{
    Traits{.kind = Kind::nbd, .prefix = "nbd", .record = "nbd", .served = true, .identified = true, .rbd_nbd = true},
    Traits{
        .kind = Kind::krbd, .prefix = "rbd", .record = "krbd", .served = false, .identified = false, .rbd_nbd = false},
};

static_assert(kTraits[0].kind == Kind::nbd && kTraits[1].kind == Kind::krbd && kTraits.size() == 2,
              "a row for each kind, in the order of Kind");

constexpr const Traits& traits(Kind kind) { return kTraits[static_cast<std::size_t>(kind)]; }

/// A device on top of another, as sysfs shows it.
struct UpperDevice {
  std::string name;        ///< the kernel's: "dm-0"
  std::string mapping;     ///< device-mapper's: "luks-rbd-<volume id>"; empty for anything else
  std::uint64_t size = 0;  ///< bytes
  std::uint32_t dev_major = 0, dev_minor = 0;
  bool operator==(const UpperDevice&) const = default;
};

/// A configured device as sysfs shows it.
struct Seen {
  Kind kind = Kind::nbd;
  std::uint32_t index = 0;  ///< /dev/nbd<index>, /dev/rbd<index>
  std::string backend;  ///< nbd: the identifier given at connect, the volume ID. Empty: another program's, without one
  std::string client;   ///< krbd: its client's address as the cluster sees it, "10.0.0.1:0/123456789"
  std::uint64_t size = 0;  ///< bytes
  std::uint32_t dev_major = 0, dev_minor = 0;
  std::uint32_t io_timeout_ms = 0;
  std::uint32_t waiting = 0;  ///< requests given to the driver and not answered yet
  /// nbd, while requests wait (else 0): requests answered since the kernel made the device. Read before `waiting`: the
  /// same number twice means that what waited still waits.
  std::uint64_t completed = 0;
  bool disconnected =
      false;  ///< by a command of this process. It takes no link any more, and stays as long as somebody has it open
  std::vector<UpperDevice> holders;  ///< of its partitions too
};

/// What the kernel's own rbd client can do.
struct Abilities {
  std::uint64_t features = 0;  ///< of images that it knows, as librbd numbers them
  bool aes256k = false;        ///< it knows keys of that type
};

/// A command to the kernel's driver whose end is not known. It cannot be taken back, and may outlive its caller.
struct Command {
  std::string what;                             ///< "disconnecting /dev/nbd0"
  std::chrono::system_clock::time_point since;  ///< when it was asked for
};

/// "nbd0", "rbd0"
inline std::string name(Kind kind, std::uint32_t index) {
  return std::string(traits(kind).prefix) + std::to_string(index);
}
/// "/dev/nbd0", "/dev/rbd0"
inline std::string path(std::uint32_t index, Kind kind = Kind::nbd) { return "/dev/" + name(kind, index); }
inline std::string path(const Seen& seen) { return path(seen.index, seen.kind); }

}  // namespace corbd::device
