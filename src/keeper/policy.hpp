// When an agent that died is started again.
#pragma once

#include <chrono>

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

/// An agent that has had every link for so long did not die of what the last one left.
inline constexpr std::chrono::seconds kServesWell{10};

/// Two questions. Did agents die of what they were left with? Those count as a series that died within kServesWell; one
/// is forgotten every five minutes, all of them with an agent that served well. And how many entries in the cluster's
/// blocklist may this node leave? Each start of an agent that serves leaves one for a week: sixty at once, and one in
/// five minutes.
class Policy {
 public:
  /// `served_well`: the dead one had every link for kServesWell.
  Restart died(time_point now, bool served_well);

 private:
  time_point forgotten_at_{};  ///< when the last of the deaths that count is forgotten
  time_point paid_at_{};       ///< when the entries of all deaths so far would be used up, at one in five minutes
};

}  // namespace corbd::keeper
