#include "corbd/csi/stage.hpp"

#include "requests.hpp"

namespace corbd::csi {
namespace {

using Mode = ::csi::v1::VolumeCapability::AccessMode;

/// Maps the modes as kubelet does for a driver that knows the single-node modes.
result<Mode::Mode> mode_of(const std::string& access_mode) {
  if (access_mode == "ReadWriteOnce") return Mode::SINGLE_NODE_MULTI_WRITER;
  if (access_mode == "ReadWriteOncePod") return Mode::SINGLE_NODE_SINGLE_WRITER;
  if (access_mode == "ReadOnlyMany") return Mode::MULTI_NODE_READER_ONLY;
  if (access_mode == "ReadWriteMany") return Mode::MULTI_NODE_MULTI_WRITER;
  return Error{errc::invalid_argument, "access mode '" + access_mode + "' is not known"};
}

}  // namespace

result<plan::Credential> stage_credential(const std::map<std::string, Secret>& secrets) {
  ::csi::v1::NodeStageVolumeRequest request;
  for (const auto& [name, secret] : secrets) (*request.mutable_secrets())[name] = std::string(secret.reveal());
  auto credential = credential_of(request.secrets());
  wipe_secrets(request);
  return credential;
}

result<plan::Wish> stage_wish(const orchestrator::StageArguments& arguments) {
  const auto mode = mode_of(arguments.access_mode);
  if (!mode) return mode.error();
  ::csi::v1::NodeStageVolumeRequest request;
  request.set_volume_id(arguments.volume_id);
  request.set_staging_target_path(arguments.staging_path);
  request.mutable_publish_context()->insert(arguments.publish_context.begin(), arguments.publish_context.end());
  request.mutable_volume_context()->insert(arguments.volume_context.begin(), arguments.volume_context.end());
  for (const auto& [name, secret] : arguments.secrets)
    (*request.mutable_secrets())[name] = std::string(secret.reveal());
  auto& capability = *request.mutable_volume_capability();
  capability.mutable_access_mode()->set_mode(*mode);
  if (arguments.block) {
    capability.mutable_block();
  } else {
    capability.mutable_mount()->set_fs_type(arguments.fstype);
    for (const auto& flag : arguments.mount_flags) capability.mutable_mount()->add_mount_flags(flag);
  }
  auto wish = wish_of(request, {.instead = cephcsi::Mounter::nbd});
  wipe_secrets(request);
  return wish;
}

}  // namespace corbd::csi
