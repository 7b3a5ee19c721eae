// Limits the requests of each peer over time. Pure: the caller passes the time.
#pragma once

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <map>

#include "corbd/core/clock.hpp"

namespace corbd::http {

/// The owner of a connection. Connections with the same Peer share one bound.
using Peer = boost::asio::ip::address;

/// Returns the address of an IPv4 client, also if an IPv6 socket shows it mapped (::ffff:a.b.c.d). For an IPv6 client,
/// returns its /64: a host can take any number of addresses in it.
inline Peer peer_of(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (address.is_v4()) return address;
  if (address.to_v6().is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return ip::make_network_v6(ip::address_v6(address.to_v6().to_bytes()), 64).network();
}

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
