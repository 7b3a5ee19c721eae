// Decides when an agent that died is restarted.
#pragma once

#include <chrono>

#include "corbd/core/time.hpp"

namespace corbd::keeper {

/// Whether the memory that an agent left is consistent after it ended by this signal (0: it was not begun). A kill from
/// outside falls between two of its own instructions. A program that crashed may have written anywhere before: the
/// kernel has every request and its data still, and sends them again once their link ends.
bool trusts(int signal);

struct Restart {
  duration pause{};
  /// Whether the next agent gets the links of the dead one. After a series of deaths they may be the cause.
  bool keeps_links = true;
};

/// An agent that has had every link for this long did not die of the links it inherited.
inline constexpr std::chrono::seconds kServesWell{10};

/// Answers two questions. Did agents die of the links they inherited? Deaths within kServesWell count as a series; one
/// is forgotten every five minutes, all of them after an agent that served well. And how many entries in the cluster's
/// blocklist may this node leave? Each start of an agent that serves leaves one for a week: sixty at once, and one in
/// five minutes.
class Policy {
 public:
  /// `served_well`: the dead agent had every link for kServesWell.
  Restart died(time_point now, bool served_well);

 private:
  time_point forgotten_at_{};  ///< time when the last counted death is forgotten
  time_point paid_at_{};       ///< time when the entries of all deaths so far would be used up, at one in five minutes
};

}  // namespace corbd::keeper
