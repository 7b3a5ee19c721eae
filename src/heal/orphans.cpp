#include "corbd/heal/orphans.hpp"

#include <algorithm>

#include "corbd/core/log.hpp"

namespace corbd::heal {
namespace {

/// Of a volume whose attachment was never seen, its absence tells nothing.
bool is_suspect(const volume::Status& status) {
  return !status.staged_at.empty() && status.published_at.empty() && !status.attachment_uid.empty();
}

}  // namespace

Orphans::Orphans(executor control, Clock& clock, Attachments& attachments, volume::Volumes& volumes, Config config)
    : clock_(clock), attachments_(attachments), volumes_(volumes), config_(config), gate_(std::move(control), clock) {}

Orphans::~Orphans() { clock_.cancel(timer_); }

void Orphans::start() { look(); }

void Orphans::look() {
  const auto all = volumes_.status();
  std::erase_if(suspects_, [&](const auto& entry) {
    return !entry.second.under_way && std::ranges::none_of(all, [&](const auto& status) { return status.volume_id == entry.first && is_suspect(status); });
  });
  for (const auto& status : all) {
    if (!is_suspect(status)) continue;
    Suspect& suspect = suspects_.try_emplace(status.volume_id, Suspect{clock_.now(), {}, {}, false}).first->second;
    const bool due = clock_.now() - suspect.since >= config_.unused_for && (suspect.asked == time_point() || clock_.now() - suspect.asked >= config_.ask_every);
    if (due && !suspect.under_way) suspect.under_way = gate_.spawn(ask(status.volume_id));
  }
  timer_ = clock_.schedule(clock_.now() + config_.look_every, [this] { look(); });
}

task<> Orphans::ask(std::string volume_id) {
  const auto attachment = co_await attachments_.ask(volume_id);
  // A pod may have come meanwhile.
  const auto status = volumes_.status(volume_id);
  Suspect& suspect = suspects_.at(volume_id);
  suspect.under_way = false;
  suspect.asked = clock_.now();
  if (attachment.state != volume::Attachment::State::away) suspect.gone.reset();
  if (attachment.state != volume::Attachment::State::away || !status || !is_suspect(*status) || stopping_.cancelled()) co_return;
  if (!suspect.gone) {
    suspect.gone = clock_.now();
    log::warning("volume.orphaned", {{"volume", volume_id}, {"staged_at", status->staged_at.front()}, {"why", attachment.why},
                                     {"hint", config_.unstage ? "it is unstaged when that stays so" : "kubelet has forgotten it: see --unstage-orphans"}});
  }
  if (config_.unstage && clock_.now() - *suspect.gone >= config_.grace) co_await unstage(*status);
}

task<> Orphans::unstage(volume::Status status) {
  for (const auto& path : status.staged_at) {
    const auto done = co_await volumes_.want(status.volume_id, volume::Wish(volume::Unstaged{path}), {clock_.now() + std::chrono::minutes(2), &stopping_});
    log::warning("volume.orphan_unstaged", {{"volume", status.volume_id}, {"path", path}, {"error", done ? "" : done.error().text}});
  }
}

task<> Orphans::stop(Until until) {
  stopping_.cancel();
  clock_.cancel(timer_);
  co_await gate_.close(until);
}

}  // namespace corbd::heal
