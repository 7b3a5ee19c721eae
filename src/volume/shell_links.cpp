// The ends of links: one that died, one whose image is slow to close, and all of them when the agent leaves.
#include "corbd/core/log.hpp"
#include "shell_impl.hpp"

namespace corbd::volume {

void Shell::Impl::trouble(Volume& volume, std::string why) {
  if (!volume.served()) volume.link_ended();
  note_health(volume, why);
  if (listener_ != nullptr) listener_->trouble(volume.id, std::move(why));
}

task<> Shell::Impl::bury(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image) {
  if (link) co_await link->idle({});
  link.reset();
  if (!image) co_return;
  if (auto closed = co_await image->close({}); !closed)
    log::warning("image.not_closed", {{"error", closed.error().text}});
}

void Shell::Impl::link_dead(device::Kind kind, std::uint32_t index) {
  const auto place = volumes_.find(ports_.devices.of(kind).backend_of(index));
  if (place == volumes_.end() || !place->second->record || place->second->served()) return;
  Volume& volume = *place->second;
  if (volume.served_by_other && !volume.other_died) volume.other_died = volume.unserved_since = clock_.now();
  trouble(volume, "the kernel reports a dead link");
}

task<> Shell::Impl::drain(Volume& volume, Until until) {
  ++volume.users;
  const Waited drained = co_await volume.link->drain(until);
  --volume.users;
  if (drained != Waited::ready)
    log::warning("volume.undrained",
                 {{"volume", volume.id}, {"in_flight", volume.link ? volume.link->in_flight() : 0}});
}

task<> Shell::Impl::drain_all(Until until) {
  Gate& drains = drains_.emplace_back(control_, clock_);
  for (const auto& [id, volume] : volumes_)
    if (volume->link && std::exchange(volume->drained, volume->link.get()) != volume->link.get())
      drains.spawn(drain(*volume, until));
  co_await drains.close({});
}

/// Sessions are drained first and all at once, because an operation may wait for a cluster that does not answer. No
/// operation begins a further step. The second drain is for links that the last steps made.
task<> Shell::Impl::stop(Until until) {
  leaving_ = true;
  usage_reader_.stop();
  co_await drain_all(until);
  co_await gate_.close(until);
  co_await drain_all(until);
}

}  // namespace corbd::volume
