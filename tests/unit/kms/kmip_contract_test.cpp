// What the agent relies on of a KMIP server, for the lab's scripted one (tests/lab/kms_servers.py) and for PyKMIP:
// tests/process/kmip_contract starts them, and runs this with the endpoint in CORBD_KMIP and, in CORBD_KMIP_KEY and
// CORBD_KMIP_FOREIGN, the names of a key that this client may use and of another client's.
#include <cstdlib>

#include "fake_transport.hpp"
#include "kmip.hpp"
#include "support/busy_pool.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"
#include "transport.hpp"
#include "wrapped_key.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  REQUIRE(value != nullptr);
  return value;
}

std::string of_pki(const std::string& file) {
  std::ifstream from(tests_folder() + "/support/pki/" + file);
  return {std::istreambuf_iterator<char>(from), {}};
}

struct RealKmip {
  RealKmip() {
    ask.kms_id = "mine";
    ask.owner.volume_id = "volume";
    ask.section["KMIP_ENDPOINT"] = from_environment("CORBD_KMIP");
    transport.secrets["ceph/ceph-csi-kmip-credentials"] = {{"CA_CERT", of_pki("ca.pem")},
                                                           {"CLIENT_CERT", of_pki("client.pem")},
                                                           {"CLIENT_KEY", of_pki("client.key")},
                                                           {"UNIQUE_IDENTIFIER", from_environment("CORBD_KMIP_KEY")}};
    transport.frames = [this](const http::Peer& peer, const std::string& request) {
      const Until until{clock->now() + std::chrono::seconds(20)};
      return Started<result<std::string>>(io, real->exchange(peer, request, kms::kAnswerBytes, until)).get();
    };
  }
  result<std::string> wrap(const std::string& key = "w6XnDvKk3bO0u9pWm2Jq1rT5yZs=") {
    return loop.run(kms::kmip::wrap(transport, ask, Secret(key)));
  }
  result<Secret> unwrap(const std::string& wrapped) { return loop.run(kms::kmip::unwrap(transport, ask, wrapped)); }
  void with(const std::string& name, const std::string& value) {
    transport.secrets["ceph/ceph-csi-kmip-credentials"][name] = value;
  }
  asio::io_context io;
  std::unique_ptr<Clock> clock = make_real_clock(io.get_executor());
  BlockingPool files{io.get_executor(), *clock, 1};
  kms::KmsContext around{io.get_executor(), *clock, files, nullptr, "ceph"};
  std::unique_ptr<kms::Transport> real = kms::make_transport(around, {"mine"});
  Loop loop;
  FakeTransport transport;
  kms::KeyCall ask;
};

}  // namespace

TEST_CASE("what a KMIP server encrypted it decrypts, of any length", "[.kmip]") {
  RealKmip server;
  for (const std::size_t length : {1, 16, 28, 8192}) {
    const std::string key(length, 'k');
    const auto first = server.wrap(key), second = server.wrap(key);
    REQUIRE(first);
    REQUIRE(second);
    CHECK(*first != *second);
    CHECK(server.unwrap(*first).value().reveal() == key);
    CHECK(server.unwrap(*second).value().reveal() == key);
  }
}

TEST_CASE("a KMIP server's key, when it is handed out, opens what was sealed with it", "[.kmip]") {
  RealKmip server;
  server.ask.section["USE_CRYPTO_RPC"] = "false";
  const auto sealed = server.wrap("key");
  REQUIRE(sealed);
  CHECK(server.unwrap(*sealed).value().reveal() == "key");
}

TEST_CASE("a KMIP server refuses a key that nobody made, or that is another client's", "[.kmip]") {
  RealKmip server;
  const bool rpc = GENERATE(true, false);
  server.ask.section["USE_CRYPTO_RPC"] = rpc ? "true" : "false";
  const auto sealed = server.wrap();
  REQUIRE(sealed);
  const bool foreign = GENERATE(true, false);
  server.with("UNIQUE_IDENTIFIER", foreign ? from_environment("CORBD_KMIP_FOREIGN") : "no such key");
  const errc expected = foreign ? errc::permission_denied : errc::failed_precondition;
  const auto wrapped = server.wrap();
  const auto unwrapped = server.unwrap(*sealed);
  REQUIRE_FALSE(wrapped);
  REQUIRE_FALSE(unwrapped);
  CHECK(wrapped.error().code == expected);
  CHECK(unwrapped.error().code == expected);
  CHECK_THAT(unwrapped.error().text, ContainsSubstring("UNIQUE_IDENTIFIER"));
}

TEST_CASE("a KMIP server does not decrypt what was cut", "[.kmip]") {
  RealKmip server;
  auto cut = kms::parse_wrapped_key(server.wrap().value()).value();
  cut.dek.pop_back();
  const auto unwrapped = server.unwrap(kms::text_of(cut));
  REQUIRE_FALSE(unwrapped);
  CHECK(unwrapped.error().code == errc::failed_precondition);
}

TEST_CASE("a KMIP server serves nobody with a certificate of another authority", "[.kmip]") {
  RealKmip server;
  for (const char* name : {"CLIENT_CERT", "CLIENT_KEY"}) server.with(name, of_pki("rsa.pem"));
  CHECK_FALSE(server.wrap());
}
