// Limits the requests of each peer over time. Pure: the caller passes the time.
#pragma once

#include <algorithm>
#include <map>

#include "corbd/core/clock.hpp"
#include "peer.hpp"

namespace corbd::http {

/// A bucket for each peer, which is full for a peer that has not asked lately. It is stored as the time at which it is
/// full again, so a full one needs no memory.
class Rate {
 public:
  Rate(std::size_t a_second, std::size_t burst)
      : each_(duration(std::chrono::seconds(1)) / std::max<std::size_t>(a_second, 1)),
        most_(each_ * std::max<std::size_t>(burst, 1)) {}

  /// Whether this peer may make one more request now. If so, it counts.
  bool take(const Peer& peer, time_point now) {
    if (full_.size() > kSwept) std::erase_if(full_, [&](const auto& one) { return one.second <= now; });
    const auto known = full_.find(peer);
    const time_point full = std::max(known == full_.end() ? now : known->second, now) + each_;
    if (full - now > most_) return false;
    full_.insert_or_assign(peer, full);
    return true;
  }
  /// Returns when a refused peer may make its next request.
  time_point next(const Peer& peer) const {
    const auto known = full_.find(peer);
    return known == full_.end() ? time_point::min() : known->second + each_ - most_;
  }
  std::size_t peers() const { return full_.size(); }

 private:
  static constexpr std::size_t kSwept = 64;
  const duration each_, most_;
  std::map<Peer, time_point> full_;
};

}  // namespace corbd::http
