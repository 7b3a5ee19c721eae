// When an agent that died is started again.
#pragma once

#include "corbd/core/time.hpp"

namespace corbd::keeper {

/// Whether what an agent left in memory is true after it ended by this signal (0: it was not begun). Whoever is killed
/// from outside ends between two of its own instructions. A program that crashed may have written anywhere before: the
/// kernel has every request and its data still, and sends them again once their link ends.
bool trusts(int signal);

struct Restart {
  duration pause{};
  /// Whether the next agent gets what the dead one left. After a series of deaths it may be what they died of.
  bool keeps_links = true;
};

/// Each start of an agent that serves leaves an entry in the cluster's blocklist for a week. So deaths are counted, and
/// one is forgotten every five minutes. The pause grows with the count, and balances the two.
class Policy {
 public:
  Restart died(time_point now);

 private:
  time_point forgotten_at_{};  ///< when the last of the deaths that count is forgotten
};

}  // namespace corbd::keeper
