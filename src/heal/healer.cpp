#include "corbd/heal/healer.hpp"

#include "corbd/core/log.hpp"

namespace corbd::heal {
namespace {

constexpr std::chrono::minutes kTryLimit{2};

}  // namespace

Healer::Healer(executor control, Clock& clock, volume::Volumes& volumes, Config config)
    : control_(control), clock_(clock), volumes_(volumes), config_(config),
      slots_(control, clock, "a place to heal", config.at_once), gate_(control, clock), random_state_(config.random_seed) {}

Healer::~Healer() = default;

std::size_t Healer::pending() const { return pending_.size(); }

void Healer::heal(const std::string& volume_id) {
  if (pending_.insert(volume_id).second && !gate_.spawn(run(volume_id))) pending_.erase(volume_id);
}

double Healer::random() {
  // Knuth's MMIX generator: jitter needs no more.
  random_state_ = random_state_ * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<double>(random_state_ >> 11) / static_cast<double>(1ULL << 53);
}

task<> Healer::run(std::string volume_id) {
  for (std::uint32_t attempt = 0; !stopping_.cancelled(); ++attempt) {
    Until until;
    until.scope = &stopping_;
    auto slot = co_await slots_.take(until);
    if (!slot) break;
    const auto healed = co_await volumes_.want(volume_id, volume::Wish(volume::Healed{}), until.at_most(clock_.now() + kTryLimit));
    *slot = Slots::Guard();
    if (healed) {
      log::info("volume.healed", {{"volume", volume_id}, {"attempt", attempt + 1}});
      break;
    }
    const auto& error = healed.error();
    // Everything else may pass: a missing config.json comes back, a key is repaired.
    if (retry_class(error.code) == Retry::operator_) {
      log::error("volume.not_healed", {{"volume", volume_id}, {"code", name(error.code)}, {"error", error.text}});
      break;
    }
    const auto pause = config_.backoff.after(attempt, random());
    log::warning("volume.heal_failed", {{"volume", volume_id}, {"code", name(error.code)}, {"error", error.text},
                                        {"attempt", attempt + 1}, {"next_in_ms", pause.count()}});
    co_await sleep_until(control_, clock_, clock_.now() + pause, &stopping_);
  }
  pending_.erase(volume_id);
}

task<> Healer::stop() {
  stopping_.cancel();
  co_await gate_.close({});
}

}  // namespace corbd::heal
