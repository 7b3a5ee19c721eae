#include "request.hpp"

#include "../../../src/csi/requests.hpp"

namespace corbd::matrix {
namespace {

using ::csi::v1::VolumeCapability;
using Mode = VolumeCapability::AccessMode;

Mode::Mode mode_of(Access access) {
  switch (access) {
    case Access::one_pod:
      return Mode::SINGLE_NODE_SINGLE_WRITER;
    case Access::one_reader:
      return Mode::SINGLE_NODE_READER_ONLY;
    case Access::many_readers:
      return Mode::MULTI_NODE_READER_ONLY;
    case Access::many_writers:
      return Mode::MULTI_NODE_MULTI_WRITER;
    case Access::one_node:
    case Access::ro_by_mount:
    case Access::ro_by_map:
      break;
  }
  return Mode::SINGLE_NODE_MULTI_WRITER;
}

void fill(const Request& request, VolumeCapability& capability) {
  const Cell& cell = request.cell;
  capability.mutable_access_mode()->set_mode(mode_of(cell.access));
  if (cell.block()) {
    capability.mutable_block();
    return;
  }
  capability.mutable_mount()->set_fs_type(cell.fstype());
  if (cell.access == Access::ro_by_mount) capability.mutable_mount()->add_mount_flags("ro");
  if (!request.mount_flags.empty()) capability.mutable_mount()->add_mount_flags(request.mount_flags);
}

template <class Attributes>
void fill(const Request& request, Attributes& into) {
  const Cell& cell = request.cell;
  into["staticVolume"] = "true";
  into["clusterID"] = "lab";
  into["pool"] = "pool";
  into["mounter"] = cell.mounter == plan::Mounter::nbd ? "rbd-nbd" : "rbd";
  if (cell.mounter == plan::Mounter::krbd_if_able) into["tryOtherMounters"] = "true";
  if (cell.access == Access::ro_by_map) into["mapOptions"] = "nbd:read-only;krbd:ro";
  if (cell.encryption == Encryption::none) return;
  into["encrypted"] = "true";
  into["encryptionKMSID"] = request.kms;
  into["encryptionType"] = cell.encryption == Encryption::files ? "file" : "block";
  if (cell.encryption == Encryption::device) into["encryptionDiscard"] = "true";
  if (cell.encryption == Encryption::with_integrity) into["integrityMode"] = "hmac-sha256";
}

}  // namespace

result<plan::Staged> stage_of(const Request& request) {
  ::csi::v1::NodeStageVolumeRequest call;
  call.set_volume_id(kVolume);
  call.set_staging_target_path(kStagingPath);
  fill(request, *call.mutable_volume_capability());
  fill(request, *call.mutable_volume_context());
  auto& secrets = *call.mutable_secrets();
  secrets["userID"] = "node";
  secrets["userKey"] = request.ceph_key;
  secrets["encryptionPassphrase"] = request.passphrase;
  auto wish = csi::wish_of(call);
  if (!wish) return wish.error();
  return std::get<plan::Staged>(std::move(*wish));
}

result<plan::Published> publish_of(const Request& request, const std::string& target) {
  ::csi::v1::NodePublishVolumeRequest call;
  call.set_volume_id(kVolume);
  call.set_staging_target_path(kStagingPath);
  call.set_target_path(target);
  fill(request, *call.mutable_volume_capability());
  fill(request, *call.mutable_volume_context());
  auto wish = csi::wish_of(call);
  if (!wish) return wish.error();
  return std::get<plan::Published>(std::move(*wish));
}

}  // namespace corbd::matrix
