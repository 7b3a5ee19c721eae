#include "corbd/heal/attachments.hpp"

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "corbd/kube/objects.hpp"

namespace corbd::heal {

using volume::Attachment;

Attachment judge(const kube::answer<boost::json::object>& attachment, const std::string& driver, const std::string& node) {
  using State = Attachment::State;
  if (!attachment) {
    const auto& error = attachment.error().error;
    return {error.code == errc::not_found ? State::away : State::unknown, "", error.text};
  }
  const auto found = kube::volume_attachment_of(*attachment);
  if (found.attacher != driver || found.node != node)
    return {State::away, "", "its VolumeAttachment is of driver " + found.attacher + " and node " + found.node};
  if (found.uid.empty()) return {State::unknown, "", "its VolumeAttachment has no UID"};
  if (found.deleting) return {State::unknown, "", "its VolumeAttachment is being deleted"};
  if (!found.attached) return {State::unknown, "", "its VolumeAttachment is not attached"};
  return {State::here, found.uid, ""};
}

Attachments::Attachments(executor control, Clock& clock, result<kube::Api*> api, Config config)
    : control_(control), clock_(clock), api_(std::move(api)), config_(std::move(config)), gate_(control, clock) {}

task<Attachment> Attachments::ask(std::string volume_id) {
  if (!api_) co_return Attachment{Attachment::State::unknown, "", api_.error().text};
  const auto name = kube::volume_attachment_name(volume_id, config_.driver, config_.node);
  const auto found = co_await (*api_)->get(kube::kVolumeAttachments, name, {clock_.now() + config_.answer_within, &stopping_});
  co_return judge(found, config_.driver, config_.node);
}

void Attachments::start(volume::Volumes& volumes) {
  volumes_ = &volumes;
  for (const auto& status : volumes.status())
    if (status.attachment_uid.empty()) note(status.volume_id);
}

void Attachments::note(const volume::Change& change) {
  using volume::Health;
  if (change.to == Health::staged && (change.from == Health::absent || change.from == Health::staging)) note(change.volume_id);
}

void Attachments::note(const std::string& volume_id) {
  if (!api_ || volumes_ == nullptr || !asked_for_.insert(volume_id).second) return;
  if (!gate_.spawn(keep_asking(volume_id))) asked_for_.erase(volume_id);
}

/// A cluster without VolumeAttachments (attachRequired: false) is asked once for each stage.
task<> Attachments::keep_asking(std::string volume_id) {
  const Backoff backoff;
  for (std::uint32_t failures = 0; !stopping_.cancelled(); ++failures) {
    const auto status = volumes_->status(volume_id);
    if (!status) break;
    const auto attachment = co_await ask(volume_id);
    if (attachment.state == Attachment::State::away) break;
    result<> noted = Error{errc::unavailable, attachment.why};
    if (attachment.state == Attachment::State::here)
      noted = co_await volumes_->want(volume_id, volume::Wish(volume::Attached{attachment.uid}), {clock_.now() + std::chrono::minutes(2), &stopping_});
    if (noted) break;
    if (failures == 0) log::info("attachment.unknown", {{"volume", volume_id}, {"error", noted.error().text}});
    co_await sleep_until(control_, clock_, clock_.now() + backoff.after(failures, uniform()), &stopping_);
  }
  asked_for_.erase(volume_id);
}

task<> Attachments::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

}  // namespace corbd::heal
