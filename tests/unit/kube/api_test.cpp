// The API client against a scripted server, over plain HTTP and TLS.
#include <cstdlib>
#include <fstream>

#include "corbd/core/base64.hpp"
#include "scene.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using kube::Change;
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

/// `user`: in YAML's flow style.
std::string kubeconfig(const std::string& server, const std::string& authorities, const std::string& user) {
  return "current-context: c\ncontexts: [{name: c, context: {cluster: s, user: u}}]\nclusters: [{name: s, cluster: {"
         "server: \"" +
         server + "\", certificate-authority-data: " + to_base64(authorities) + "}}]\nusers: [{name: u, user: " + user +
         "}]\n";
}

}  // namespace

TEST_CASE("an object is read by its name over a reused connection") {
  Scene scene(always(200, R"({"metadata":{"name":"o/n e"},"a":1})"));
  for (int i = 0; i < 3; ++i) {
    const auto found = scene.get("o/n e");
    REQUIRE(found);
    CHECK(found->at("a").as_int64() == 1);
  }
  const auto requests = scene.server.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[0].target == "/api/v1/things/o%2Fn%20e");
  CHECK(requests[2].connection == 1);
}

TEST_CASE("a request succeeds even if the server has closed the kept connection") {
  Scene scene([](const Request& request, Peer& peer) {
    if (request.connection == 1 && request.target.ends_with("/second")) peer.close();
    peer.answer(200, test::asked_for(request));
  });
  REQUIRE(scene.get("first"));
  CHECK(scene.get("second"));
  CHECK(scene.server.requests().back().connection == 2);
}

TEST_CASE("the error for a refused request has its code, its reason and the right to grant") {
  const auto status = [](const std::string& reason) {
    return R"({"kind":"Status","reason":")" + reason + R"(","message":"no"})";
  };
  Scene forbidden(always(403, status("Forbidden")));
  test::expect_forbidden(forbidden, kThings);
  Scene stranger(always(401, ""));
  test::expect_stranger(stranger, kThings);
  Scene absent([](const Request& request, Peer& peer) { peer.absent(request); });
  test::expect_absent(absent, kThings, "one");
  Scene taken(always(409, status("AlreadyExists")));
  test::expect_taken(taken, kThings, {});
  const auto code = [](unsigned number, const std::string& says) {
    Scene scene(always(number, says));
    return scene.get().error().error;
  };
  CHECK(code(422, status("Invalid")).code == errc::invalid_argument);
  CHECK(code(500, "boom").code == errc::unavailable);
  CHECK_THAT(code(503, "boom\x01").text, ContainsSubstring("503: boom "));
}

TEST_CASE("only the API server's own Status about the object says that it is not there") {
  const auto code = [](unsigned status, const std::string& says) {
    Scene scene(always(status, says));
    return scene.get().error().error.code;
  };
  const auto absence = [](const std::string& reason, const std::string& name, const std::string& kind) {
    return R"({"kind":"Status","reason":")" + reason + R"(","details":{"name":")" + name + R"(","kind":")" + kind +
           R"("}})";
  };
  CHECK(code(404, absence("NotFound", "one", "things")) == errc::not_found);
  for (const std::string& other : {std::string("<html>404 Not Found</html>"), std::string("404 page not found"),
                                   std::string(), std::string(R"({"kind":"Status","reason":"NotFound"})"),
                                   std::string(R"({"message":"not found"})"), absence("NotFound", "two", "things"),
                                   absence("NotFound", "one", "namespaces"), absence("Expired", "one", "things")})
    CHECK(code(404, other) == errc::unavailable);
}

TEST_CASE("a proxy's refusal is not the API server's, and its empty object is neither the one asked for nor a list") {
  for (const unsigned status : {400u, 403u, 404u, 409u, 410u, 422u}) {
    Scene scene(always(status, "<html>no</html>"));
    const auto refused = scene.get().error();
    CHECK(refused.error.code == errc::unavailable);
    CHECK(refused.kind == kube::ApiError::Kind::other);
  }
  Scene empty(always(200, "{}"));
  CHECK(empty.get().error().error.code == errc::unavailable);
  CHECK(empty.list(kThings, "", "").error().error.code == errc::unavailable);
  Scene another(always(200, R"({"metadata":{"name":"two"}})"));
  CHECK(another.get().error().error.code == errc::unavailable);
}

