// Reads the attributes of a volume: ceph-csi's StorageClass parameters as far as a node sees them
// (docs/sources.md#parameters). Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/cephcsi/luks_options.hpp"
#include "corbd/cephcsi/serving.hpp"
#include "corbd/cephcsi/stash.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// Splits "krbd:a,b;nbd:c" by mounter. Items without a mounter are krbd's, and the last of several for one mounter
/// counts.
struct MapOptions {
  std::string krbd, nbd;
  bool operator==(const MapOptions&) const = default;
};
/// invalid_argument: an unknown mounter.
result<MapOptions> split_map_options(std::string_view text);

/// rbd-nbd's options, as far as they have a meaning here.
struct NbdOptions {
  bool read_only = false;
  Serving serving;
  std::vector<std::string> ignored;  ///< a sentence each, without the option's value
  bool operator==(const NbdOptions&) const = default;
};
/// Parses "notrim,reattach-timeout=600,rbd-op-threads=2". invalid_argument: an impossible value, or an option that
/// acknowledges writes before they are stored.
result<NbdOptions> parse_nbd_options(std::string_view list);

/// Returns the kernel's map options as they were given, without rbd(8)'s own "noudev". invalid_argument: bytes that no
/// option has, or an option that the agent sets itself (name, secret, key, _pool_ns).
result<std::string> parse_kernel_options(std::string_view list);
/// Whether the options ask for a read-only device.
bool kernel_read_only(std::string_view options);

/// The client that serves a volume, as far as its attributes do not say it.
struct Mounters {
  Mounter unnamed = Mounter::nbd;                 ///< for volumes that name none: nbd or krbd
  std::optional<Mounter> instead = std::nullopt;  ///< overrides the attributes: nbd or krbd
};

struct Parameters {
  Mounter mounter = Mounter::nbd;
  bool is_static = false;       ///< the attributes name pool and image
  bool migrated = false;        ///< a volume of kubelet's own plugin: the image is the attribute imageName
  std::string kms_id;           ///< KMS of an encrypted volume; "": not encrypted
  std::string encryption_type;  ///< for an encrypted volume: kBlockEncryption or kFileEncryption
  LuksOptions luks;
  bool read_only = false;
  bool read_only_otherwise = false;  ///< read_only, if the other client served it
  Serving serving;
  KernelOptions kernel;
  OnDamage on_damage = OnDamage::fsck;
  std::vector<std::string> ignored;  ///< a sentence for each attribute that is set, but without effect here
  Stash stash;                       ///< values that go into ceph-csi's stash unchanged
  bool operator==(const Parameters&) const = default;
};
/// invalid_argument names the attribute.
result<Parameters> read_parameters(const Attributes& attributes, const Mounters& mounters = {});

/// Attribute of a volume that names its OnDamage. It is corbd's own, and ceph-csi ignores it.
inline constexpr const char* kOnDamage = "corbd/on-damage";
/// The word for it, as in the attribute.
std::string_view name(OnDamage policy);

/// The encrypted object: the device below the filesystem, or the files in one of its folders.
inline constexpr std::string_view kBlockEncryption = "block", kFileEncryption = "file";
/// Checks the type of an encrypted volume: invalid_argument if ceph-csi does not know it.
result<> check_encryption_type(std::string_view type);

/// True for the texts that Go's strconv.ParseBool takes for true. Anything else is false, as in ceph-csi.
bool go_true(std::string_view text);

}  // namespace corbd::cephcsi
