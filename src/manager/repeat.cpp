#include "repeat.hpp"

#include "corbd/core/backoff.hpp"

namespace corbd::manager {
namespace {

// Nomad's numbers (docs/sources.md#nomad).
constexpr std::uint32_t kTries = 3;
constexpr Backoff kBackoff{std::chrono::milliseconds(100), std::chrono::seconds(10)};
// The plugin answers these at once, so a short pause would only make it busy.
constexpr Backoff kPending{std::chrono::milliseconds(200), std::chrono::seconds(5)};

}  // namespace

std::optional<std::chrono::milliseconds> pause_after(errc code, Tries& tries, double random) {
  switch (code) {
    case errc::busy:
      return kPending.after(tries.pending++, random);
    case errc::unavailable:
    case errc::exhausted:
    case errc::timed_out:
      if (++tries.failed >= kTries) return std::nullopt;
      return kBackoff.after(tries.failed - 1, random);
    default:
      return std::nullopt;
  }
}

}  // namespace corbd::manager
