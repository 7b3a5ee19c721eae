#include "corbd/orchestrator/attachments.hpp"

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "corbd/kube/attachment.hpp"

namespace corbd::orchestrator {

using plan::Attachment;

namespace {

/// Spreads the first lists, because all nodes of a cluster may start at once.
constexpr std::chrono::seconds kSpread{5};

}  // namespace

Attachment judge(const kube::answer<kube::VolumeAttachment>& attachment, const plan::AgentNames& own,
                 const plan::AgentNames& staged_as) {
  using State = Attachment::State;
  // The attachment's name contains these names.
  if (const std::string other = plan::other_name(staged_as, own); !other.empty()) {
    const bool answered = attachment || attachment.error().error.code == errc::not_found;
    return {State::unknown, "", other, answered};
  }
  const auto here =
      attachment ? kube::check_attached(*attachment, own.driver, own.node) : result<>(attachment.error().error);
  if (here) return {State::here, attachment->uid, ""};
  return {here.error().code == errc::not_found ? State::away : State::unknown, "", here.error().text};
}

Attachments::Attachments(executor control, Clock& clock, result<kube::Api*> api, Config config)
    : control_(control), clock_(clock), api_(std::move(api)), config_(std::move(config)), gate_(control, clock) {}

std::string Attachments::name_of(const std::string& volume_id) const {
  return kube::volume_attachment_name(volume_id, config_.driver, config_.node);
}

task<kube::answer<kube::VolumeAttachment>> Attachments::get(std::string volume_id) {
  if (!api_) co_return kube::api_error(api_.error());
  const auto found = co_await (*api_)->get(kube::kVolumeAttachments, name_of(volume_id),
                                           {clock_.now() + config_.answer_within, &stopping_});
  if (!found) co_return found.error();
  co_return kube::volume_attachment_of(*found);
}

task<Attachment> Attachments::look(std::string volume_id) {
  const auto found = co_await get(volume_id);
  co_return co_await judged(std::move(volume_id), found);
}

Attachment Attachments::judge_of(const std::string& volume_id,
                                 const kube::answer<kube::VolumeAttachment>& found) const {
  const auto status = volumes_ == nullptr ? std::nullopt : volumes_->status(volume_id);
  return judge(found, own(), status ? plan::AgentNames{status->driver, status->node} : plan::AgentNames());
}

/// A missing attachment proves nothing if the driver's volumes are never attached. Only a CSIDriver that says so
/// counts. Otherwise an operator override could reach a volume that is really away. It proves nothing either if this
/// agent asks for the attachments of a node that does not exist.
task<Attachment> Attachments::judged(std::string volume_id, const kube::answer<kube::VolumeAttachment>& found) {
  auto attachment = judge_of(volume_id, found);
  if (found || attachment.state != Attachment::State::away) co_return attachment;
  const auto node =
      co_await (*api_)->get(kube::kNodes, config_.node, {clock_.now() + config_.answer_within, &stopping_});
  if (!node)
    co_return Attachment{
        .state = Attachment::State::unknown,
        .uid = "",
        .why = "the API server shows no node '" + config_.node +
               "', so it may not know this node under that name (--nodeid): " + node.error().error.text,
        .maybe_away = node.error().error.code == errc::not_found};
  const auto has_any = kube::has_attachments(
      co_await (*api_)->get(kube::kDrivers, config_.driver, {clock_.now() + config_.answer_within, &stopping_}));
  if (!has_any)
    attachment.why += "; cannot tell whether the driver has attachments at all: " + has_any.error().text;
  else if (!*has_any)
    attachment = {Attachment::State::none, "", "the CSIDriver " + config_.driver + " says attachRequired: false"};
  co_return attachment;
}

task<Attachment> Attachments::ask(std::string volume_id) {
  const auto found = co_await get(volume_id);
  auto judged = co_await this->judged(volume_id, found);
  if (stopping_.cancelled()) co_return judged;
  // If the server does not answer, the caller asks again.
  if (found && judged.state == Attachment::State::unknown)
    wait_for(volume_id);
  else
    wait_no_more(volume_id);
  co_return judged;
}

// --- waiting until an attachment is here or away

void Attachments::wait_for(const std::string& volume_id) {
  const auto name = name_of(volume_id);
  if (!config_.changed || stopping_.cancelled() || !waiting_.emplace(name, volume_id).second || config_.watch_all ||
      !may_watch_)
    return;
  auto& watch = watches_[name];
  watch = std::make_unique<kube::Informer>(control_, clock_, **api_, kube::kVolumeAttachments, kube::Which{name},
                                           [this](const std::string& of) {
                                             // A watch that is ending no longer counts.
                                             if (const auto watch = watches_.find(of); watch != watches_.end())
                                               changed(of, watch->second->object());
                                           });
  watch->start();
}

void Attachments::wait_no_more(const std::string& volume_id) {
  const auto name = name_of(volume_id);
  waiting_.erase(name);
  auto watch = watches_.extract(name);
  if (!watch) return;
  may_watch_ = !watch.mapped()->only_gets();
  gate_.spawn(end(std::move(watch.mapped())));
}

task<> Attachments::end(std::unique_ptr<kube::Informer> watch) { co_await watch->stop({}); }

void Attachments::changed(const std::string& name, const boost::json::object* attachment) {
  const auto waits = waiting_.find(name);
  if (waits == waiting_.end()) return;
  if (attachment != nullptr &&
      judge_of(waits->second, kube::volume_attachment_of(*attachment)).state == Attachment::State::unknown)
    return;
  log::info("attachment.changed", {{"volume", waits->second}, {"name", name}});
  config_.changed(std::string(waits->second));
}

// --- writing attachments into the records

void Attachments::start(volume::Volumes& volumes) {
  volumes_ = &volumes;
  if (api_ && config_.watch_all) {
    auto ours = [this](const boost::json::object& object) {
      const auto attachment = kube::volume_attachment_of(object);
      return attachment.attacher == config_.driver && attachment.node == config_.node;
    };
    auto& all = watches_[""];
    all = std::make_unique<kube::Informer>(
        control_, clock_, **api_, kube::kVolumeAttachments, kube::Which{"", "spec.nodeName=" + config_.node, ours},
        [this](const std::string& name) {
          const auto watch = watches_.find("");
          if (watch == watches_.end()) return;
          const auto found = watch->second->objects().find(name);
          changed(name, found == watch->second->objects().end() ? nullptr : &found->second);
        },
        kSpread);
    all->start();
  }
  std::map<std::string, int> others;
  for (const auto& status : volumes.status()) {
    const std::string other = plan::other_name({status.driver, status.node}, own());
    // The record of 0.1.0 names no node.
    if (!other.empty())
      ++others[other];
    else if (status.attachment_uid.empty() || status.node.empty())
      note(status.volume_id, Ask::always);
    else if (status.adopting)  // a new attachment can only be proven while rbd-nbd serves it
      note(status.volume_id, Ask::whether_new);
  }
  for (const auto& [why, count] : others)
    log::error("volumes.under_another_name",
               {{"volumes", count},
                {"cause", why},
                {"effect",
                 "no VolumeAttachment proves that these volumes are this node's: those with a free lock "
                 "or no lock are not served"}});
}

void Attachments::note(const volume::Change& change) {
  using volume::Health;
  if (change.to != Health::reconnecting && change.to != Health::unproven) wait_no_more(change.volume_id);
  if (change.to == Health::staged && (change.from == Health::absent || change.from == Health::staging))
    note(change.volume_id, Ask::always);
}

void Attachments::note_again(const std::string& volume_id) { note(volume_id, Ask::whether_new); }

void Attachments::note(const std::string& volume_id, Ask why) {
  if (!api_ || volumes_ == nullptr || !asked_for_.insert(volume_id).second) return;
  if (!gate_.spawn(keep_asking(volume_id, why))) asked_for_.erase(volume_id);
}

/// If there are no VolumeAttachments (attachRequired: false), each stage asks once.
task<> Attachments::keep_asking(std::string volume_id, Ask why) {
  const Backoff backoff;
  for (std::uint32_t failures = 0; !stopping_.cancelled(); ++failures) {
    const auto status = volumes_->status(volume_id);
    if (!status || !plan::other_name({status->driver, status->node}, own()).empty()) break;
    const auto attachment = co_await look(volume_id);
    if (attachment.state == Attachment::State::away || attachment.state == Attachment::State::none) break;
    if (why == Ask::whether_new && attachment.state == Attachment::State::here &&
        attachment.uid == status->attachment_uid && !status->node.empty())
      break;
    result<> noted = Error{errc::unavailable, attachment.why};
    if (attachment.state == Attachment::State::here)
      noted = co_await volumes_->want(volume_id, plan::Wish(plan::Attached{attachment.uid}),
                                      {clock_.now() + std::chrono::minutes(2), &stopping_});
    // failed_precondition: the volume may have been elsewhere in between, and no later answer disproves that.
    if (noted || noted.error().code == errc::failed_precondition) break;
    if (failures == 0) log::info("attachment.unknown", {{"volume", volume_id}, {"error", noted.error().text}});
    co_await sleep_until(control_, clock_, clock_.now() + backoff.after(failures, uniform()), &stopping_);
  }
  asked_for_.erase(volume_id);
}

task<> Attachments::stop(Until until) {
  stopping_.cancel();
  // Volumes change during these waits.
  const auto watches = std::exchange(watches_, {});
  for (const auto& [name, watch] : watches) co_await watch->stop(until);
  co_await gate_.close(until);
}

}  // namespace corbd::orchestrator
