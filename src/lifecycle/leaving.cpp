#include "corbd/lifecycle/leaving.hpp"

#include <algorithm>

namespace corbd::lifecycle {

Decision decide(const Told& told) {
  if (!told.node_stops) return Decision::wait;
  if (*told.node_stops) return Decision::wait_for_users;
  if (told.next_asks) return Decision::hand_over;
  if (told.signals > 1) return Decision::leave;
  duration patience{};
  if (told.in_use > 0)
    patience = told.grace;
  else if (told.called)
    patience = std::min<duration>(told.grace, kCalledAsksWithin);
  return told.since < patience ? Decision::wait : Decision::leave;
}

}  // namespace corbd::lifecycle
