#include "registration.hpp"

#include <algorithm>

#include "corbd/core/backoff.hpp"

namespace corbd::csi {

std::chrono::milliseconds pause_after(std::uint32_t failures, double random) {
  // kubelet's own longest pause for a socket is the same.
  constexpr Backoff backoff{std::chrono::seconds(1), std::chrono::minutes(2)};
  return backoff.after(failures - 1, random);
}

void note_asked(Heard& heard, time_point now, bool registered) {
  if (!registered && !heard.asked) heard.asked = now;
}

time_point renewal(const Heard& heard, double random) {
  auto at = time_point::max();
  if (heard.asked) at = *heard.asked + kSilence;
  if (heard.refused) at = std::min(at, *heard.refused + duration(pause_after(heard.failures, random)));
  return at;
}

}  // namespace corbd::csi
