#include "csi_requests.hpp"

namespace corbd::manager {
namespace {

namespace spec = ::csi::v1;

constexpr std::size_t kLongestText = 2000;  ///< limit of a plugin's text

spec::VolumeCapability capability_of(const Usage& usage) {
  spec::VolumeCapability capability;
  auto mode = spec::VolumeCapability::AccessMode::UNKNOWN;
  spec::VolumeCapability::AccessMode::Mode_Parse(usage.access_mode, &mode);
  capability.mutable_access_mode()->set_mode(mode);
  if (usage.attachment == AccessType::block) {
    capability.mutable_block();
    return capability;
  }
  capability.mutable_mount()->set_fs_type(usage.fstype);
  for (const auto& option : usage.mount_options) capability.mutable_mount()->add_mount_flags(option);
  return capability;
}

template <class Request>
void put_common(Request& request, const Mount& mount) {
  request.set_volume_id(mount.volume.external_id);
  *request.mutable_volume_capability() = capability_of(mount.usage);
  for (const auto& [key, value] : mount.volume_context) (*request.mutable_volume_context())[key] = value;
  for (const auto& [key, value] : mount.publish_context) (*request.mutable_publish_context())[key] = value;
  for (const auto& [key, value] : mount.secrets) (*request.mutable_secrets())[key] = std::string(value.reveal());
}

struct CodeRow {
  errc code;
  const char* text;  ///< CSI's and gRPC's name
};

CodeRow row_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
      return {errc::cancelled, "CANCELLED"};
    case grpc::StatusCode::INVALID_ARGUMENT:
      return {errc::invalid_argument, "INVALID_ARGUMENT"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {errc::timed_out, "DEADLINE_EXCEEDED"};
    case grpc::StatusCode::NOT_FOUND:
      return {errc::not_found, "NOT_FOUND"};
    case grpc::StatusCode::ALREADY_EXISTS:
      return {errc::already_exists, "ALREADY_EXISTS"};
    case grpc::StatusCode::PERMISSION_DENIED:
      return {errc::permission_denied, "PERMISSION_DENIED"};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return {errc::exhausted, "RESOURCE_EXHAUSTED"};
    case grpc::StatusCode::FAILED_PRECONDITION:
      return {errc::failed_precondition, "FAILED_PRECONDITION"};
    case grpc::StatusCode::ABORTED:
      return {errc::busy, "ABORTED"};
    case grpc::StatusCode::OUT_OF_RANGE:
      return {errc::out_of_range, "OUT_OF_RANGE"};
    case grpc::StatusCode::UNIMPLEMENTED:
      return {errc::unimplemented, "UNIMPLEMENTED"};
    case grpc::StatusCode::UNAVAILABLE:
      return {errc::unavailable, "UNAVAILABLE"};
    case grpc::StatusCode::UNAUTHENTICATED:
      return {errc::unauthenticated, "UNAUTHENTICATED"};
    case grpc::StatusCode::DATA_LOSS:
      return {errc::internal, "DATA_LOSS"};
    case grpc::StatusCode::UNKNOWN:
      return {errc::internal, "UNKNOWN"};
    default:
      return {errc::internal, "INTERNAL"};
  }
}

}  // namespace

spec::NodeStageVolumeRequest stage_request(const Mount& mount, const std::string& staging) {
  spec::NodeStageVolumeRequest request;
  put_common(request, mount);
  request.set_staging_target_path(staging);
  return request;
}

spec::NodePublishVolumeRequest publish_request(const Mount& mount, const std::string& staging) {
  spec::NodePublishVolumeRequest request;
  put_common(request, mount);
  request.set_staging_target_path(staging);
  request.set_target_path(mount.target);
  request.set_readonly(mount.usage.read_only);
  return request;
}

spec::NodeExpandVolumeRequest expand_request(const Claim& claim, const std::string& staging) {
  spec::NodeExpandVolumeRequest request;
  request.set_volume_id(claim.volume.external_id);
  request.set_volume_path(claim.target);
  request.set_staging_target_path(staging);
  *request.mutable_volume_capability() = capability_of(claim.usage);
  return request;
}

Error error_of(const grpc::Status& status) {
  const auto [code, text] = row_of(status.error_code());
  std::string said = status.error_message().substr(0, kLongestText);
  for (char& c : said)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  if (said.empty()) said = "the plugin gave no reason";
  return {code, said + " (" + text + ")"};
}

}  // namespace corbd::manager
