#include "corbd/orchestrator/volume_objects.hpp"

namespace corbd::orchestrator {

task<result<kube::PersistentVolume>> VolumeObjects::find(std::string volume_id, Until until, std::string else_named) {
  if (const auto known = known_.find(volume_id); known != known_.end()) co_return known->second;
  if (!api_) co_return api_.error();
  until = until.at_most(clock_.now() + config_.answer_within);
  const auto attachment = co_await (*api_)->get(
      kube::kVolumeAttachments, kube::volume_attachment_name(volume_id, config_.driver, config_.node), until);
  const bool is_absent = !attachment && attachment.error().error.code == errc::not_found && !else_named.empty();
  if (!attachment && !is_absent) co_return with_context("its VolumeAttachment", attachment.error().error);
  const auto name = attachment ? kube::volume_attachment_of(*attachment).volume : else_named;
  if (name.empty()) co_return Error{errc::not_found, "its VolumeAttachment names no PersistentVolume"};
  const auto object = co_await (*api_)->get(kube::kPersistentVolumes, name, until);
  if (!object) co_return with_context("PersistentVolume " + name, object.error().error);
  auto volume = kube::persistent_volume_of(*object);
  if (is_absent && (volume.driver != config_.driver || volume.handle != volume_id))
    co_return Error{errc::not_found,
                    "its VolumeAttachment does not exist, and PersistentVolume " + name + " is another volume's"};
  know(volume_id, volume);
  co_return volume;
}

}  // namespace corbd::orchestrator
