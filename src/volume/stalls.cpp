#include "stalls.hpp"

#include <algorithm>
#include <utility>

namespace corbd::volume {
namespace {

constexpr std::chrono::milliseconds kSamplesEvery{100};
// A request that began so shortly after a look may have begun before it.
constexpr std::chrono::milliseconds kAtTheLook{20};

}  // namespace

/// Whether the link has all requests that the kernel's device has.
bool Stalls::is_all_sent(const Volume& volume) const {
  // The link's own number changes meanwhile.
  const auto before = volume.server.link()->in_flight();
  const auto devices = find_devices(volume, ports_);
  const auto at_link = std::min(before, volume.server.link()->in_flight());
  return !devices || devices->size() != 1 || devices->front().waiting <= at_link;
}

/// Watches a stall that has just begun until it ends.
void Stalls::note(Volume& volume) {
  if (volume.history.stall.since && !std::exchange(volume.history.stall.watched, true)) gate_.spawn(watch(volume));
}

/// Watches for the end of a stall, which is over once the requests from before it are answered. Nothing marks those
/// requests. But once the link has all that the kernel's device has, the old ones are among them.
task<> Stalls::watch(Volume& volume) {
  ++volume.users;
  std::optional<time_point> all_sent;
  auto resent_by = volume.history.stall.resent_by;
  while (volume.history.stall.since && volume.server.serves() && !gate_.closed()) {
    const auto now = clock_.now();
    // There is another link: the stall has begun anew.
    if (std::exchange(resent_by, volume.history.stall.resent_by) != volume.history.stall.resent_by) all_sent.reset();
    if (!all_sent && (now >= volume.history.stall.resent_by || is_all_sent(volume))) all_sent = now;
    if (all_sent && volume.server.link()->oldest() < now - *all_sent - kAtTheLook) end_stall(volume, now);
    if (volume.history.stall.since) co_await sleep_until(control_, clock_, now + kSamplesEvery);
  }
  volume.history.stall.watched = false;
  --volume.users;
  volumes_.forget_if_idle(std::string(volume.id));
}

}  // namespace corbd::volume
