#include "secret_watch.hpp"

#include <vector>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

bool has_secret(const Volume& volume) {
  return volume.record && !volume.record->failed && !volume.credentials.known().empty();
}

}  // namespace

void SecretWatch::start() {
  // The boot's ID spreads the looks of many nodes over the time between two.
  const auto every = static_cast<std::uint64_t>(config_.secrets_every.count());
  look_in(config_.secrets_every / 2 + std::chrono::seconds(std::hash<std::string>()(config_.boot_id) % every));
}

void SecretWatch::look_in(duration time) {
  timer_ = clock_.schedule(clock_.now() + time, [this] {
    timer_ = 0;
    gate_.spawn(look());
  });
}

/// Goes on with the next volume once one is served by its present user: the I/O of each stalls for a moment.
task<> SecretWatch::look() {
  const auto leaving = leaving_;
  std::vector<std::string> ids;
  for (const auto& [id, volume] : volumes_)
    if (has_secret(*volume)) ids.push_back(id);
  for (const auto& id : ids) {
    const Volume* volume = volumes_.find(id);
    if (leaving->cancelled() || volume == nullptr || !has_secret(*volume)) continue;
    const auto secret = co_await ports_.orchestrator.stage_secret(id, volume->record->claim.volume, true);
    volume = volumes_.find(id);
    if (leaving->cancelled() || volume == nullptr || !has_secret(*volume) || !secret.credential) continue;
    if (*secret.credential == volume->credentials.known()) continue;
    log::info("credential.from_secret", {{"volume", id}, {"secret", secret.name}, {"user", secret.credential->user}});
    if (auto served = co_await want_(id, Authorized{*secret.credential}); !served)
      log::warning("credential.not_used", {{"volume", id}, {"error", served.error().text}});
  }
  look_in(config_.secrets_every);
}

}  // namespace corbd::volume
