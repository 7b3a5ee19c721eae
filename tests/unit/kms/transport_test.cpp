// A KMS's server that answers wrongly, late or not at all: by a scripted server on loopback.
#include "transport.hpp"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support/api_server.hpp"
#include "support/busy_pool.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;
using Peer = ApiServer::Peer;
using Request = ApiServer::Request;

namespace {

result<http::Reply> as_it_came(const http::Reply& reply) { return reply; }

task<result<http::Reply>> ask_and_read(kms::Transport& transport, http::Peer peer, http::Message message, Until until) {
  auto answer = co_await transport.http(std::move(peer), std::move(message), until);
  if (!answer) co_return answer.error();
  co_return co_await transport.read(std::move(*answer), until, as_it_came);
}

struct Scene {
  explicit Scene(ApiServer::Script script, ApiServer::Tls tls = ApiServer::Tls::none) : server(std::move(script), tls) {
    around.patience.timing = {2s, 500ms, 500ms};
    around.patience.whole = 10s;
    around.patience.between = {1ms, 2ms};
    const auto access = server.access();
    peer.host = access.host;
    peer.port = access.port;
    peer.tls = access.tls;
    peer.authorities = access.authorities;
    message.target = "/v1/secret/data/id";
  }
  result<http::Reply> ask(const std::string& tenant = "") {
    const auto transport = kms::make_transport(around, {"v", tenant});
    return Started<result<http::Reply>>(io, ask_and_read(*transport, peer, message, {clock->now() + 20s})).get();
  }
  result<kms::Unread> answer(kms::Transport& transport) {
    return std::move(Started<result<kms::Unread>>(io, transport.http(peer, message, {clock->now() + 20s})).get());
  }
  result<std::string> exchange(std::string request, std::size_t limit = 1 << 16) {
    const auto transport = kms::make_transport(around, {"v"});
    return Started<result<std::string>>(io, transport->exchange(peer, std::move(request), limit, {clock->now() + 20s}))
        .get();
  }
  asio::io_context io;
  std::unique_ptr<Clock> clock = make_real_clock(io.get_executor());
  BlockingPool files{io.get_executor(), *clock, 1};
  kms::KmsContext around{io.get_executor(), *clock, files, nullptr, "ceph"};
  ApiServer server;
  http::Peer peer;
  http::Message message;
};

ApiServer::Script says(unsigned status, std::string body, std::string headers = {}) {
  return [=](const Request&, Peer& peer) { peer.answer(status, body, headers); };
}

}  // namespace

TEST_CASE("a good answer comes with one request, and the next request uses the same breaker") {
  Scene scene(says(200, "{}"));
  CHECK(scene.ask().value().body == "{}");
  CHECK(scene.ask().value().status == 200);
  CHECK(scene.server.requests().size() == 2);
}

TEST_CASE("a refusal is an answer, which is neither asked again nor counted against the server") {
  Scene scene(says(403, R"({"errors": ["permission denied"]})"));
  for (int i = 1; i <= 3; ++i) {
    CHECK(scene.ask().value().status == 403);
    CHECK(scene.server.requests().size() == static_cast<std::size_t>(i));
  }
}

TEST_CASE("a sealed or busy server is asked a few times, and then its last answer is told", "[failure:172]") {
  const unsigned status = GENERATE(429, 500, 503);
  Scene scene(says(status, R"({"errors": ["Vault is sealed"]})"));
  CHECK(scene.ask().value().status == status);
  CHECK(scene.server.requests().size() == 3);
}

TEST_CASE("a server that is busy for a moment has answered after all") {
  std::atomic<int> asked = 0;
  Scene scene([&](const Request&, Peer& peer) {
    ++asked == 1 ? peer.answer(503, "{}") : asked == 2 ? peer.close() : peer.answer(200, "at last");
  });
  CHECK(scene.ask().value().body == "at last");
}

TEST_CASE("a refusal of a write whose earlier try may still take effect does not count as its end") {
  std::atomic<int> asked = 0;
  Scene scene([&](const Request&, Peer& peer) { ++asked == 1 ? peer.close() : peer.answer(403, "{}"); });
  scene.message.method = GENERATE("GET", "PUT");
  const auto reply = scene.ask();
  if (scene.message.method == "GET") {
    CHECK(reply.value().status == 403);
  } else {
    REQUIRE_FALSE(reply);
    CHECK(reply.error().code == errc::unavailable);
    CHECK(scene.ask().value().status == 403);
  }
}

