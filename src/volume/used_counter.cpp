#include "used_counter.hpp"

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

constexpr std::chrono::minutes kCountsAtMostEvery{1};
constexpr std::chrono::seconds kTurnWithin{50};
constexpr std::chrono::seconds kCountedWithin{10};  // afterwards the next volume has the turn

/// Whether its image may be asked. The image of a volume that changes hands or heals is left alone.
bool is_countable(const Volume& volume) {
  return volume.record && volume.record->use.block && volume.server.own() != nullptr && volume.server.serves() &&
         !volume.server.own()->closing && volume.operations.empty();
}

}  // namespace

void UsedCounter::ask(Volume& volume) {
  UsedCount& of = volume.used;
  const auto now = clock_.now();
  const bool due = !of.begun || now - *of.begun >= kCountsAtMostEvery;
  if (of.under_way || !due || leaving_->cancelled() || !is_countable(volume)) return;
  of.under_way = true;
  of.begun = now;
  ++volume.users;
  if (gate_.spawn(count(volume))) return;
  of.under_way = false;
  --volume.users;
}

void UsedCounter::ask_all() {
  for (const auto& [id, volume] : volumes_) ask(*volume);
}

task<> UsedCounter::count(Volume& volume) {
  const auto leaving = leaving_;
  {
    const auto turn = co_await one_.take({clock_.now() + kTurnWithin, leaving.get()});
    // Another operation may have closed the image during the wait.
    if (turn && is_countable(volume)) {
      const auto counted = co_await volume.server.image()->used_bytes({clock_.now() + kCountedWithin, leaving.get()});
      if (!counted)
        log::debug("volume.used_unknown", {{"volume", volume.id}, {"error", counted.error().text}});
      else if (*counted)
        volume.used.last = UsedBytes{**counted, clock_.now()};
      else
        volume.used.last.reset();
    }
  }
  volume.used.under_way = false;
  const std::string id = volume.id;
  --volume.users;
  volumes_.forget_if_idle(id);
}

}  // namespace corbd::volume
