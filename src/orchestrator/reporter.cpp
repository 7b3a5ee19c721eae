#include "corbd/orchestrator/reporter.hpp"

#include <algorithm>

namespace corbd::orchestrator {
namespace {

kube::Involved object_of(const kube::PersistentVolume& volume) {
  if (!volume.claim) return {"PersistentVolume", "", volume.name, volume.uid};
  return {"PersistentVolumeClaim", volume.claim->name_space, volume.claim->name, volume.claim->uid};
}

/// Uses the Node's name as the UID of an Event's object, as kubelet does.
kube::Involved involved_node(const std::string& name) { return {"Node", "", name, name}; }

}  // namespace

Reporter::Reporter(executor control, Clock& clock, const result<kube::Api*>& api, VolumeObjects& objects,
                   const volume::Volumes& volumes, Config config)
    : clock_(clock), objects_(objects), volumes_(volumes), config_(std::move(config)), gate_(control, clock) {
  if (api)
    recorder_ = std::make_unique<kube::Recorder>(control, clock, **api, kube::Recorder::Config{"corbd", config_.node});
}

Reporter::~Reporter() { clock_.cancel(timer_); }

void Reporter::note(const volume::Change& change) {
  if (!recorder_) return;
  tell(notices_.changed(change, volumes_.status(change.volume_id).value_or(volume::Status()), clock_.now()));
  if (change.to == volume::Health::absent) objects_.forget(change.volume_id);
  arm();
}

void Reporter::arm() {
  clock_.cancel(timer_);
  timer_ = 0;
  const auto next = notices_.next();
  if (next == time_point::max() || stopping_.cancelled()) return;
  timer_ = clock_.schedule(std::max(next, clock_.now() + config_.look_every), [this] {
    tell(notices_.due(volumes_.status(), clock_.now()));
    arm();
  });
}

void Reporter::tell(const std::string& volume_id, kube::Notice notice) {
  if (recorder_) gate_.spawn(tell_one({volume_id, std::move(notice)}));
}

void Reporter::tell(std::vector<Notices::Told> all) {
  for (auto& told : all) gate_.spawn(tell_one(std::move(told)));
}

task<> Reporter::tell_one(Notices::Told told) {
  auto about = co_await find(told.volume_id);
  if (about.kind != "PersistentVolumeClaim")
    told.notice.message = "Volume " + told.volume_id + ": " + told.notice.message;
  if (!stopping_.cancelled()) recorder_->tell(std::move(about), std::move(told.notice));
}

task<kube::Involved> Reporter::find(std::string volume_id) {
  const auto volume = co_await objects_.find(std::move(volume_id), {time_point::max(), &stopping_});
  if (volume) co_return object_of(*volume);
  co_return involved_node(config_.node);
}

void Reporter::tell_node(kube::Notice notice) {
  if (recorder_ && !stopping_.cancelled()) recorder_->tell(involved_node(config_.node), std::move(notice));
}

task<> Reporter::stop(Until until) {
  stopping_.cancel();
  clock_.cancel(timer_);
  co_await gate_.close(until);
  if (recorder_) co_await recorder_->stop(until);
}

}  // namespace corbd::orchestrator
