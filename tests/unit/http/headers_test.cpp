// What a client never sends: values of headers that would break the request, whoever they come from.
#include "support/api_server.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a header or token that is too long, or has a line end, is refused, and nothing is sent") {
  asio::io_context io;
  const auto clock = make_real_clock(io.get_executor());
  BlockingPool pool(io.get_executor(), *clock, 1);
  ApiServer server([](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(200, "{}"); },
                   ApiServer::Tls::good);
  const auto access = server.access();
  http::Peer peer;
  peer.host = access.host;
  peer.port = access.port;
  peer.authorities = access.authorities;
  http::Client client(io.get_executor(), *clock, pool, peer);
  const auto ask = [&](const std::string& value, const std::string& token) {
    http::Message message;
    message.target = "/";
    message.headers = {{"X-Vault-Namespace", value}};
    message.bearer = Secret(token);
    const auto answer = Started<result<http::Reply>>(io, client.call(message, {clock->now() + 20s})).get();
    return answer ? errc::ok : answer.error().code;
  };
  CHECK(ask("team/a", "token") == errc::ok);
  CHECK(ask("a\r\n\r\nPUT / HTTP/1.1", "token") == errc::failed_precondition);
  CHECK(ask(std::string(70 << 10, 'a'), "token") == errc::failed_precondition);
  CHECK(ask("team/a", "to\nken") == errc::failed_precondition);
  CHECK(ask("team/a", std::string(70 << 10, 'a')) == errc::failed_precondition);
}