TEST_CASE("a 429 answer says when to retry, and 410 and 504 tell an expired version from one that is too new") {
  Scene throttled(always(429, "Too many requests, please try again later.", "Retry-After: 5\r\n"));
  const auto later = throttled.get();
  REQUIRE_FALSE(later);
  CHECK(later.error().kind == kube::ApiError::Kind::throttled);
  CHECK(later.error().retry_after == 5s);
  Scene expired(always(410, R"({"kind":"Status","reason":"Expired"})"));
  test::expect_expired(expired, kThings, "7");
  Scene early(always(
      504,
      R"({"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}],"retryAfterSeconds":1}})"));
  test::expect_too_new(early, kThings, "7");
}

TEST_CASE("the clock difference comes from the server's last answer, and is otherwise unknown") {
  const auto then = std::chrono::system_clock::from_time_t(784111777);
  Scene scene(always(200, R"({"metadata":{"name":"one"}})", "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
  CHECK_FALSE(scene.api().ahead());
  const auto before = std::chrono::system_clock::now();
  REQUIRE(scene.get());
  REQUIRE(scene.api().ahead());
  CHECK(*scene.api().ahead() <= then - before);
  CHECK(*scene.api().ahead() >= then - std::chrono::system_clock::now() - 1ms);
  Scene silent(always(200, R"({"metadata":{"name":"one"}})",
                      GENERATE("", "Date: yesterday\r\n", "Date: Sun, 06 Nov 9994 08:49:37 GMT\r\n",
                               "Date: Sun, 06 Nov 1994 08:49:37 GMT+1\r\n")));
  REQUIRE(silent.get());
  CHECK_FALSE(silent.api().ahead());
}

TEST_CASE("garbage, deep nesting, and a body that is too long or cut off are errors") {
  const auto code = [](ApiServer::Script script) {
    Scene scene(std::move(script));
    return scene.get().error().error.code;
  };
  CHECK(code(always(200, "[1]")) == errc::io);
  CHECK(code(always(200, std::string(100000, '['))) == errc::io);
  CHECK(code([](const Request&, Peer& peer) {
          peer.send("nonsense\r\n\r\n");
          peer.close();
        }) == errc::io);
  CHECK(code([](const Request&, Peer& peer) {
          peer.send("HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n{");
          peer.close();
        }) == errc::unavailable);
  CHECK(code([](const Request&, Peer& peer) {
          peer.begin();
          for (;;) peer.piece(std::string(1 << 20, ' '));
        }) == errc::exhausted);
}

TEST_CASE("a silent server and a missing one are reported within the limit") {
  http::Timing timing;
  timing.head = 50ms;
  Scene silent([](const Request&, Peer& peer) { peer.hang(); }, ApiServer::Tls::none, timing);
  CHECK(silent.get().error().error.code == errc::unavailable);
  Scene slow([](const Request&, Peer& peer) { peer.hang(); });
  CHECK(slow.get("one", slow.within(50ms)).error().error.code == errc::timed_out);
  Scene nobody(thing);
  nobody.access.port = 1;
  CHECK(nobody.get().error().error.code == errc::unavailable);
  Scene nameless(thing);
  nameless.access.host = "no-such-host.invalid";
  CHECK(nameless.get().error().error.code == errc::unavailable);
}

TEST_CASE("a list is read page by page") {
  Scene scene([](const Request& request, Peer& peer) {
    if (request.target.find("continue=next") == request.target.npos)
      peer.answer(200, R"({"metadata":{"resourceVersion":"8","continue":"next"},"items":[{"a":1},{"a":2}]})");
    else
      peer.answer(200, R"({"metadata":{"resourceVersion":"9"},"items":[{"a":3}]})");
  });
  const auto all = scene.run(scene.api().list(kThings, "", "0", {}));
  REQUIRE(all);
  CHECK(all->items.size() == 3);
  CHECK(all->version == "9");
  CHECK(scene.server.requests()[0].target == "/api/v1/things?resourceVersion=0&limit=500");
  CHECK(scene.server.requests()[1].target == "/api/v1/things?limit=500&continue=next");
}

TEST_CASE("a watch delivers its events in order, however its body is split") {
  const std::string body = event("ADDED", "8") + event("MODIFIED", "9") + event("BOOKMARK", "11") +
                           event("DELETED", "12") + event("NEWKIND", "13");
  const std::size_t size = GENERATE(std::size_t{1}, std::size_t{7}, std::size_t{100000});
  std::vector<std::string> cut;
  for (std::size_t place = 0; place < body.size(); place += size) cut.push_back(body.substr(place, size));
  Scene scene(pieces(cut));
  const auto [events, ended] = scene.watch();
  CHECK(ended);
  REQUIRE(events.size() == 4);
  CHECK(events[0].kind == Change::Kind::added);
  CHECK(events[2].kind == Change::Kind::bookmark);
  CHECK(events[2].object.empty());
  CHECK(events[3].version == "12");
  CHECK(
      scene.server.requests()[0].target ==
      "/api/v1/"
      "things?watch=1&fieldSelector=metadata.name%3Done&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=300");
}

TEST_CASE("a watch can send the initial objects first and mark their end") {
  Scene scene(pieces(
      {event("ADDED", "8"),
       R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}})"
       "\n",
       R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":true}}}})"
       "\n"}));
  const auto [events, ended] = scene.watch("0", true);
  CHECK(ended);
  REQUIRE(events.size() == 3);
  CHECK_FALSE(events[0].ends_initial);
  CHECK(events[1].ends_initial);
  CHECK(events[1].version == "9");
  CHECK_FALSE(events[2].ends_initial);
  CHECK_THAT(scene.server.requests()[0].target,
             ContainsSubstring("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
}

TEST_CASE("an expired version inside a 200 answer counts as an expired version") {
  Scene at_once(pieces({R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                        "\n"}));
  test::expect_expired(at_once, kThings, "7");
  Scene scene(
      pieces({event("ADDED", "8"), R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}})"
                                   "\n"}));
  const auto [events, ended] = scene.watch();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().kind == kube::ApiError::Kind::expired);
  CHECK(events.size() == 1);
}

