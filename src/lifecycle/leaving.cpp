#include "corbd/lifecycle/leaving.hpp"

#include <algorithm>

namespace corbd::lifecycle {

Leaving decide(const Told& told) {
  if (!told.node_stops) return Leaving::wait;
  if (*told.node_stops) return Leaving::wait_for_users;
  if (told.next_asks) return Leaving::hand_over;
  if (told.signals > 1) return Leaving::leave;
  duration patience{};
  if (told.in_use > 0)
    patience = told.grace;
  else if (told.called)
    patience = std::min<duration>(told.grace, kCalledAsksWithin);
  return told.since < patience ? Leaving::wait : Leaving::leave;
}

}  // namespace corbd::lifecycle
