// Values about this node's mounts, filesystems and LUKS headers. Nothing here makes a call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/fields.hpp"
#include "corbd/core/result.hpp"

namespace corbd::host {

/// Place of a mount in the filesystem below it, independent of the path by which it is seen.
struct Place {
  std::uint32_t dev_major = 0, dev_minor = 0;
  std::string path;                      ///< within that filesystem; empty: unknown
  std::uint64_t shared = 0, master = 0;  ///< propagating peer groups of the mount below; 0: none
  bool operator==(const Place&) const = default;
};

/// One line of /proc/self/mountinfo.
struct Mount {
  std::uint64_t id = 0;
  std::uint32_t dev_major = 0, dev_minor = 0;  ///< number of the filesystem; for a bind of a device node, devtmpfs
  std::string root;  ///< within the filesystem: "/", or "/nbd0" for a bind of a device node from devtmpfs
  std::string target;
  std::string fstype;
  std::string source;
  std::string options;                ///< flags of the mount, comma separated
  bool read_only = false;             ///< this mount's own flag
  bool filesystem_read_only = false;  ///< the superblock's flag; an error sets it too
  Place place = {};
  bool operator==(const Mount&) const = default;
};

/// Whether `twin` is the same mount seen by another path, so that the kernel unmounts it with `of`: both stand at one
/// place, and the mounts below them propagate. A bind of it elsewhere, as a pod has it, is no twin.
inline bool goes_with(const Mount& twin, const Mount& of) {
  const bool same = twin.id != of.id && twin.dev_major == of.dev_major && twin.dev_minor == of.dev_minor &&
                    twin.root == of.root && !of.place.path.empty() && twin.place.path == of.place.path &&
                    twin.place.dev_major == of.place.dev_major && twin.place.dev_minor == of.place.dev_minor;
  const std::uint64_t group = of.place.shared;
  return same && group != 0 && (twin.place.shared == group || twin.place.master == group);
}

/// blkid's answer about a device. ambivalent: it found two signatures at once. Such a device is never formatted or
/// mounted.
struct Probe {
  enum class Kind { nothing, filesystem, partitions, other, ambivalent } kind = Kind::ambivalent;
  std::string type;  ///< "ext4"
  static constexpr std::tuple fields{fields::required("kind", &Probe::kind), fields::required("type", &Probe::type)};
};

/// The filesystem types that a volume may ask for.
std::vector<std::string> offered_filesystems();
/// Whether that type can encrypt a folder (fscrypt).
bool encrypts_files(std::string_view fstype);
/// Returns the command that repairs such a filesystem; empty: it is not known.
std::string repair_command(std::string_view fstype);
/// Returns the mount option that skips the replay of its journal; empty: there is none.
std::string option_without_journal(std::string_view fstype);
/// Whether a range of its free space can be discarded alone. The others go over the whole device each time.
bool trims_in_pieces(std::string_view fstype);
/// ceph-csi's default type for an empty image.
inline constexpr std::string_view kDefaultFilesystem = "ext4";
/// Whether mount flags ("noatime,ro") ask for a read-only mount: the last "ro" or "rw" counts.
bool mounts_read_only(std::string_view flags);
/// Returns those of nosuid, nodev and noexec that are in effect, as flags again: "nosuid,nodev".
std::string protections(const std::string& flags);

/// Checks the mount options that a volume may ask for. invalid_argument: an option that names another file or device of
/// the node, stops the node at an error, or makes the mount another operation. No type is needed, because it may not be
/// known.
result<> check_mount_options(const std::string& flags);
/// Checks mkfsOptions in the same way: refuses each option that is not known to affect the volume alone, and says the
/// way out.
result<> check_mkfs_options(const std::string& fstype, const std::string& options);

/// Parses "ext4:-m1 -b4096;xfs:-K", by type. invalid_argument: a type that is not offered, or no options.
result<std::map<std::string, std::string>> options_by_type(std::string_view text);

/// The result of a check that an operator asked for.
struct Inspection {
  bool clean = false;   ///< no error is left
  std::string command;  ///< as it ran: "e2fsck -f -n /dev/nbd0"
  std::string report;   ///< its words; the end of them, if they were many
  static constexpr std::tuple fields{fields::required("clean", &Inspection::clean),
                                     fields::required("command", &Inspection::command),
                                     fields::required("report", &Inspection::report)};
};

/// Size of a mounted filesystem.
struct Extent {
  std::uint64_t bytes = 0;
  std::uint32_t block_bytes = 0;
  static constexpr std::tuple fields{fields::required("bytes", &Extent::bytes),
                                     fields::required("block_bytes", &Extent::block_bytes)};
};

/// Whether the device has room for another block of the filesystem.
constexpr bool has_room(const Extent& filesystem, std::uint64_t device_bytes) {
  return device_bytes > filesystem.bytes + filesystem.block_bytes;
}

/// statvfs(3) of a filesystem. "Available" means available to an unprivileged user.
struct Usage {
  std::uint64_t bytes = 0, bytes_used = 0, bytes_available = 0;
  std::uint64_t inodes = 0, inodes_used = 0, inodes_available = 0;  ///< 0: the filesystem does not count them
  static constexpr std::tuple fields{fields::required("bytes", &Usage::bytes),
                                     fields::required("bytes_used", &Usage::bytes_used),
                                     fields::required("inodes", &Usage::inodes),
                                     fields::required("bytes_available", &Usage::bytes_available),
                                     fields::required("inodes_used", &Usage::inodes_used),
                                     fields::required("inodes_available", &Usage::inodes_available)};
};

/// Content of a device where an encrypted volume's header should be.
struct LuksHeader {
  Probe found;  ///< blkid's result: other, "crypto_LUKS", for a header
  std::vector<int>
      key_slots;  ///< slots in use. Without any, nothing can ever open it: its format did not end, or it is damaged
  bool integrity = false;        ///< its sectors have tags, which only one node at a time can maintain
  std::uint32_t memory_kib = 0;  ///< needed for trying the costliest of its key slots
  static constexpr std::tuple fields{
      fields::required("found", &LuksHeader::found), fields::required("key_slots", &LuksHeader::key_slots),
      fields::required("integrity", &LuksHeader::integrity), fields::required("memory_kib", &LuksHeader::memory_kib)};
};

/// Whether it is a LUKS header, of either version and in whatever state.
inline bool is_luks(const Probe& found) {
  return found.kind == Probe::Kind::other && found.type.starts_with("crypto_LUKS");
}

/// ceph-csi's name for the encrypted folder of a mounted filesystem.
inline constexpr const char* kEncryptedFolder = "ceph-csi-encrypted";

enum class EncryptedFolder {
  none,    ///< it does not exist, or is empty and not encrypted
  plain,   ///< it holds unencrypted files
  locked,  ///< the kernel has no key for it
  unlocked
};

/// Conditions of a mkfs besides its options.
struct MkfsFor {
  bool zeroes = false;           ///< parts of the device that were never written read as zeroes
  bool files_encrypted = false;  ///< the filesystem must be able to encrypt a folder
  static constexpr std::tuple fields{fields::required("zeroes", &MkfsFor::zeroes),
                                     fields::required("files_encrypted", &MkfsFor::files_encrypted)};
};

/// A volume's use of the number of an nbd device, whatever the number was before.
struct NumberUse {
  bool read_only = false;
  bool flush = false;  ///< the device sends flushes, and they have an effect
  static constexpr std::tuple fields{fields::required("read_only", &NumberUse::read_only),
                                     fields::required("flush", &NumberUse::flush)};
};

}  // namespace corbd::host
