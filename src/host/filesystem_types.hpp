// What differs between filesystem types: one row each. Nothing else in the agent knows a type by its name.
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

/// What a volume may ask of mkfs: nothing that names another file or device, or copies a folder of the node.
struct VolumesMkfs {
  /// A part of an option's value.
  struct Part {
    std::string_view option, name;
  };
  std::string_view letters = {};                 ///< as for getopt(3): a colon after one that has a value
  std::span<const std::string_view> words = {};  ///< after two dashes, as "label:"
  std::span<const Part> refused = {};            ///< although its option is among them
};

struct FilesystemType {
  std::string_view name;         ///< as the kernel and blkid call it. Its tools are mkfs.<name> and fsck.<name>
  bool offered = true;           ///< a volume may ask for it. Others are only grown: the image may hold one
  std::string_view package;      ///< Debian's, with all of its tools: deploy/packages reads it here
  std::string_view repair = {};  ///< what mends one that no check before a mount mends
  /// ceph-csi's options of mkfs for an image that was proven empty, and none of the features that kOldestKernel cannot
  /// mount. `zeroes`: the whole device reads as zeros.
  Arguments (*mkfs_options)(bool zeroes) = nullptr;
  VolumesMkfs mkfs = {};
  std::string_view encryption_option = {};  ///< of mkfs, so that a folder can be encrypted (fscrypt); empty: none can
  /// Of each mount of the device that does not have it with another value; empty: none.
  std::string_view (*mount_option)(const std::string& device) = nullptr;
  std::span<const std::string_view> device_options = {};  ///< of a mount, whose value names another device
  std::string_view panic_option = {};                     ///< of a mount: an error of the filesystem stops the node
  std::string_view inner_option = {};                     ///< of a mount: its value is a path within the filesystem
  std::string_view without_journal = {};     ///< mounts one whose journal cannot be replayed; empty: none does
  bool mounts_as_number_of_its_own = false;  ///< in mountinfo, instead of its device's
  std::span<const FeatureWord> features = {};
  /// Why a kernel may lack the format of the one on the device, and the way out; empty: it does not.
  std::string (*outdated)(const std::string& device) = nullptr;
  std::string_view twice = {};  ///< why a second one with the same UUID is not mounted (EEXIST), and the way out
  /// Whether a mounted one has errors that only a check clears; null: it does not tell.
  bool (*has_errors)(const std::string& device) = nullptr;
  /// The size of one that is mounted at `target`.
  result<Extent> (*extent)(const std::string& device, const std::string& target) = nullptr;
  /// The command that makes one as large as its device, while it is mounted at `target`.
  Arguments (*grow)(const std::string& device, const std::string& target) = nullptr;
  /// Does the same by the mount alone: a kernel may refuse to open the device of a mounted filesystem for writing.
  /// False: the command is to do it.
  bool (*grow_by_mount)(const std::string& device, const std::string& target) = nullptr;
};

/// "ext4, xfs, ...": for texts.
std::string known_filesystems();
/// The types that can encrypt a folder: for texts.
std::string encrypting_filesystems();
/// What a failed mount of that type means beyond its errno; nothing: no more.
std::optional<Error> mount_refusal(std::string_view fstype, const std::string& device, int error);
/// "run `xfs_repair` on the image (...)": for texts.
std::string way_to_repair(std::string_view fstype);
/// Nothing for a type without a row.
const FilesystemType* filesystem_type(std::string_view name);

}  // namespace corbd::host