TEST_CASE("a watch that breaks in the middle of an object fails, and the events before it count") {
  Scene scene(pieces({event("ADDED", "8"), R"({"type":"ADD)"}));
  const auto [events, ended] = scene.watch();
  CHECK_FALSE(ended);
  CHECK(events.size() == 1);
}

TEST_CASE("the token is sent with each request and read again after a 401") {
  const test::Folder folder;
  std::ofstream(folder.path() + "/token") << "old\n";
  const std::string next = folder.path() + "/token";
  Scene scene([next](const Request& request, Peer& peer) {
    if (request.authorization == "Bearer new") return peer.answer(200, test::asked_for(request));
    std::ofstream(next) << " new\n";
    peer.answer(401, "");
  });
  scene.access.token_file = next;
  CHECK(scene.get());
  const auto requests = scene.server.requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].authorization == "Bearer old");
}

TEST_CASE("a client certificate is read again after a 401") {
  const test::Folder folder;
  const std::string file = folder.path() + "/client.pem";
  std::ofstream(file) << test::pki("client.pem");
  Scene scene(
      [file](const Request&, Peer& peer) {
        std::ofstream(file) << "rotated";
        peer.answer(401, "");
      },
      ApiServer::Tls::asks_for_certificate);
  scene.access.certificate_file = file;
  scene.access.key = Secret(test::pki("client.key"));
  const auto refused = scene.get();
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().error.text, ContainsSubstring("certificate"));
  CHECK(scene.server.requests().size() == 1);
}

TEST_CASE("a kubeconfig whose token was replaced is read again after a 401") {
  const test::Folder folder;
  std::string rewritten;
  Scene scene([&](const Request& request, Peer& peer) {
    if (request.authorization == "Bearer new") return peer.answer(200, test::asked_for(request));
    std::ofstream(folder.path() + "/config") << rewritten;
    peer.answer(401, "");
  });
  const auto with_token = [&](const std::string& token) {
    return kubeconfig("http://127.0.0.1:" + std::to_string(scene.server.port()), "unused", "{token: " + token + "}");
  };
  rewritten = with_token("new");
  std::ofstream(folder.path() + "/config") << with_token("old");
  scene.access = kube::read_kubeconfig(folder.path() + "/config").value();
  CHECK(scene.get());
  const auto requests = scene.server.requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].authorization == "Bearer old");
}

TEST_CASE("a client certificate in a kubeconfig is read again after a 401") {
  const test::Folder folder;
  std::string rewritten;
  Scene scene(
      [&](const Request&, Peer& peer) {
        std::ofstream(folder.path() + "/config") << rewritten;
        peer.answer(401, "");
      },
      ApiServer::Tls::asks_for_certificate);
  const auto with_certificate = [&](const std::string& certificate) {
    return kubeconfig("https://127.0.0.1:" + std::to_string(scene.server.port()), test::pki("ca.pem"),
                      "{client-certificate-data: " + to_base64(certificate) +
                          ", client-key-data: " + to_base64(test::pki("client.key")) + "}");
  };
  rewritten = with_certificate("rotated");
  std::ofstream(folder.path() + "/config") << with_certificate(test::pki("client.pem"));
  scene.access = kube::read_kubeconfig(folder.path() + "/config").value();
  const auto refused = scene.get();
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().error.text, ContainsSubstring("certificate"));
  CHECK(scene.server.requests().size() == 1);
}

