// What the attributes of a volume say: ceph-csi's StorageClass parameters as far as a node sees them
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

/// "krbd:a,b;nbd:c" by mounter; items without a mounter are krbd's, and of several for one mounter the last counts.
struct MapOptions {
  std::string krbd, nbd;
  bool operator==(const MapOptions&) const = default;
};
/// invalid_argument: an unknown mounter.
result<MapOptions> split_map_options(std::string_view text);

/// rbd-nbd's options as far as they have a meaning here.
struct NbdOptions {
  bool read_only = false;
  Serving serving;
  std::vector<std::string> ignored;  ///< a sentence each, without the option's value
  bool operator==(const NbdOptions&) const = default;
};
/// "notrim,reattach-timeout=600,rbd-op-threads=2". invalid_argument: a value that none can be, or an option that
/// acknowledges writes before they are stored.
result<NbdOptions> parse_nbd_options(std::string_view list);

/// The kernel's options of a map as they were given, without rbd(8)'s own "noudev". invalid_argument: bytes that no
/// option has, or an option that the agent gives itself (name, secret, key, _pool_ns).
result<std::string> parse_kernel_options(std::string_view list);
/// Whether they ask for a read-only device.
bool kernel_read_only(std::string_view options);

/// Who serves a volume, besides what its attributes say.
struct Mounters {
  Mounter unnamed = Mounter::nbd;                 ///< where they name none: nbd or krbd
  std::optional<Mounter> instead = std::nullopt;  ///< whatever they name: nbd or krbd
};

struct Parameters {
  Mounter mounter = Mounter::nbd;
  bool is_static = false;       ///< the attributes name pool and image
  bool migrated = false;        ///< of the kubelet's own plugin: the image is the attribute imageName
  std::string kms_id;           ///< of an encrypted volume; "": not encrypted
  std::string encryption_type;  ///< of an encrypted volume: kBlockEncryption or kFileEncryption
  LuksOptions luks;
  bool read_only = false;
  bool read_only_otherwise = false;  ///< if the other client served it
  Serving serving;
  KernelOptions kernel;
  std::vector<std::string> ignored;  ///< set, but without effect here: a sentence each
  Stash stash;                       ///< what goes into ceph-csi's as it is
  bool operator==(const Parameters&) const = default;
};
/// invalid_argument names the attribute.
result<Parameters> read_parameters(const Attributes& attributes, const Mounters& mounters = {});

/// What is encrypted: the device below the filesystem, or the files in a folder of it.
inline constexpr std::string_view kBlockEncryption = "block", kFileEncryption = "file";
/// For an encrypted volume: invalid_argument for a type that ceph-csi does not know.
result<> check_encryption_type(std::string_view type);

/// As Go's strconv.ParseBool takes for true; anything else is false, as ceph-csi has it.
bool go_true(std::string_view text);

}  // namespace corbd::cephcsi