TEST_CASE("while a server does not answer, the next request is refused at once and says why", "[failure:172]") {
  Scene scene(says(503, "{}"));
  scene.around.patience.tries = 1;
  CHECK(scene.ask().value().status == 503);
  const auto refused = scene.ask();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unavailable);
  CHECK_THAT(refused.error().text,
             ContainsSubstring("503") && ContainsSubstring("KMS \"v\"") && ContainsSubstring("asked again in"));
  CHECK(scene.server.requests().size() == 1);
}

TEST_CASE("a server that does not answer delays no other server", "[failure:172]") {
  Scene silent(says(503, "{}"));
  silent.around.patience.tries = 1;
  CHECK(silent.ask().value().status == 503);
  CHECK_FALSE(silent.ask());
  ApiServer other(says(200, "{}"));
  silent.peer.port = other.port();
  CHECK(silent.ask().value().status == 200);
}

TEST_CASE("a server that has had enough of one client's requests is asked by the others, and by that one again",
          "[failure:210]") {
  Scene scene(says(429, R"({"errors": ["request path rate limit exceeded"]})"));
  scene.around.patience.tries = 1;
  for (std::size_t i = 1; i <= 3; ++i) {
    CHECK(scene.ask().value().status == 429);
    CHECK(scene.server.requests().size() == i);
  }
}

TEST_CASE("what a server does not answer to one tenant keeps no other tenant from asking it", "[failure:210]") {
  Scene scene(says(503, "{}"));
  scene.around.patience.tries = 1;
  CHECK(scene.ask("evil").value().status == 503);
  const auto refused = scene.ask("evil");
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("of tenant evil does not answer"));
  CHECK(scene.ask("good").value().status == 503);
}

TEST_CASE("more silent servers than are remembered make the agent forget the oldest alone") {
  Loop loop;
  kms::Breakers breakers(loop.clock);
  const auto name = [](std::size_t i) { return "server " + std::to_string(i); };
  for (std::size_t i = 0; i <= kms::Breakers::kMost; ++i) {
    breakers.begin(name(i)).value().unanswered({errc::unavailable, "gone"});
    loop.clock.advance(1ms);
  }
  CHECK(breakers.begin(name(0)));
  for (std::size_t i = 1; i <= kms::Breakers::kMost; ++i) CHECK_FALSE(breakers.begin(name(i)));
}

TEST_CASE("a tenant whose name servers are silent keeps the key of no other tenant away", "[failure:210]") {
  Scene scene(says(200, "{}"));
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  const auto look_up = [&](const std::string& host) -> result<std::vector<std::string>> {
    std::unique_lock lock(mutex);
    if (host != "localhost") changed.wait(lock, [&] { return over; });
    return std::vector<std::string>{"127.0.0.1"};
  };
  auto& around = scene.around;
  around.names = std::make_unique<BlockingPool>(around.control, around.clock, 4);
  around.dialer = std::make_unique<http::Dialer>(around.control, around.clock, *around.names, &around.files, look_up);
  std::vector<std::unique_ptr<kms::Transport>> reaches;
  std::vector<Started<result<kms::Unread>>> silent;
  for (int i = 0; i < 24; ++i) {
    auto peer = scene.peer;
    peer.host = "silent" + std::to_string(i) + ".example";
    reaches.push_back(kms::make_transport(around, {"v", "evil"}));
    silent.emplace_back(scene.io, reaches.back()->http(peer, scene.message, {scene.clock->now() + 20s}));
  }
  scene.peer.host = "localhost";
  CHECK(scene.ask("good").value().status == 200);
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (auto& one : silent) CHECK(one.get());
}

TEST_CASE("a silent server is asked again once its time has come, by one request alone") {
  Loop loop;
  kms::Breakers breakers(loop.clock);
  {
    breakers.begin("s").value().unanswered({errc::unavailable, "gone"});
  }
  CHECK_FALSE(breakers.begin("s"));
  loop.clock.advance(1min);
  auto one = breakers.begin("s");
  REQUIRE(one);
  CHECK_FALSE(breakers.begin("s"));
  CHECK_THAT(breakers.begin("s").error().text, ContainsSubstring("gone"));
  one->answered();
  CHECK(breakers.begin("s"));
}

