// Pure functions from the requests that stage, publish and expand a volume, and undo that, to a wish; and the checks
// that other calls share. Nothing here looks at the node.
#pragma once

#include "corbd/cephcsi/parameters.hpp"
#include "corbd/plan/wish.hpp"
#include "csi/v1/csi.pb.h"

namespace corbd::csi {

result<plan::Wish> wish_of(const ::csi::v1::NodeStageVolumeRequest& request, const cephcsi::Mounters& mounters = {});
result<plan::Wish> wish_of(const ::csi::v1::NodeUnstageVolumeRequest& request);
result<plan::Wish> wish_of(const ::csi::v1::NodePublishVolumeRequest& request, const cephcsi::Mounters& mounters = {});
result<plan::Wish> wish_of(const ::csi::v1::NodeUnpublishVolumeRequest& request);
result<plan::Wish> wish_of(const ::csi::v1::NodeExpandVolumeRequest& request);

/// A Ceph key without the white space at its end. Ceph does not mind it, and `echo KEY | base64` makes it.
std::string without_end(std::string key);
/// The Ceph user and key of a node-stage secret.
result<plan::Credential> credential_of(const google::protobuf::Map<std::string, std::string>& secrets);

inline constexpr const char* kPassphrase = "encryptionPassphrase";
/// What a secret has beside the Ceph user and the passphrase.
std::map<std::string, Secret> other_secrets(const google::protobuf::Map<std::string, std::string>& secrets);

/// gRPC keeps a request until its call has ended. That may be long after the wish took over its secrets.
template <class Request>
void wipe_secrets(const Request& request) {
  // gRPC did not make it as a const object.
  for (auto& [name, secret] : *const_cast<Request&>(request).mutable_secrets()) wipe(secret);
}

/// Whatever was staged must be taken down, so this has no limit. CSI's 128 bytes are none for Kubernetes and ceph-csi.
result<> check_id(const std::string& id);
/// For a path that is only compared with the volume's. csi-sanity expects NOT_FOUND even for a relative path.
result<> check_known_path(const std::string& path, const std::string& what);

}  // namespace corbd::csi
