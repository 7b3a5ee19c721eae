// What a client accepts of a server's TLS, by a scripted server on loopback.
#include "support/api_server.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

result<http::Reply> ask(ApiServer::Tls tls, const std::function<void(http::Peer&)>& set = [](http::Peer&) {}) {
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  ApiServer server([](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(200, "{}"); }, tls);
  const auto access = server.access();
  http::Peer peer;
  peer.host = access.host;
  peer.port = access.port;
  peer.authorities = access.authorities;
  set(peer);
  http::Client client(io.get_executor(), *clock, pool, peer);
  http::Message message;
  message.target = "/";
  return Started<result<http::Reply>>(io, client.call(message, {clock->now() + 20s})).get();
}

}  // namespace

TEST_CASE("a client that must have TLS 1.3 refuses a server without it, and any other client takes TLS 1.2") {
  const auto modern = [](http::Peer& peer) { peer.tls13 = true; };
  CHECK(ask(ApiServer::Tls::old).value().status == 200);
  CHECK(ask(ApiServer::Tls::good, modern).value().status == 200);
  const auto refused = ask(ApiServer::Tls::old, modern);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unauthenticated);
}

TEST_CASE("any certificate that is given is an authority, also one that another authority signed") {
  const auto pinned = [](http::Peer& peer) { peer.authorities = pki("server.pem"); };
  CHECK(ask(ApiServer::Tls::good, pinned).value().status == 200);
  const auto other = [](http::Peer& peer) { peer.authorities = pki("other-ca.pem"); };
  CHECK(ask(ApiServer::Tls::good, other).error().code == errc::unauthenticated);
}

TEST_CASE("a server cannot choose a group of a finite field, whose size and so its cost would be the server's",
          "[failure:210]") {
  const auto refused = ask(ApiServer::Tls::finite_field, [](http::Peer& peer) { peer.insecure = true; });
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unauthenticated);
}
