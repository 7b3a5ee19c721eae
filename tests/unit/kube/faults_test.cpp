// How the client handles a faulty server, network or file.
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <sstream>
#include <thread>

#include "corbd/core/fd.hpp"
#include "scene.hpp"
#include "support/busy_pool.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::always;
using test::ApiServer;
using test::event;
using test::kThings;
using test::pieces;
using test::thing;
using Peer = ApiServer::Peer;
using Request = ApiServer::Request;
using Scene = test::ApiScene;

namespace {

constexpr std::size_t kMiB = 1 << 20;

/// The failure of each call when the server answers by the script.
std::map<std::string, kube::ApiError> failures(const ApiServer::Script& script) {
  std::map<std::string, kube::ApiError> all;
  const auto keep = [&](const std::string& call, const auto& answer) {
    if (!answer) all[call] = answer.error();
  };
  Scene scene(script);
  keep("get", scene.get());
  keep("list", scene.run(scene.api().list(kThings, kube::named("one"), "0", {})));
  keep("watch", scene.watch().second);
  keep("create", scene.run(scene.api().create(kThings, {}, {})));
  keep("patch", scene.run(scene.api().patch(kThings, "one", {}, {})));
  keep("json_patch", scene.run(scene.api().json_patch(kThings, "one", {}, {})));
  return all;
}

/// An object with objects in it that have so many names each.
std::string thing_with(std::size_t objects, std::size_t names) {
  std::string object, all;
  for (std::size_t i = 0; i < names; ++i) object += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":"")";
  for (std::size_t i = 0; i < objects; ++i) all += (i == 0 ? "{" : ",{") + object + "}";
  return R"({"metadata":{"name":"one"},"data":[)" + all + "]}\n";
}

/// The column "tr", the kind of timer, of the first line of /proc/net/tcp whose peer has that port.
std::string timer_of_connection_to(std::uint16_t port) {
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, ":%04X", port);
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer;
    words >> slot >> local >> remote >> state >> queues >> timer;
    if (remote.ends_with(wanted) && state == "01") return timer.substr(0, 2);
  }
  return "none";
}

}  // namespace

TEST_CASE("an object of 100 MB is aborted after a few MB, however it is requested") {
  std::atomic<std::size_t> sent{0};
  const auto flood = [&](const Request&, Peer& peer) {
    sent = 0;
    peer.begin();
    for (const std::string piece(kMiB, ' '); sent < 100; ++sent) peer.piece(piece);
    peer.end();
  };
  Scene scene(flood);
  CHECK(scene.get().error().error.code == errc::exhausted);
  CHECK(sent < 50);
  CHECK(scene.run(scene.api().list(kThings, kube::named("one"), "0", {})).error().error.code == errc::exhausted);
  CHECK(sent < 50);
  CHECK(scene.watch().second.error().error.code == errc::exhausted);
  CHECK(sent < 50);
}

TEST_CASE("an object with too many names is refused in every call") {
  CHECK(Scene(always(200, thing_with(1, 600))).get().value().at("data").as_array()[0].as_object().size() == 600);
  const auto too_many = failures(always(200, thing_with(1, 8001)));
  REQUIRE(too_many.size() == 6);
  for (const auto& [call, failure] : too_many) {
    CAPTURE(call);
    CHECK(failure.error.code == errc::exhausted);
    CHECK_THAT(failure.error.text, ContainsSubstring("too many names"));
  }
  // A refusal is one all the same.
  CHECK(Scene(always(403, thing_with(1, 8001))).get().error().error.code == errc::unavailable);
}

TEST_CASE("many objects whose names could together take long to read are refused") {
  CHECK(Scene(always(200, thing_with(200, 512))).get());
  const auto refused = Scene(always(200, thing_with(300, 512))).get();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.code == errc::exhausted);
  CHECK_THAT(refused.error().error.text, ContainsSubstring("too many names"));
}

TEST_CASE("the API server's answer is read on another thread, and the control thread goes on meanwhile") {
  const unsigned status = GENERATE(200u, 403u);
  Scene scene([&](const Request& request, Peer& peer) {
    if (request.target.find('?') != request.target.npos) return pieces({event("MODIFIED", "8")})(request, peer);
    peer.answer(status, R"({"metadata":{"name":"one"}})");
  });
  test::BusyPool busy(scene.files);
  test::Started<kube::answer<boost::json::object>> reading(scene.io, scene.api().get(kThings, "one", {}));
  REQUIRE(test::eventually(scene.io, [&] { return scene.server.requests().size() == 1; }));
  // Other calls, each from its beginning to its end.
  for (int i = 0; i < 5; ++i) CHECK(scene.watch().second);
  CHECK_FALSE(reading.done());
  busy.let_go();
  CHECK(reading.get().has_value() == (status == 200));
}