TEST_CASE("a request that its caller ends says nothing about the server") {
  Loop loop;
  kms::Breakers breakers(loop.clock);
  {
    auto left = breakers.begin("s").value();
  }
  CHECK(breakers.begin("s"));
}

TEST_CASE("a certificate of another authority, or for another name, is refused, each time anew", "[failure:172]") {
  const bool wrong_name = GENERATE(true, false);
  Scene scene(says(200, "{}"), wrong_name ? ApiServer::Tls::wrong_host : ApiServer::Tls::good);
  if (!wrong_name) scene.peer.authorities = pki("other-ca.pem");
  const auto refused = scene.ask();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::unauthenticated);
  CHECK(scene.ask().error().code == errc::unauthenticated);
}

TEST_CASE("the name in a certificate may be another than the host's") {
  Scene scene(says(200, "{}"), ApiServer::Tls::good);
  scene.peer.name = "elsewhere";
  CHECK(scene.ask().error().code == errc::unauthenticated);
  scene.peer.name = "localhost";
  CHECK(scene.ask().value().status == 200);
}

TEST_CASE("an answer that ends too early, comes too late or is too long is an error", "[failure:172]") {
  const int how = GENERATE(0, 1, 2);
  Scene scene([=](const Request&, Peer& peer) {
    if (how == 0) {
      peer.send("HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n{");
      peer.close();
    }
    if (how == 1) peer.hang();
    peer.answer(200, std::string(200, 'x'));
  });
  scene.message.limit = 100;
  const auto reply = scene.ask();
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == (how == 2 ? errc::exhausted : errc::unavailable));
}

TEST_CASE("what waits for a server ends with its caller") {
  Scene scene([](const Request&, Peer& peer) { peer.hang(); });
  CancelScope scope;
  const auto transport = kms::make_transport(scene.around, {"v"});
  Started<result<kms::Unread>> asked(scene.io, transport->http(scene.peer, scene.message, {time_point::max(), &scope}));
  CHECK(eventually(scene.io, [&] { return !scene.server.requests().empty(); }));
  scope.cancel();
  CHECK(asked.get().error().code == errc::cancelled);
}

namespace {

std::atomic<int> answers_read = 0;
std::thread::id reads;
result<std::string> read_by(const http::Reply& reply, const std::string& prefix) {
  ++answers_read;
  reads = std::this_thread::get_id();
  return prefix + reply.body;
}

}  // namespace

TEST_CASE("an answer is read on another thread, and the control thread goes on meanwhile") {
  Scene scene(says(200, "an answer"));
  const auto transport = kms::make_transport(scene.around, {"v"});
  auto answer = scene.answer(*transport);
  REQUIRE(answer);
  answers_read = 0;
  BusyPool busy(scene.files);
  Started<result<std::string>> reading(scene.io, transport->read(std::move(*answer), {}, read_by, "it says: "));
  // Another call, from its beginning to its answer.
  CHECK(scene.answer(*transport));
  CHECK_FALSE(reading.done());
  CHECK(answers_read == 0);
  busy.let_go();
  CHECK(reading.get().value() == "it says: an answer");
  CHECK(reads != std::this_thread::get_id());
}

TEST_CASE("an answer whose caller has left is read all the same, and goes with what read it") {
  Scene scene(says(200, "an answer"));
  CancelScope scope;
  auto transport = kms::make_transport(scene.around, {"v"});
  auto answer = scene.answer(*transport);
  REQUIRE(answer);
  answers_read = 0;
  BusyPool busy(scene.files);
  Started<result<std::string>> reading(
      scene.io, transport->read(std::move(*answer), {time_point::max(), &scope}, read_by, std::string(100, ' ')));
  scope.cancel();
  CHECK(reading.get().error().code == errc::cancelled);
  transport.reset();
  busy.let_go();
  CHECK(eventually(scene.io, [] { return answers_read == 1; }));
}