TEST_CASE("a file of the credentials that is not there says nothing of an object") {
  Scene scene(thing);
  scene.access.token_file = "/no/such/token";
  CHECK(scene.get().error().error.code == errc::unavailable);
  Scene untrusting(thing, ApiServer::Tls::good);
  untrusting.access.authorities.clear();
  untrusting.access.authorities_file = "/no/such/ca.crt";
  CHECK(untrusting.get().error().error.code == errc::unavailable);
  CHECK_THAT(untrusting.get().error().error.text, ContainsSubstring("/no/such/ca.crt"));
}

TEST_CASE("a token stays in use after its file is gone") {
  const test::Folder folder;
  const std::string file = folder.path() + "/token";
  std::ofstream(file) << "kept";
  std::atomic<int> asked{0};
  Scene scene(
      [&](const Request& request, Peer& peer) { peer.answer(++asked == 1 ? 401 : 200, test::asked_for(request)); });
  scene.access.token_file = file;
  CHECK(scene.get());
  std::filesystem::remove(file);
  CHECK(scene.get());
  CHECK(scene.server.requests().back().authorization == "Bearer kept");
}

TEST_CASE("a server is trusted if the authorities signed its certificate for that address") {
  Scene scene(thing, ApiServer::Tls::good);
  CHECK(scene.get());
  Scene by_name(thing, ApiServer::Tls::good);
  by_name.access.host = "localhost";
  CHECK(by_name.get());
  Scene elsewhere(thing, ApiServer::Tls::wrong_host);
  const auto refused = elsewhere.get();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.code == errc::unauthenticated);
  Scene stranger(thing, ApiServer::Tls::good);
  stranger.access.authorities = test::pki("other-ca.pem");
  CHECK(stranger.get().error().error.code == errc::unauthenticated);
  Scene anybody(thing, ApiServer::Tls::wrong_host);
  anybody.access.insecure = true;
  CHECK(anybody.get());
}

TEST_CASE("authorities in the file that SSL_CERT_FILE names are believed beside those in OpenSSL's folder") {
  const test::Folder folder, empty;
  const std::string file = folder.path() + "/mine.pem";
  const auto believed = [&](const test::Folder& with, const std::string& authority) {
    std::ofstream(file) << test::pki(authority);
    ::setenv("SSL_CERT_DIR", with.path().c_str(), 1);
    ::setenv("SSL_CERT_FILE", file.c_str(), 1);
    Scene scene(thing, ApiServer::Tls::good);
    scene.access.authorities.clear();
    const bool answered = scene.get().has_value();
    for (const char* name : {"SSL_CERT_DIR", "SSL_CERT_FILE"}) ::unsetenv(name);
    return answered;
  };
  CHECK(believed(empty, "ca.pem"));
  CHECK_FALSE(believed(empty, "other-ca.pem"));
  std::ofstream(folder.path() + "/057563fe.0") << test::pki("ca.pem");  // the hash of its subject
  CHECK(believed(folder, "other-ca.pem"));
}

TEST_CASE("replaced authorities are read from their file when the old ones do not match") {
  const test::Folder folder;
  const std::string file = folder.path() + "/ca.crt";
  std::ofstream(file) << test::pki("other-ca.pem");
  Scene scene(thing, ApiServer::Tls::good);
  scene.access.authorities.clear();
  scene.access.authorities_file = file;
  CHECK_FALSE(scene.get());
  std::ofstream(file) << test::pki("ca.pem");
  CHECK(scene.get());
}

TEST_CASE("a client certificate is presented to a server that asks for it") {
  Scene scene(thing, ApiServer::Tls::asks_for_certificate);
  scene.access.certificate = test::pki("client.pem");
  scene.access.key = Secret(test::pki("client.key"));
  CHECK(scene.get());
  Scene without(thing, ApiServer::Tls::asks_for_certificate);
  CHECK_FALSE(without.get());
}

TEST_CASE("an object is created by POST with its body, and changed by PATCH under its name") {
  Scene scene(always(201, "{}"));
  CHECK(scene.run(scene.api().create(kThings, {{"reason", "x"}}, {})));
  CHECK(scene.run(scene.api().patch(kThings, "one", {{"count", 2}}, {})));
  CHECK(scene.run(scene.api().json_patch(kThings, "one", {boost::json::object{{"op", "test"}}}, {})));
  const auto requests = scene.server.requests();
  REQUIRE(requests.size() == 3);
  CHECK(requests[2].body == R"([{"op":"test"}])");
  CHECK(requests[0].method == "POST");
  CHECK(requests[0].body == R"({"reason":"x"})");
  CHECK(requests[1].method == "PATCH");
  CHECK(requests[1].target == "/api/v1/things/one");
}