TEST_CASE("an answer whose caller has left is read all the same, also when the client is gone") {
  Scene scene(always(200, R"({"metadata":{"name":"one"}})", "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
  std::optional<kube::Api> api(std::in_place, scene.io.get_executor(), *scene.clock, scene.names, scene.files,
                               scene.access);
  test::BusyPool busy(scene.files);
  CancelScope scope;
  test::Started<kube::answer<boost::json::object>> reading(scene.io,
                                                           api->get(kThings, "one", {time_point::max(), &scope}));
  REQUIRE(test::eventually(scene.io, [&] { return api->ahead().has_value(); }));
  CHECK_FALSE(reading.done());
  scope.cancel();
  CHECK(reading.get().error().error.code == errc::cancelled);
  api.reset();
  busy.let_go();
  std::atomic<bool> read = false;
  scene.files.post([&] { read = true; });
  CHECK(test::eventually(scene.io, [&] { return read.load(); }));
}

TEST_CASE("the size limit applies to each object of a watch, not to the whole watch") {
  std::vector<std::string> body;
  for (int i = 0; i < 12; ++i)
    body.push_back(R"({"type":"MODIFIED","object":{"metadata":{"name":"one","resourceVersion":")" + std::to_string(i) +
                   R"("},"filler":")" + std::string(kMiB, 'x') + "\"}}\n");
  Scene scene(pieces(body));
  const auto [events, ended] = scene.watch();
  CHECK(ended);
  CHECK(events.size() == body.size());
}

TEST_CASE("a list that never ends is aborted") {
  Scene scene(always(200, R"({"metadata":{"continue":"more"},"items":[]})"));
  CHECK(scene.run(scene.api().list(kThings, "", "", {})).error().error.code == errc::exhausted);
}

TEST_CASE("a refusal that is no Status makes the server unavailable however long it is, and its text is cut") {
  const auto refused = failures([](const Request&, Peer& peer) {
    peer.begin(403);
    for (;;) peer.piece(std::string(kMiB, 'x'));
  });
  REQUIRE(refused.size() == 6);
  for (const auto& [call, failure] : refused) {
    CAPTURE(call);
    CHECK(failure.error.code == errc::unavailable);
    CHECK(failure.error.text.size() < 1000);
  }
}

TEST_CASE("every status has its code in every call, and the text names both") {
  struct Case {
    unsigned status;
    errc code;
  };
  const auto [status, code] = GENERATE(values<Case>({{301, errc::unavailable},
                                                     {400, errc::invalid_argument},
                                                     {401, errc::unauthenticated},
                                                     {403, errc::permission_denied},
                                                     {404, errc::not_found},
                                                     {405, errc::unavailable},
                                                     {409, errc::already_exists},
                                                     {410, errc::unavailable},
                                                     {422, errc::invalid_argument},
                                                     {429, errc::unavailable},
                                                     {500, errc::unavailable},
                                                     {502, errc::unavailable},
                                                     {503, errc::unavailable},
                                                     {504, errc::unavailable}}));
  const std::string says = R"({"kind":"Status","reason":"NotFound","details":{"name":"one","kind":"things"}})";
  const auto refused = failures(always(status, says, "Location: http://127.0.0.1:1/\r\n"));
  REQUIRE(refused.size() == 6);
  for (const auto& [call, failure] : refused) {
    CAPTURE(call, status);
    // Only where one object is asked for by its name can that one be absent. Of a create it is the namespace.
    const std::string verb = call == "json_patch" ? "patch" : call;
    const bool by_name = verb == "get" || verb == "patch";
    const errc absent = call == "create" ? errc::failed_precondition : errc::unavailable;
    CHECK(failure.error.code == (status == 404 && !by_name ? absent : code));
    CHECK_THAT(failure.error.text,
               ContainsSubstring(verb + " /api/v1/things") && ContainsSubstring(std::to_string(status)));
    CHECK((failure.kind == kube::ApiError::Kind::expired) == (status == 410));
    CHECK((failure.kind == kube::ApiError::Kind::throttled) == (status == 429));
    if (status == 403) CHECK_THAT(failure.error.text, ContainsSubstring("grant the verb '" + verb + "' on 'things'"));
  }
}

TEST_CASE("a server is asked again within five minutes, even if its Retry-After is years long or negative") {
  Scene years(always(429, "", "Retry-After: 4000000000\r\n"));
  CHECK(years.get().error().retry_after == 300s);
  const auto status = [](const std::string& seconds) {
    Scene scene(always(503, R"({"details":{"retryAfterSeconds":)" + seconds + "}}"));
    return scene.get().error().retry_after;
  };
  CHECK(status("9223372036854775807") == 300s);
  CHECK(status("-9223372036854775808") == 0s);
  CHECK(status("7") == 7s);
  CHECK(status("\"7\"") == std::nullopt);
}

TEST_CASE("list fields of the wrong type are read as empty, and what has no items is no list") {
  const auto listed = [](const std::string& body) {
    Scene scene(always(200, body));
    auto all = scene.run(scene.api().list(kThings, kube::named("one"), "0", {}));
    REQUIRE(all);
    return *all;
  };
  for (const char* body : {"{}", R"({"metadata":7,"items":{"a":1}})", R"({"items":[]})"}) {
    CAPTURE(body);
    Scene scene(always(200, body));
    CHECK(scene.run(scene.api().list(kThings, "", "", {})).error().error.code == errc::unavailable);
  }
  for (const char* body : {R"({"metadata":null,"items":null})", R"({"metadata":7,"items":[]})",
                           R"({"metadata":{"resourceVersion":7,"continue":["x"]},"items":[null,1,[],"one"]})"}) {
    CAPTURE(body);
    CHECK(listed(body).items.empty());
    CHECK(listed(body).version.empty());
  }
}

