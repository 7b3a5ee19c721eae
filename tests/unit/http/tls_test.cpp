// What a client accepts of a server's TLS, by a scripted server on loopback.
#include "support/api_server.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

using Set = std::function<void(http::Peer&)>;

/// What `call` gets of such a server.
template <class Answer>
Answer get(ApiServer::Tls tls, const Set& set, const std::function<task<Answer>(http::Client&, Until)>& call) {
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
  return Started<Answer>(io, call(client, {clock->now() + 20s})).get();
}

result<http::Reply> ask(ApiServer::Tls tls, const Set& set = [](http::Peer&) {}, std::string body = "") {
  http::Message message;
  message.method = body.empty() ? "GET" : "POST";
  message.target = "/";
  message.body = std::move(body);
  return get<result<http::Reply>>(
      tls, set, [&](http::Client& client, Until until) { return client.call(std::move(message), until); });
}

result<std::string> exchange(ApiServer::Tls tls, const Set& set, std::string request) {
  return get<result<std::string>>(tls, set, [&](http::Client& client, Until until) {
    return client.exchange(std::move(request), [](std::string_view) { return std::size_t(8); }, 8, until);
  });
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

TEST_CASE("a server that refuses the client's certificate refuses, though it says so after the request was begun") {
  const bool has_one = GENERATE(false, true);
  // The second one is not sent whole.
  const std::size_t bytes = GENERATE(std::size_t(1), std::size_t(8) << 20);
  CAPTURE(has_one, bytes);
  const auto stranger = [&](http::Peer& peer) {
    if (!has_one) return;
    peer.certificate = pki("rsa.pem");
    peer.key = Secret(pki("rsa.pem"));
  };
  const auto words = ContainsSubstring(has_one ? "the server refuses the client certificate /CN=corbd-test-client"
                                               : "the server wants a client certificate, and none is configured");
  const auto reply = ask(ApiServer::Tls::asks_for_certificate, stranger, std::string(bytes, 'x'));
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == errc::unauthenticated);
  CHECK_THAT(reply.error().text, words);
  const auto answer = exchange(ApiServer::Tls::asks_for_certificate, stranger, std::string(bytes, 'x'));
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code == errc::unauthenticated);
  CHECK_THAT(answer.error().text, words);
}
