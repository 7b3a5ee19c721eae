// What a connection to a peer needs first: its addresses, the socket's options, and the certificates.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "corbd/http/client.hpp"

namespace corbd::http {

/// Blocks until the resolver answers.
inline result<std::vector<asio::ip::tcp::endpoint>> look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int r = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (r != 0) return Error{errc::unavailable, "looking up " + host + ": " + ::gai_strerror(r)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  std::vector<asio::ip::tcp::endpoint> all;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    asio::ip::tcp::endpoint endpoint;
    if (one->ai_addrlen > endpoint.capacity()) continue;
    std::memcpy(endpoint.data(), one->ai_addr, one->ai_addrlen);
    endpoint.resize(one->ai_addrlen);
    all.push_back(endpoint);
  }
  return all;
}

/// The kernel notices a peer that vanished, even while nothing is sent. It takes less than a minute, or half of that
/// while a request is out.
inline void keep_alive(int fd) {
  constexpr std::array<std::array<int, 3>, 5> options{{{SOL_SOCKET, SO_KEEPALIVE, 1},
                                                       {IPPROTO_TCP, TCP_KEEPIDLE, 30},
                                                       {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                                                       {IPPROTO_TCP, TCP_KEEPCNT, 5},
                                                       {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000}}};
  for (const auto& [level, option, value] : options) ::setsockopt(fd, level, option, &value, sizeof value);
}

/// The context made of the authorities, the client's certificate and its key; or why they make none.
inline result<std::unique_ptr<asio::ssl::context>> make_context(const Peer& peer) {
  namespace ssl = asio::ssl;
  auto made = std::make_unique<ssl::context>(ssl::context::tls_client);
  boost::system::error_code failed;
  made->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, failed);
  if (peer.tls13) made->set_options(ssl::context::no_tlsv1_2, failed);
  if (!peer.authorities.empty())
    made->add_certificate_authority(asio::buffer(peer.authorities), failed);
  else
    made->set_default_verify_paths(failed);
  if (failed)
    return Error{errc::invalid_argument,
                 "the authorities for " + peer.text() + " are not PEM certificates: " + failed.message()};
  if (!peer.certificate.empty()) {
    made->use_certificate_chain(asio::buffer(peer.certificate), failed);
    if (!failed) made->use_private_key(asio::buffer(peer.key.reveal()), ssl::context::pem, failed);
    if (failed)
      return Error{errc::invalid_argument,
                   "the client certificate for " + peer.text() + ", or its key, cannot be used: " + failed.message()};
  }
  made->set_verify_mode(peer.insecure ? ssl::verify_none : ssl::verify_peer, failed);
  if (!peer.insecure) made->set_verify_callback(ssl::host_name_verification(peer.certified_name()), failed);
  return made;
}

}  // namespace corbd::http
