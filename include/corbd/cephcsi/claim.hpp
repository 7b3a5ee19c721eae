// The names under which people know a volume. Provisioners and kubelet pass them as attributes, and ceph-csi's
// provisioner also as metadata of the image (docs/sources.md#names). Pure.
#pragma once

#include <map>
#include <string>

#include "corbd/core/fields.hpp"

namespace corbd::cephcsi {

/// Kubernetes' names of a volume. An unknown name is empty.
struct PvcRef {
  std::string name, name_space;  ///< the PersistentVolumeClaim
  std::string volume;            ///< the PersistentVolume
  bool empty() const { return name.empty() && name_space.empty() && volume.empty(); }
  static constexpr std::tuple fields{fields::required("name", &PvcRef::name),
                                     fields::required("namespace", &PvcRef::name_space),
                                     fields::required("volume", &PvcRef::volume)};
  bool operator==(const PvcRef&) const = default;
};

/// Reads attributes or metadata that begin with csi.storage.k8s.io/. A value that Kubernetes allows as no name counts
/// as unknown.
PvcRef pvc_of(const std::map<std::string, std::string>& from);
/// Returns "namespace/name" of the pod for which kubelet publishes a volume; empty without podInfoOnMount in the
/// CSIDriver.
std::string pod_of(const std::map<std::string, std::string>& attributes);
/// Returns the UID of that pod; empty in the same case.
std::string pod_uid_of(const std::map<std::string, std::string>& attributes);

}  // namespace corbd::cephcsi
