#include "corbd/ops/web.hpp"

#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

using namespace corbd;
using namespace std::chrono_literals;

namespace {

struct Scene {
  Scene() : pool(loop.control(), loop.clock, 1), web(loop.control(), loop.clock, pool, config(), sources()) {}
  ops::WebConfig config() const {
    ops::WebConfig made;
    made.metrics_path = "/here";
    made.state_dir = folder.path();
    return made;
  }
  ops::WebSources sources() {
    auto snapshot = [] {
      ops::Snapshot made;
      made.version = "1.2.3";
      return made;
    };
    return {snapshot, [this] { return reasons; }};
  }

  test::Loop loop;
  test::Folder folder;
  BlockingPool pool;
  std::vector<Error> reasons;
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

TEST_CASE("health does not ask for readiness") {
  Scene scene;
  scene.reasons = {{errc::unavailable, "no socket"}};
  CHECK(scene.web.page({"GET", "/healthz"}).status == 200);
  const auto ready = scene.web.page({"GET", "/readyz"});
  CHECK(ready.status == 503);
  CHECK_THAT(ready.body, ContainsSubstring("no socket\n") && ContainsSubstring(scene.folder.path()));
}

TEST_CASE("without a port nothing listens, and stopping is at once") {
  Scene scene;
  scene.web.start();
  scene.loop.run(scene.web.stop({}));
}
