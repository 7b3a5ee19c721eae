#include "corbd/ops/web.hpp"

#include "support/catch.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Scene {
  Scene() : web(loop.control(), loop.clock, config(), sources()) {}
  ops::WebConfig config() const {
    ops::WebConfig made;
    made.metrics_path = "/here";
    return made;
  }
  ops::WebSources sources() {
    auto snapshot = [] {
      ops::Snapshot made;
      made.version = "1.2.3";
      return made;
    };
    const auto whole = [this] {
      ++looked;
      return ops::judge(facts);
    };
    return {snapshot, whole, [this] { return ops::judge(facts); }};
  }

  test::Loop loop;
  ops::NodeFacts facts;
  int looked = 0;  ///< at volumes, clusters and helpers
  ops::Web web;
};

}  // namespace

TEST_CASE("the metrics are at the configured path, whatever the query, and hold the calls") {
  Scene scene;
  scene.web.ended({"NodeStageVolume", 0, 1s});
  const auto page = scene.web.page({"GET", "/here?name=x"});
  CHECK(page.status == 200);
  CHECK(page.content_type == ops::kMetricsType);
  CHECK_THAT(page.body, ContainsSubstring("corbd_build_info{version=\"1.2.3\"} 1\n"));
  CHECK_THAT(
      page.body,
      ContainsSubstring("corbd_csi_operations_seconds_count{method=\"NodeStageVolume\",grpc_status_code=\"OK\"} 1\n"));
}

TEST_CASE("a page that does not exist says which do") {
  Scene scene;
  const auto page = scene.web.page({"GET", "/metrics"});
  CHECK(page.status == 404);
  CHECK_THAT(page.body, ContainsSubstring("/here"));
}

TEST_CASE("anybody may ask for health and readiness, so they look at no volume") {
  Scene scene;
  static_cast<void>(scene.web.page({"GET", "/healthz"}));
  static_cast<void>(scene.web.page({"GET", "/readyz"}));
  CHECK(scene.looked == 0);
  static_cast<void>(scene.web.page({"GET", "/here"}));
  CHECK(scene.looked == 1);
}

TEST_CASE("health does not ask for readiness") {
  Scene scene;
  scene.facts.csi = Error{errc::unavailable, "no socket"};
  CHECK(scene.web.page({"GET", "/healthz"}).status == 200);
  const auto ready = scene.web.page({"GET", "/readyz"});
  CHECK(ready.status == 503);
  CHECK_THAT(ready.body, ContainsSubstring("no socket\n"));
}

TEST_CASE("the metrics say what the probes and the status say") {
  Scene scene;
  CHECK_THAT(scene.web.page({"GET", "/here"}).body, ContainsSubstring("corbd_ready 1\n"));
  scene.facts.drivers[device::Kind::nbd] = Error{errc::failed_precondition, "no driver"};
  scene.facts.system_bus = {ops::Outsider::State::silent, "no bus"};
  const auto body = scene.web.page({"GET", "/here"}).body;
  CHECK_THAT(body, ContainsSubstring("corbd_ready 0\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"nbd\"} 2\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"d-bus\"} 1\n"));
  CHECK_THAT(body, ContainsSubstring("corbd_component_verdict{component=\"agent\"} 0\n"));
}

TEST_CASE("without a port nothing listens, and stopping is at once") {
  Scene scene;
  scene.web.start();
  scene.loop.run(scene.web.stop({}));
}
