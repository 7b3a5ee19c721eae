#include "secret_watch.hpp"

#include <algorithm>
#include <vector>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

/// Longest wait for one volume, whose operation then goes on: an fsck may have it for hours.
constexpr std::chrono::seconds kWaitsFor{30};
constexpr std::chrono::hours kLongestPause{1};

/// Returns the volume if it has a user and key that others may be better than.
const Volume* served_by_key(const VolumeMap& volumes, const std::string& id) {
  const Volume* volume = volumes.find(id);
  const bool has = volume != nullptr && volume->record && !volume->record->failed;
  return has && !volume->credentials.known().empty() ? volume : nullptr;
}

/// Whether the volume's client is one of that user and key, or it has none of ours.
bool is_served_as(const Volume& volume, const Credential& credential) {
  const OwnImage* open = volume.server.own();
  return volume.credentials.known() == credential &&
         (!volume.server.serves() || open == nullptr || open->opened_as == credential);
}

std::uint64_t requests_of(const Volume& volume) {
  std::uint64_t all = 0;
  for (const auto& one : figures_of(volume).by) all += one.requests;
  return all;
}

}  // namespace

void SecretWatch::start() {
  // The boot's ID spreads the looks of many nodes over the time between two.
  const auto every = static_cast<std::uint64_t>(config_.secrets_every.count());
  rounds_.start(config_.secrets_every / 2 + std::chrono::seconds(std::hash<std::string>()(config_.boot_id) % every),
                config_.secrets_every);
}

bool SecretWatch::is_due(const std::string& volume_id, const Credential& credential) const {
  const auto place = tried_.find(volume_id);
  return place == tried_.end() || place->second.credential != credential || place->second.again <= clock_.now();
}

/// Returns the user and key that the volume is to be served by, if it is not. A Secret that differs is read again at
/// once: a stage may have brought a newer pair than the last read.
task<std::optional<Credential>> SecretWatch::wanted(std::string volume_id) {
  for (const SecretAge age : {SecretAge::named_before, SecretAge::now}) {
    const Volume* volume = served_by_key(volumes_, volume_id);
    if (volume == nullptr) co_return std::nullopt;
    const auto secret = co_await ports_.orchestrator.stage_secret(volume_id, volume->record->claim.volume, age);
    volume = served_by_key(volumes_, volume_id);
    if (volume == nullptr) co_return std::nullopt;
    Volume& known = *volumes_.find(volume_id);
    known.secret_unread = secret.credential || secret.name.empty() ? "" : secret.name + ": " + secret.why;
    // Somebody corrected a Secret whose pair was refused.
    if (secret.credential && is_served_as(known, *secret.credential)) known.unused_key.reset();
    const Credential credential = secret.credential.value_or(volume->credentials.known());
    if (is_served_as(*volume, credential) || !is_due(volume_id, credential)) co_return std::nullopt;
    if (credential == volume->credentials.known()) co_return credential;
    if (age != SecretAge::now) continue;
    log::info("credential.from_secret", {{"volume", volume_id}, {"secret", secret.name}, {"user", credential.user}});
    co_return credential;
  }
  co_return std::nullopt;
}

void SecretWatch::note(const std::string& volume_id, Credential credential) {
  const Volume* volume = served_by_key(volumes_, volume_id);
  if (volume == nullptr || is_served_as(*volume, credential)) {
    tried_.erase(volume_id);
    return;
  }
  Tried& tried = tried_[volume_id];
  const bool again = tried.credential == credential;
  tried.pause = again ? std::min<duration>(2 * tried.pause, kLongestPause) : duration(config_.secrets_every);
  tried.again = clock_.now() + tried.pause;
  tried.credential = std::move(credential);
}

bool SecretWatch::is_idle(const std::string& volume_id) const {
  const Volume* volume = volumes_.find(volume_id);
  const auto before = requests_.find(volume_id);
  if (volume == nullptr || before == requests_.end()) return false;
  const bool waits = volume->server.link() != nullptr && volume->server.link()->in_flight() > 0;
  return !waits && before->second == requests_of(*volume);
}

void SecretWatch::count_requests() {
  requests_.clear();
  for (const auto& [id, volume] : volumes_) requests_[id] = requests_of(*volume);
}

task<> SecretWatch::move(std::string volume_id, Credential credential, std::shared_ptr<CancelScope> leaving) {
  const auto served = co_await want_(volume_id, Authorized{credential}, {clock_.now() + kWaitsFor, leaving.get()});
  if (!served) log::warning("credential.not_used", {{"volume", volume_id}, {"error", served.error().text}});
  note(volume_id, std::move(credential));
}

task<> SecretWatch::move_idle(std::string volume_id, Credential credential, std::shared_ptr<CancelScope> leaving) {
  const auto slot = co_await idle_.take({time_point::max(), leaving.get()});
  if (slot) co_await move(volume_id, std::move(credential), std::move(leaving));
  moving_.erase(volume_id);
}

/// Moves busy volumes one after another, because the I/O of each stalls for a moment, and idle ones beside them.
task<> SecretWatch::look(std::shared_ptr<CancelScope> leaving) {
  std::erase_if(tried_, [this](const auto& one) { return served_by_key(volumes_, one.first) == nullptr; });
  std::vector<std::string> ids;
  for (const auto& [id, volume] : volumes_) ids.push_back(id);
  for (const auto& id : ids) {
    if (leaving->cancelled()) break;
    if (moving_.contains(id)) continue;
    auto credential = co_await wanted(id);
    if (!credential || leaving->cancelled()) continue;
    if (!is_idle(id))
      co_await move(id, std::move(*credential), leaving);
    else if (moving_.insert(id); !gate_.spawn(move_idle(id, std::move(*credential), leaving)))
      moving_.erase(id);
  }
  count_requests();
}

}  // namespace corbd::volume
