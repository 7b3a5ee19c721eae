// Converts a person's text into a mount of the manager, and a claim back. Only key files are read.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::mounting {

/// The volume and its mount point, from the command line or from a file of mounts.d.
struct MountSpec {
  std::string image;  ///< POOL/IMAGE, IMAGE in the pool rbd, or the ID of a volume that a provisioner made
  std::string dir;
  std::string cluster;  ///< clusterID; empty: the fsid of `conf`
  std::string conf = "/etc/ceph/ceph.conf", user = "admin";
  std::string keyring;  ///< empty: Ceph's default places
  std::string fstype;   ///< empty: the existing one, and the plugin's default for an empty image
  std::string options;  ///< mount options, comma separated
  std::string kms;      ///< KMS of an encrypted volume; empty: not encrypted
  std::string passphrase_file;
  std::vector<std::string> attributes;  ///< "name=value"; override attributes that follow from the other options
  bool read_only = false, block = false;
};

/// invalid_argument: image and dir do not make sense together. The errors name the option that helps.
result<manager::Mount> mount_of(const MountSpec& spec);
/// Returns the pool of the image; empty: the image is named by the ID of a volume, which contains it.
result<std::string> pool_of(const MountSpec& spec);
/// Sets the value of a key in a file of mounts.d. Returns the mistake in it, or an empty text.
std::string assign(MountSpec& spec, std::string_view key, const std::string& value);
/// Returns the spec that made the claim, so that it can be mounted again. Keys are read again, because no claim has
/// one.
MountSpec spec_of(const manager::Claim& claim);

/// Whether the claim is for the wanted volume, and for nothing else at its target.
bool same_volume(const manager::Claim& claim, const manager::Mount& mount);
/// Properties of a mounted volume that a new mount keeps, although it asks for others. Claims of older versions have
/// ext4 if no type was asked for.
enum class Keeps { type, type_and_options };
/// Whether the mounted volume is suitable then. `mount` has its type and options afterwards.
bool keep_mounted(manager::Mount& mount, const manager::Claim& there, Keeps keeps);

/// Passes every line "key = value" to `take`, which returns the mistake in it, or an empty text. '#' starts a comment.
/// invalid_argument names the line.
result<> read_settings(std::string_view text,
                       const std::function<std::string(std::string_view key, std::string_view value)>& take);
/// Parses a file of mounts.d. Keys have the names of the options of `corbd mount`, without dashes in front.
result<MountSpec> parse_mount_file(std::string_view text);
/// A *.conf file of the folder, with its path; ordered by name. No folder: no files.
struct MountFile {
  std::string path;
  result<MountSpec> spec;
};
std::vector<MountFile> read_mount_files(const std::string& folder);

}  // namespace corbd::mounting
