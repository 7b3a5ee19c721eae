// The owner of a connection. Connections with the same Peer share one bound.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v6.hpp>

namespace corbd::http {

using Peer = boost::asio::ip::address;

/// Returns the address of an IPv4 client, also if an IPv6 socket shows it mapped (::ffff:a.b.c.d). For an IPv6 client,
/// returns its /64: a host can take any number of addresses in it.
inline Peer peer_of(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (address.is_v4()) return address;
  if (address.to_v6().is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return ip::make_network_v6(ip::address_v6(address.to_v6().to_bytes()), 64).network();
}

}  // namespace corbd::http
