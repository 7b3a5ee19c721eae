// When an agent that died is started again.
#pragma once

#include <optional>
#include <vector>

#include "corbd/core/time.hpp"

namespace corbd::keeper {

/// Whether what an agent left in memory is true after it ended by this signal (0: it was not begun). Whoever is killed
/// from outside ends between two of its own instructions. A program that crashed may have written anywhere before: the
/// kernel has every request and its data still, and sends them again once their link ends.
bool trusts(int signal);

/// Three deaths in ten seconds are an accident; with the fourth the program does not work. Then the keeper ends, and
/// what started it takes the path of a crash.
class Policy {
 public:
  /// How long to wait before the next start; nothing: there is none.
  std::optional<duration> died(time_point now);

 private:
  std::vector<time_point> deaths_;
};

}  // namespace corbd::keeper
