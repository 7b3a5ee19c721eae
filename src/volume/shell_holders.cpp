// A stage of an image that other clients have: waiting for them, and saying who they are.
#include <algorithm>

#include "corbd/core/log.hpp"
#include "shell_impl.hpp"

namespace corbd::volume {
namespace {

// Between two tries.
constexpr duration kHolderPause = std::chrono::milliseconds(500), kLongestHolderPause = std::chrono::seconds(5);
// Between two looks whether the wait is over.
constexpr duration kLookUp = std::chrono::milliseconds(300);

}  // namespace

/// A stage of an image that somebody else has is tried again until shortly before its caller leaves: kubelet's next try
/// comes late, and Nomad's third is its last. The image is closed meanwhile, because our watch must keep nobody out.
/// Whoever else wants something of the volume ends the wait.
task<> Shell::Impl::outlast_holders(Volume& volume, Operation& operation, Until until) {
  for (duration pause = kHolderPause;; pause = std::min(2 * pause, kLongestHolderPause)) {
    operation.outcome = co_await fulfil(volume, operation.wish);
    note_outcome(volume, operation);
    const bool waits = std::holds_alternative<Staged>(operation.wish) && !operation.outcome &&
                       operation.outcome.error().code == errc::in_use;
    const auto next = clock_.now() + pause;
    if (!waits || until.deadline == time_point::max() || next >= until.deadline) co_return;
    while (clock_.now() < next) {
      if (leaving_ || volume.operations.size() > 1) co_return;
      co_await sleep_until(control_, clock_, std::min(next, clock_.now() + kLookUp));
    }
  }
}

void Shell::Impl::note_outcome(Volume& volume, const Operation& operation) {
  volume.last_error.reset();
  if (!operation.outcome) volume.last_error = operation.outcome.error();
  const bool in_use = volume.last_error && volume.last_error->code == errc::in_use;
  if (!in_use) {
    volume.in_use_since.reset();
    volume.in_use_by.clear();
  } else if (!volume.in_use_since) {
    volume.in_use_since = clock_.now();
  }
  if (in_use && volume.facts.holders) {
    std::set<std::string> who;
    for (const auto& holder : *volume.facts.holders) who.insert(holder.address);
    if (std::exchange(volume.in_use_by, who) != who) {
      log::warning("volume.in_use", {{"volume", volume.id}, {"why", volume.last_error->text}});
      if (listener_ != nullptr) listener_->notify(volume.id, {"VolumeInUse", true, volume.last_error->text});
    }
  }
  const bool lost = volume.last_error && volume.last_error->code == errc::lost;
  if (!lost) volume.lost_since.reset();
  if (lost && !volume.lost_since) volume.lost_since = clock_.now();
  // The cluster's key may have changed. The next try shows which of the two is right.
  if (volume.offered && !volume.tries_offered && volume.last_error &&
      volume.last_error->code == errc::unauthenticated) {
    std::swap(volume.key, *volume.offered);
    volume.key_saved = false;
  }
  note_health(volume, volume.last_error ? volume.last_error->text : std::string(name(operation.wish)) + " done");
}

}  // namespace corbd::volume