TEST_CASE("a line that is not an event ends a watch, and an event of an unknown type does not") {
  const auto ended = [](const std::string& line) {
    Scene scene(pieces({event("ADDED", "8"), line + "\n", event("ADDED", "9")}));
    auto [events, how] = scene.watch();
    CHECK(events.size() == (how ? 2u : 1u));
    return how ? errc::ok : how.error().error.code;
  };
  for (const char* line : {"null", "[]", "garbage", "\x01\xff", R"({"type":"ADDED"})",
                           R"({"type":"ADDED","object":null})", R"({"object":7})"}) {
    CAPTURE(line);
    CHECK(ended(line) == errc::io);
  }
  CHECK(ended(R"({"type":"ADDED","object":)" + std::string(1000, '[') + std::string(1000, ']') + "}") == errc::io);
  CHECK(ended(R"({"type":"ERROR","object":{}})") == errc::unavailable);
  CHECK(ended(R"({"type":"ERROR","object":{"code":"410","message":7}})") == errc::unavailable);
  CHECK(ended(R"({"type":"ERROR","object":{"kind":"Status","code":403}})") == errc::permission_denied);
  CHECK(ended(R"({"type":7,"object":{}})") == errc::ok);
}

TEST_CASE("a server that accepts the connection and then stays silent is reported in time, with or without TLS") {
  const Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(silent.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(silent.get(), 4) == 0);
  REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  http::Timing timing;
  timing.connect = timing.head = 50ms;
  const bool tls = GENERATE(false, true);
  Scene scene(thing, ApiServer::Tls::good, timing);
  scene.access.port = ntohs(address.sin_port);
  scene.access.tls = tls;
  const auto got = scene.get();
  REQUIRE_FALSE(got);
  CHECK(got.error().error.code == errc::unavailable);
  CHECK_THAT(got.error().error.text, ContainsSubstring("no answer in time"));
}

TEST_CASE("an idle connection has TCP keepalive on") {
  Scene scene(thing);
  REQUIRE(scene.get());
  // 02: keepalive.
  CHECK(timer_of_connection_to(scene.server.port()) == "02");
}

TEST_CASE("a server that speaks TLS where HTTP is expected, or the reverse, is an error") {
  Scene plain(thing);
  plain.access.tls = true;
  plain.access.authorities = test::pki("ca.pem");
  CHECK_FALSE(plain.get());
  Scene encrypted(thing, ApiServer::Tls::good);
  encrypted.access.tls = false;
  CHECK_FALSE(encrypted.get());
}

TEST_CASE("proxy variables are ignored") {
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
    ::setenv(name, "http://127.0.0.1:1", 1);
  Scene scene(thing, ApiServer::Tls::good);
  CHECK(scene.get());
  for (const char* name : {"http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"})
    ::unsetenv(name);
}

TEST_CASE("a token that stays refused is tried exactly twice") {
  Scene scene(always(401, ""));
  scene.access.token = Secret("expired");
  const auto got = scene.get();
  CHECK(got.error().error.code == errc::unauthenticated);
  CHECK_THAT(got.error().error.text, ContainsSubstring("does not accept") && !ContainsSubstring("expired"));
  CHECK(scene.server.requests().size() == 2);
}

TEST_CASE("a token file with more than a token in it is refused before it becomes part of a request") {
  const test::Folder folder;
  Scene scene(thing);
  scene.access.token_file = folder.path() + "/token";
  std::ofstream(scene.access.token_file) << "abc\r\nX-Remote-User: admin\n";
  const auto got = scene.get();
  REQUIRE_FALSE(got);
  CHECK(got.error().error.code == errc::unavailable);
  CHECK_THAT(got.error().error.text, ContainsSubstring(scene.access.token_file) && !ContainsSubstring("abc"));
  CHECK(scene.server.requests().empty());
}

TEST_CASE(
    "an IP address needs no thread of the pool, and a hanging resolver holds only one however often it is asked") {
  Scene scene(thing);
  std::promise<void> release;
  scene.names.post([&] { release.get_future().wait(); });
  CHECK(scene.get());
  Scene named(thing);
  named.access.host = "localhost";
  std::promise<void> answer;
  named.names.post([&] { answer.get_future().wait(); });
  CHECK(named.get("one", named.within(50ms)).error().error.code == errc::timed_out);
  CHECK(named.get("one", named.within(50ms)).error().error.code == errc::timed_out);
  answer.set_value();
  release.set_value();
  const auto reached = [&] {
    for (int tries = 0; tries < 3000; ++tries, std::this_thread::sleep_for(10ms))
      if (named.get()) return true;
    return false;
  };
  CHECK(reached());
}
