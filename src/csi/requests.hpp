// Pure functions that turn requests to stage, publish and expand a volume, and to undo that, into a wish; and the
// checks that other calls share. Nothing here looks at the node.
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

/// Returns a Ceph key without the white space at its end. Ceph ignores it, and `echo KEY | base64` makes it.
std::string without_end(std::string key);
/// Returns the Ceph user and key of a node-stage secret.
result<plan::Credential> credential_of(const google::protobuf::Map<std::string, std::string>& secrets);

inline constexpr const char* kPassphrase = "encryptionPassphrase";
/// Returns the values of a secret beside the Ceph user and the passphrase.
std::map<std::string, Secret> other_secrets(const google::protobuf::Map<std::string, std::string>& secrets);

/// Wipes the secrets of a request. gRPC keeps a request until its call has ended, which may be long after the wish took
/// over the secrets.
template <class Request>
void wipe_secrets(const Request& request) {
  // This cast is allowed, because gRPC did not make the request as a const object.
  for (auto& [name, secret] : *const_cast<Request&>(request).mutable_secrets()) wipe(secret);
}

/// Checks a volume ID without a limit of length, because every staged volume must be taken down. CSI's 128 bytes are no
/// limit for Kubernetes and ceph-csi.
result<> check_id(const std::string& id);
/// Checks a path that is only compared with the volume's. csi-sanity expects NOT_FOUND even for a relative path.
result<> check_known_path(const std::string& path, const std::string& what);

}  // namespace corbd::csi
