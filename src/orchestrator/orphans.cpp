#include "corbd/orchestrator/orphans.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"

namespace corbd::orchestrator {

Orphans::Orphans(executor control, Clock& clock, Attachments& attachments,
                 std::function<std::optional<kube::Node>()> own, volume::Volumes& volumes, Config config)
    : clock_(clock),
      attachments_(attachments),
      own_(std::move(own)),
      volumes_(volumes),
      config_(std::move(config)),
      gate_(std::move(control), clock) {}

Orphans::~Orphans() { clock_.cancel(timer_); }

void Orphans::start() { look(); }

/// Without an attachment that was ever seen, its absence proves nothing.
bool Orphans::is_suspect(const volume::Status& status) const {
  if (status.staged_at.empty() || status.attachment_uid.empty()) return false;
  if (!node_) return status.published_at.empty();
  return std::ranges::find(node_->volumes_attached, kube::attached_name(status.volume_id, config_.driver)) ==
         node_->volumes_attached.end();
}

void Orphans::note_node() {
  auto now = own_();
  // Most changes of a Node concern no volume, and checking all devices is expensive.
  const bool same = now && node_ && now->volumes_attached == node_->volumes_attached;
  node_ = std::move(now);
  if (!same) note_suspects(volumes_.status());
}

/// A volume that is attached again has an attachment with another UID.
void Orphans::note_suspects(const std::vector<volume::Status>& all) {
  std::erase_if(suspects_, [&](const auto& entry) {
    const auto status = std::ranges::find(all, entry.first, &volume::Status::volume_id);
    if (entry.second.under_way || (status != all.end() && is_suspect(*status))) return false;
    if (status != all.end() && entry.second.missed) attachments_.note_again(entry.first);
    return true;
  });
  for (const auto& status : all)
    if (is_suspect(status))
      suspects_.try_emplace(status.volume_id, Suspect{clock_.now(), clock_.now(), {}, {}}).first->second.missed |=
          node_.has_value();
}

void Orphans::look() {
  node_ = own_();
  const bool out_of_service = node_ && node_->out_of_service;
  if (out_of_service && !std::exchange(told_out_of_service_, true))
    log::warning("node.out_of_service",
                 {{"hint",
                   "the node has the taint node.kubernetes.io/out-of-service: Kubernetes detaches its volumes by force "
                   "and may attach them elsewhere. Remove the taint once the node is well"}});
  told_out_of_service_ &= out_of_service;
  const auto all = volumes_.status();
  note_suspects(all);
  for (const auto& status : all) {
    const auto place = suspects_.find(status.volume_id);
    if (place == suspects_.end() || !is_suspect(status)) continue;
    Suspect& suspect = place->second;
    if (!status.published_at.empty()) suspect.used = clock_.now();
    const bool due = clock_.now() - suspect.since >= config_.unused_for &&
                     (suspect.asked == time_point() || clock_.now() - suspect.asked >= config_.ask_every);
    if (!due || suspect.under_way) continue;
    // Set this before ask() begins, because that may end at once.
    suspect.under_way = true;
    if (!gate_.spawn(ask(status.volume_id))) suspect.under_way = false;
  }
  timer_ = clock_.schedule(clock_.now() + config_.look_every, [this] { look(); });
}

task<> Orphans::ask(std::string volume_id) {
  co_await examine(volume_id);
  suspects_.at(volume_id).under_way = false;
}

task<> Orphans::examine(std::string volume_id) {
  const auto attachment = co_await attachments_.look(volume_id);
  // A pod may have come during the question.
  const auto status = volumes_.status(volume_id);
  Suspect& suspect = suspects_.at(volume_id);
  suspect.asked = clock_.now();
  if (attachment.state != plan::Attachment::State::away) suspect.gone.reset();
  if (attachment.state == plan::Attachment::State::here && status && attachment.uid != status->attachment_uid)
    attachments_.note_again(volume_id);
  if (attachment.state != plan::Attachment::State::away || !status || !is_suspect(*status) || stopping_.cancelled())
    co_return;
  if (!suspect.gone) {
    suspect.gone = clock_.now();
    tell(*status, attachment.why);
  }
  if (config_.unstage && status->published_at.empty() &&
      clock_.now() - std::max(*suspect.gone, suspect.used) >= config_.grace)
    co_await unstage(*status);
}

void Orphans::tell(const volume::Status& status, const std::string& why) const {
  const bool used = !status.published_at.empty();
  const std::string& at = used ? status.published_at.front() : status.staged_at.front();
  log::warning(used ? "volume.detached" : "volume.orphaned",
               {{"volume", status.volume_id}, {"path", at}, {"cause", why}});
  if (!config_.tell) return;
  if (used)
    config_.tell(status.volume_id,
                 {"VolumeDetached", true,
                  "Kubernetes has detached the volume while it is in use at " + at + ": " + why +
                      ". The agent serves it as long as the image is this node's. End its pods on this node."});
  else
    config_.tell(status.volume_id,
                 {"VolumeOrphaned", true,
                  "The volume is staged at " + at + ", but no pod uses it and it is no longer attached: " + why +
                      (config_.unstage ? ". The agent unstages it if that stays so."
                                       : ". kubelet has forgotten it; see --unstage-orphans.")});
}

task<> Orphans::unstage(volume::Status status) {
  for (const auto& path : status.staged_at) {
    const auto done = co_await volumes_.want(status.volume_id, plan::Wish(plan::Unstaged{path}),
                                             {clock_.now() + std::chrono::minutes(2), &stopping_});
    log::warning("volume.orphan_unstaged",
                 {{"volume", status.volume_id}, {"path", path}, {"error", done ? "" : done.error().text}});
  }
}

task<> Orphans::stop(Until until) {
  stopping_.cancel();
  clock_.cancel(timer_);
  co_await gate_.close(until);
}

}  // namespace corbd::orchestrator
