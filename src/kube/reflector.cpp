#include "reflector.hpp"

#include <algorithm>
#include <utility>

namespace corbd::kube {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kFirst{800}, kCap{30000};
constexpr std::chrono::minutes kCalm{2};        // time after which the backoff starts over
constexpr std::chrono::seconds kTooShort{1};    // a shorter watch without an event counts as failed
constexpr std::chrono::seconds kWatch{5 * 60};  // timeout of a watch: this to twice this

std::chrono::milliseconds backoff(std::uint32_t failures, double random) {
  auto time = kFirst;
  for (std::uint32_t i = 1; i < failures && time < kCap; ++i) time = std::min(2 * time, kCap);
  return time + std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * random));
}

}  // namespace

Reflector::Action Reflector::next(double random) {
  if (sleeps_) {
    sleeps_ = false;
    auto time = backoff(failures_, random);
    if (at_least_) time = std::max<std::chrono::milliseconds>(time, *at_least_);
    at_least_.reset();
    return Sleep{time};
  }
  const std::string from = from_most_recent_ ? "" : version_;
  if (does_ == Does::list && !asks_initial_) return List{from};
  const auto timeout =
      kWatch + std::chrono::seconds(static_cast<std::int64_t>(static_cast<double>(kWatch.count()) * random));
  return Watch{from, timeout, does_ == Does::list};
}

void Reflector::back_off(const std::optional<std::chrono::seconds>& at_least, time_point now) {
  if (failures_ > 0 && now - last_failure_ > kCalm) failures_ = 0;
  ++failures_;
  last_failure_ = now;
  sleeps_ = true;
  at_least_ = at_least;
}

void Reflector::listed(std::string version) {
  version_ = std::move(version);
  from_most_recent_ = false;
  does_ = Does::watch;
}

void Reflector::list_failed(const ApiError& failure, time_point now) {
  const bool version_is_no_use = failure.kind == ApiError::Kind::expired || failure.kind == ApiError::Kind::too_new;
  // The first time without a wait, because the most recent list cannot name a wrong version.
  if (version_is_no_use && !from_most_recent_) {
    from_most_recent_ = true;
    return;
  }
  back_off(failure.retry_after, now);
}

void Reflector::watching(time_point now) {
  began_ = now;
  events_ = 0;
  telling_initial_ = does_ == Does::list;
}

void Reflector::seen(std::string version) {
  ++events_;
  // Existing objects come in no order of versions.
  if (!version.empty() && !telling_initial_) version_ = std::move(version);
}

void Reflector::initial_told(std::string version) {
  ++events_;
  telling_initial_ = false;
  listed(std::move(version));
}

void Reflector::watch_ended(const std::optional<ApiError>& failure, time_point now) {
  const bool invalid = failure && failure->error.code == errc::invalid_argument;
  if (std::exchange(telling_initial_, false)) {
    asks_initial_ = failure && !invalid;
    if (asks_initial_) list_failed(*failure, now);
    return;
  }
  if (failure && failure->kind == ApiError::Kind::expired) {
    does_ = Does::list;
    // A server that lists from a version which it cannot watch from would be asked again and again.
    const bool again = last_expired_ && now - *last_expired_ <= kCalm;
    last_expired_ = now;
    if (again) back_off(failure->retry_after, now);
    return;
  }
  if (invalid) {
    // An invalid version, for example, would be refused again.
    does_ = Does::list;
    from_most_recent_ = true;
  }
  if (failure || (events_ == 0 && now - began_ < kTooShort))
    back_off(failure ? failure->retry_after : std::nullopt, now);
}

}  // namespace corbd::kube
