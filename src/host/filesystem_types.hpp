// The differences between filesystem types: one value each, in the file of its family. No other code of the agent names
// a type.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/host/values.hpp"
#include "features.hpp"

namespace corbd::host {

using Arguments = std::vector<std::string>;

/// mkfs options that a volume may use: none that names another file or device, or copies a folder of the node.
struct VolumesMkfs {
  /// A part of an option's value.
  struct Part {
    std::string_view option, name;
  };
  std::string_view letters = {};                 ///< in the format of getopt(3): a colon follows an option with a value
  std::span<const std::string_view> words = {};  ///< allowed after two dashes, as "label:"
  std::span<const Part> refused = {};            ///< parts that are refused although their option is allowed
};

struct FilesystemType {
  std::string_view name;         ///< the kernel's and blkid's name. Its tools are mkfs.<name> and fsck.<name>
  bool offered = true;           ///< a volume may ask for it. Others are only grown, because the image may hold one
  std::string_view package;      ///< Debian's package with all of its tools: deploy/packages reads it here
  std::string_view repair = {};  ///< command for damage that no check before a mount mends
  /// Options of fsck.<name> that look for damage and repair nothing, and those that only replay the journal; empty:
  /// nothing finds damage before a mount.
  std::string_view check = {}, replay = {};
  /// Commands that an operator would run on the device: one that changes nothing, and one that repairs what it can;
  /// empty: there is none that is safe without a person's look.
  std::string_view inspect = {}, mend = {};
  int mended = 0;  ///< bits of the exit code of `mend` that say that no error is left
  /// Returns ceph-csi's mkfs options for an image that was proven empty, and keeps out features that kOldestKernel
  /// cannot mount. `zeroes`: the whole device reads as zeroes.
  Arguments (*mkfs_options)(bool zeroes) = nullptr;
  VolumesMkfs mkfs = {};
  std::string_view encryption_option = {};  ///< mkfs option for encrypted folders (fscrypt); empty: none
  /// Returns an option that each mount of the device gets unless it sets it otherwise; empty: none.
  std::string_view (*mount_option)(const std::string& device) = nullptr;
  std::span<const std::string_view> device_options = {};  ///< mount options whose value names another device
  std::string_view panic_option = {};                     ///< mount option: an error of the filesystem stops the node
  std::string_view inner_option = {};                     ///< mount option whose value is a path within the filesystem
  std::string_view without_journal = {};     ///< mount option that skips the journal's replay; empty: there is none
  bool mounts_as_number_of_its_own = false;  ///< mountinfo has such a number instead of its device's
  bool trims_in_pieces = false;              ///< a FITRIM of a range leaves what is outside of it alone
  std::span<const FeatureWord> features = {};
  /// Returns why a kernel may lack the format of the filesystem on the device, and the way out; empty: it does not.
  std::string (*outdated)(const std::string& device) = nullptr;
  std::string_view twice = {};  ///< why a second one with the same UUID is not mounted (EEXIST), and the way out
  /// Whether a mounted filesystem has errors that only a check clears; null: it does not show them.
  bool (*has_errors)(const std::string& device) = nullptr;
  /// Returns the size of a filesystem that is mounted at `target`.
  result<Extent> (*extent)(const std::string& device, const std::string& target) = nullptr;
  /// Returns the command that makes a filesystem as large as its device, while it is mounted at `target`.
  Arguments (*grow)(const std::string& device, const std::string& target) = nullptr;
  /// Grows it through the mount alone: a kernel may refuse to open the device of a mounted filesystem for writing.
  /// Nothing: run the command.
  std::optional<result<>> (*grow_by_mount)(const std::string& device, const std::string& target) = nullptr;
};

/// Returns the blocks to which resize2fs makes an ext2, ext3 or ext4 on so many bytes: whole pages, and what 32 bits
/// count if it lacks the feature 64bit. Nothing: resize2fs refuses. The kernel's own call has no such bound.
std::optional<std::uint64_t> resize2fs_blocks(std::uint64_t bytes, std::uint32_t block, std::uint32_t page,
                                              bool is_64bit);

extern const FilesystemType kExt2, kExt3, kExt4, kXfs, kBtrfs;

/// Returns "ext4, xfs, ..." for error texts.
std::string known_filesystems();
/// Returns the types that can encrypt a folder, for error texts.
std::string encrypting_filesystems();
/// Explains a failed mount of that type beyond its errno; nothing: the errno says it all.
std::optional<Error> mount_refusal(std::string_view fstype, const std::string& device, int error);
/// Returns "run `xfs_repair` on the image (...)" for error texts.
std::string way_to_repair(std::string_view fstype);
/// Returns null for a type without a row.
const FilesystemType* filesystem_type(std::string_view name);

}  // namespace corbd::host
