// What a client accepts of a server's TLS, by a scripted server on loopback.
#include "support/api_server.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

result<http::Reply> ask(ApiServer::Tls tls, bool tls13) {
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  ApiServer server([](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(200, "{}"); }, tls);
  const auto access = server.access();
  http::Peer peer;
  peer.host = access.host;
  peer.port = access.port;
  peer.tls13 = tls13;
  peer.authorities = access.authorities;
  http::Client client(io.get_executor(), *clock, pool, peer);
  http::Message message;
  message.target = "/";
  return Started<result<http::Reply>>(io, client.call(message, {clock->now() + 20s})).get();
}

}  // namespace

TEST_CASE("a client that must have TLS 1.3 refuses a server without it, and any other client takes TLS 1.2") {
  CHECK(ask(ApiServer::Tls::old, false).value().status == 200);
  CHECK(ask(ApiServer::Tls::good, true).value().status == 200);
  const auto refused = ask(ApiServer::Tls::old, true);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unauthenticated);
}
