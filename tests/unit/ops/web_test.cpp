#include "corbd/ops/web.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <optional>

#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/loop.hpp"

using namespace corbd;
using corbd::test::Started;
using namespace std::chrono_literals;

namespace {

struct Scene {
  explicit Scene(std::uint16_t port = 0) : web(loop.control(), loop.clock, pool, config(port), sources()) {}
  ops::WebConfig config(std::uint16_t port) const {
    ops::WebConfig made;
    made.address = "127.0.0.1";
    made.port = port;
    made.metrics_path = "/here";
    return made;
  }
  ops::WebSources sources() {
    auto snapshot = [this] {
      ++looked;
      ops::Snapshot made;
      made.version = "1.2.3";
      made.health = ops::judge(facts);
      return made;
    };
    const auto node = [this] {
      ++judged;
      return ops::judge(facts);
    };
    return {snapshot, node};
  }
  http::Response page(const std::string& target) {
    return Started<http::Response>(loop.io, web.page({"GET", target})).get();
  }

  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ops::NodeFacts facts;
  int looked = 0;  ///< at volumes, clusters and helpers
  int judged = 0;  ///< the node alone
  ops::Web web;
};

}  // namespace

TEST_CASE("the metrics are at the configured path, whatever the query, and hold the calls") {
  Scene scene;
  scene.web.ended({"NodeStageVolume", 0, 1s});
  const auto page = scene.page("/here?name=x");
  CHECK(page.status == 200);
  CHECK(page.content_type == ops::kMetricsType);
  CHECK_THAT(page.body, ContainsSubstring("corbd_build_info{version=\"1.2.3\"} 1\n"));
  CHECK_THAT(
      page.body,
      ContainsSubstring("corbd_csi_operations_seconds_count{method=\"NodeStageVolume\",grpc_status_code=\"OK\"} 1\n"));
}

TEST_CASE("a page that does not exist says which do") {
  Scene scene;
  const auto page = scene.page("/metrics");
  CHECK(page.status == 404);
  CHECK_THAT(page.body, ContainsSubstring("/here"));
}

TEST_CASE("anybody may ask for health and readiness, so they look at no volume") {
  Scene scene;
  static_cast<void>(scene.page("/healthz"));
  static_cast<void>(scene.page("/readyz"));
  CHECK(scene.looked == 0);
  static_cast<void>(scene.page("/here"));
  CHECK(scene.looked == 1);
}

TEST_CASE("health does not ask for readiness") {
  Scene scene;
  scene.facts.csi = Error{errc::unavailable, "no socket"};
  CHECK(scene.page("/healthz").status == 200);
  const auto ready = scene.page("/readyz");
  CHECK(ready.status == 503);
  CHECK_THAT(ready.body, ContainsSubstring("no socket\n"));
}

TEST_CASE("the metrics say what the probes and the status say") {
  Scene scene;
  CHECK_THAT(scene.page("/here").body, ContainsSubstring("corbd_ready 1\n"));
  scene.loop.advance(1s);
  scene.facts.drivers[device::Kind::nbd] = Error{errc::failed_precondition, "no driver"};
  scene.facts.system_bus = {ops::Outsider::State::silent, "no bus"};
  const auto body = scene.page("/here").body;
  CHECK_THAT(body, ContainsSubstring("corbd_ready 0\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"nbd\"} 2\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"d-bus\"} 1\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"agent\"} 0\n"));
}

TEST_CASE("each page is made once a second at most, however many ask for it", "[failure:211]") {
  Scene scene;
  Started<http::Response> first(scene.loop.io, scene.web.page({"GET", "/here"}));
  Started<http::Response> second(scene.loop.io, scene.web.page({"GET", "/here"}));
  CHECK(first.get().body == second.get().body);
  for (const char* target : {"/here", "/healthz", "/readyz"})
    for (int i = 0; i < 3; ++i) CHECK(scene.page(target).status == 200);
  CHECK(scene.looked == 1);
  CHECK(scene.judged == 2);
  scene.loop.advance(1s);
  for (const char* target : {"/here", "/healthz", "/readyz"}) CHECK(scene.page(target).status == 200);
  CHECK(scene.looked == 2);
  CHECK(scene.judged == 4);
}

TEST_CASE("without a port nothing listens, and stopping is at once") {
  Scene scene;
  scene.web.start();
  scene.loop.run(scene.web.stop({}));
}

TEST_CASE("a port that another process has is told with the reason, and served once that process lets go of it") {
  boost::asio::io_context elsewhere;
  std::optional<boost::asio::ip::tcp::acceptor> other(
      std::in_place, elsewhere, boost::asio::ip::tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  const auto port = other->local_endpoint().port();
  Scene scene(port);
  scene.web.start();
  scene.loop.advance(25s);
  CHECK_THAT(scene.web.port().refused, ContainsSubstring(std::to_string(port)));
  CHECK(scene.web.port().since == 25s);
  other.reset();
  scene.loop.advance(10s);
  CHECK(scene.web.port().refused.empty());
  boost::asio::ip::tcp::socket reader(elsewhere);
  CHECK_NOTHROW(reader.connect({boost::asio::ip::address_v4::loopback(), port}));
  scene.loop.run(scene.web.stop({}));
}