TEST_CASE("without an API server a Secret, a ConfigMap and a token are refused") {
  Scene scene(says(200, "{}"));
  const auto transport = kms::make_transport(scene.around, {"v"});
  const auto secret = Started<result<std::map<std::string, Secret>>>(scene.io, transport->secret("a", "b", {})).get();
  CHECK(secret.error().code == errc::failed_precondition);
  CHECK(Started<result<Secret>>(scene.io, transport->account_token("a", "b", {}, {})).get().error().code ==
        errc::failed_precondition);
}

TEST_CASE("a small file is read, and one that is missing is told") {
  Scene scene(says(200, "{}"));
  const auto transport = kms::make_transport(scene.around, {"v"});
  const auto read = [&](const std::string& path) {
    return Started<result<Secret>>(scene.io, transport->file(path, {})).get();
  };
  CHECK_FALSE(read("/proc/self/comm").value().empty());
  CHECK(read("/nonexistent/token").error().code == errc::not_found);
}

namespace {

/// Answers each connection with these bytes, whatever it asks, and closes it. The first `silent` ones get no answer.
class Frames {
 public:
  explicit Frames(std::string answer, int silent = 0)
      : thread_([this, answer = std::move(answer), silent]() mutable {
          for (boost::system::error_code failed; !failed;) {
            asio::ip::tcp::socket peer(io_);
            acceptor_.accept(peer, failed);
            std::array<char, 4096> asked{};
            boost::system::error_code ignored;
            if (!failed) peer.read_some(asio::buffer(asked), ignored);
            if (!failed && silent-- <= 0) asio::write(peer, asio::buffer(answer), ignored);
          }
        }) {}
  ~Frames() {
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  std::thread thread_;
};

std::string frame(std::string_view body) {
  std::string made("\x42\x00\x7b\x01", 4);
  for (int shift = 24; shift >= 0; shift -= 8) made += static_cast<char>(body.size() >> shift & 0xff);
  return made.append(body);
}

}  // namespace

TEST_CASE("one frame of KMIP is read to its end, and not beyond") {
  Frames server(frame("an answer") + "more");
  Scene scene(says(200, ""));
  scene.peer.port = server.port();
  CHECK(scene.exchange(frame("a question")).value() == frame("an answer"));
}

TEST_CASE("a frame that ends too early, or is longer than its limit, is an error") {
  const bool shorter = GENERATE(true, false);
  Frames server(shorter ? frame("an answer").substr(0, 10) : frame(std::string(200, 'x')));
  Scene scene(says(200, ""));
  scene.peer.port = server.port();
  CHECK(scene.exchange(frame("a question"), 100).error().code == (shorter ? errc::unavailable : errc::exhausted));
}

TEST_CASE("an error of TLS does not count as the end of a write whose earlier try may still take effect") {
  Frames server("this is not TLS", 1);
  Scene scene(says(200, ""), ApiServer::Tls::good);
  scene.peer.port = server.port();
  scene.message.method = GENERATE("GET", "PUT");
  const auto reply = scene.ask();
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == (scene.message.method == "GET" ? errc::unauthenticated : errc::unavailable));
  CHECK_THAT(reply.error().text, ContainsSubstring("TLS"));
}

TEST_CASE("a KMS that refuses the client's certificate is not silent, and says so each time") {
  Scene scene(says(200, ""), ApiServer::Tls::asks_for_certificate);
  for (int tries = 0; tries < 3; ++tries) {
    const auto reply = scene.ask();
    REQUIRE_FALSE(reply);
    CHECK(reply.error().code == errc::unauthenticated);
    const auto answer = scene.exchange("a request");
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == errc::unauthenticated);
    CHECK_THAT(answer.error().text, ContainsSubstring("the server wants a client certificate"));
  }
}

TEST_CASE("an alert of TLS does not count as the end of a write that was sent, but tells why a login is refused") {
  Scene scene(says(200, ""), ApiServer::Tls::asks_for_certificate);
  scene.message.method = "PUT";
  scene.message.stores = GENERATE(false, true);
  const auto reply = scene.ask();
  REQUIRE_FALSE(reply);
  CHECK(reply.error().code == (scene.message.stores ? errc::unavailable : errc::unauthenticated));
}
