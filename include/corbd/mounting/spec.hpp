// From what a person writes to a mount of the manager, and back from its claim. No call but reading key files.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::mounting {

/// The volume and where to mount it, from the command line or from a file of mounts.d.
struct MountSpec {
  std::string image;  ///< POOL/IMAGE, IMAGE in the pool rbd, or the ID of a volume that a provisioner made
  std::string dir;
  std::string cluster;  ///< clusterID; empty: the fsid of `conf`
  std::string conf = "/etc/ceph/ceph.conf", user = "admin";
  std::string keyring;  ///< empty: Ceph's own places
  std::string fstype;   ///< empty: what is there, and the plugin's default for an empty image
  std::string options;  ///< of the mount, comma separated
  std::string kms;      ///< of an encrypted volume; empty: not encrypted
  std::string passphrase_file;
  std::vector<std::string> attributes;  ///< "name=value"; they override what follows from the others
  bool read_only = false, block = false;
};

/// invalid_argument: image and dir do not make sense together. The errors name the option that helps.
result<manager::Mount> mount_of(const MountSpec& spec);
/// The pool of its image; empty: the image is named by the ID of a volume, which has it inside.
result<std::string> pool_of(const MountSpec& spec);
/// Sets what the key of a file of mounts.d says. What is wrong with it, or nothing.
std::string assign(MountSpec& spec, std::string_view key, const std::string& value);
/// What made the claim, so that it can be mounted again: keys are read again, because no claim has one.
MountSpec spec_of(const manager::Claim& claim);

/// Whether the claim is for the volume that is to be mounted, and for nothing else at its target.
bool same_volume(const manager::Claim& claim, const manager::Mount& mount);
/// Of a volume that is mounted already: what the mount leaves as it is, although the volume would be mounted otherwise.
/// Claims of older versions have ext4 where nobody asked for a type.
enum class Keeps { type, type_and_options };
/// Whether what is mounted suits then. `mount` has its type and options afterwards.
bool keep_mounted(manager::Mount& mount, const manager::Claim& there, Keeps keeps);

/// Gives every line "key = value" to `take`, which says what is wrong with it, or nothing. '#' is before comments.
/// invalid_argument names the line.
result<> read_settings(std::string_view text,
                       const std::function<std::string(std::string_view key, std::string_view value)>& take);
/// A file of mounts.d. Keys have the names of the options of `corbd mount`, without dashes in front.
result<MountSpec> parse_mount_file(std::string_view text);
/// Every *.conf of the folder, by name, with its path. No folder: none.
struct MountFile {
  std::string path;
  result<MountSpec> spec;
};
std::vector<MountFile> read_mount_files(const std::string& folder);

}  // namespace corbd::mounting
