// Whose a connection is: what has the same Peer shares its bound.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v6.hpp>

namespace corbd::http {

using Peer = boost::asio::ip::address;

/// The address of an IPv4 client, also where an IPv6 socket shows it mapped (::ffff:a.b.c.d); of an IPv6 client its
/// /64, in which a host has as many addresses as it likes.
inline Peer peer_of(const boost::asio::ip::address& address) {
  namespace ip = boost::asio::ip;
  if (address.is_v4()) return address;
  if (address.to_v6().is_v4_mapped()) return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return ip::make_network_v6(ip::address_v6(address.to_v6().to_bytes()), 64).network();
}

}  // namespace corbd::http
