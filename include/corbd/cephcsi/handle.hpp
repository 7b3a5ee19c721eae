// ceph-csi's volume ids: a pure codec. Decoded by length, because a cluster id may itself contain '-'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::cephcsi {

/// The volume ID that ceph-csi's provisioner makes (docs/sources.md#volume-id):
/// hex4(version) '-' hex4(length of the cluster id) '-' cluster id '-' hex16(pool id) '-' uuid.
struct Handle {
  std::string cluster_id;     ///< letters, digits, '-' and '_'
  std::int64_t pool_id = -1;  ///< pool of the image, never negative
  std::string uuid;           ///< as written: its case is part of the journal's name
  bool operator==(const Handle&) const = default;
};

/// invalid_argument names the part and the byte where it begins; the id itself is not repeated.
result<Handle> decode_handle(std::string_view id);
std::string encode(const Handle& handle);

/// The volume ID of a volume that kubelet's own RBD plugin made (docs/sources.md#migrated): "mig_mons-" md5 "_image-"
/// uuid '_' hex(pool name).
struct MigratedHandle {
  std::string cluster_id;  ///< md5 of the monitors
  std::string image;       ///< "kubernetes-dynamic-pvc-" uuid
  std::string pool;        ///< name
  bool operator==(const MigratedHandle&) const = default;
};

/// Errors are those of decode_handle().
result<MigratedHandle> decode_migrated_handle(std::string_view id);
std::string encode(const MigratedHandle& handle);

}  // namespace corbd::cephcsi
