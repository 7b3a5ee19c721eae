// Volumes that kubelet has forgotten.
#include "corbd/orchestrator/orphans.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

struct Scene {
  std::atomic<bool> attached = false;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target.find("/nodes/") != request.target.npos) return peer.object(request, 200, "{}");
    if (!attached) return peer.absent(request);
    peer.object(
        request, 200,
        R"({"metadata":{"uid":"u"},"spec":{"attacher":"driver","nodeName":"node-1"},"status":{"attached":true}})");
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  orchestrator::Attachments attachments{loop.control(), loop.clock, &api, {"driver", "node-1", 10min}};
  std::optional<kube::Node> node;
  std::vector<std::string> told;
  test::ScriptedVolumes volumes;
  std::unique_ptr<orchestrator::Orphans> orphans;
  explicit Scene(bool unstage = true) {
    auto& volume = volumes.all.emplace_back();
    volume.volume_id = "v";
    volume.staged_at = {"/staging"};
    volume.attachment_uid = "u";
    orchestrator::Orphans::Config config;
    config.driver = "driver";
    config.unstage = unstage;
    config.tell = [this](const std::string&, const kube::Notice& notice) { told.push_back(notice.reason); };
    orphans = std::make_unique<orchestrator::Orphans>(
        loop.control(), loop.clock, attachments, [this] { return node; }, volumes, config);
    orphans->start();
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.orphans->stop({});
    co_await self.attachments.stop({});
    co_return true;
  }
  /// Each question to the server is answered before more time passes.
  void pass(std::chrono::minutes time) {
    for (; time.count() > 0; --time) {
      loop.clock.advance(1min);
      for (int idle = 0; idle < 5;) {
        loop.io.restart();
        idle = loop.io.run_one_for(20ms) == 0 ? idle + 1 : 0;
      }
    }
  }
};

}  // namespace

TEST_CASE("a detached volume that no pod uses is unstaged after the grace, if that is enabled") {
  Scene scene;
  scene.pass(10min);
  CHECK_FALSE(scene.server.requests().empty());
  CHECK(scene.volumes.wishes.empty());
  scene.pass(10min);
  REQUIRE_FALSE(scene.volumes.wishes.empty());
  CHECK(std::get<plan::Unstaged>(scene.volumes.wishes.front()).path == "/staging");
}

TEST_CASE("a forgotten volume is only reported unless unstaging it is enabled") {
  Scene scene(false);
  scene.pass(30min);
  CHECK(scene.told == std::vector<std::string>{"VolumeOrphaned"});
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a volume that is still attached is not forgotten") {
  Scene scene;
  scene.attached = true;
  scene.pass(30min);
  CHECK_FALSE(scene.server.requests().empty());
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a volume that a pod uses, or whose attachment was never seen, is never unstaged as forgotten") {
  Scene scene;
  if (GENERATE(true, false))
    scene.volumes.all.front().published_at = {"/target"};
  else
    scene.volumes.all.front().attachment_uid.clear();
  scene.pass(30min);
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a volume that this agent's own Node object lists costs the API server no request") {
  Scene scene;
  scene.node.emplace().volumes_attached = {"kubernetes.io/csi/driver^v"};
  scene.pass(30min);
  CHECK(scene.server.requests().empty());
}

TEST_CASE("a volume whose Node lacked it for a moment is asked for again", "[failure:192]") {
  Scene scene;
  scene.attached = true;
  scene.attachments.start(scene.volumes);
  scene.volumes.all.front().attachment_uid = "earlier";
  scene.volumes.all.front().published_at = {"/target"};
  scene.node.emplace();
  scene.orphans->note_node();
  scene.node->volumes_attached = {"kubernetes.io/csi/driver^v"};
  scene.orphans->note_node();
  scene.pass(2min);
  REQUIRE_FALSE(scene.volumes.wishes.empty());
  CHECK(std::get<plan::Attached>(scene.volumes.wishes.front()).uid == "u");
}

TEST_CASE("a volume in use that the own Node no longer lists is looked up, reported and left as it is",
          "[failure:114]") {
  Scene scene;
  scene.node.emplace();
  scene.volumes.all.front().published_at = {"/target"};
  scene.pass(30min);
  CHECK(scene.told == std::vector<std::string>{"VolumeDetached"});
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("the grace of a volume that was detached under its pod begins when the pod is gone") {
  Scene scene;
  scene.node.emplace();
  scene.volumes.all.front().published_at = {"/target"};
  scene.pass(30min);
  scene.volumes.all.front().published_at.clear();
  scene.pass(8min);
  CHECK(scene.volumes.wishes.empty());
  scene.pass(8min);
  CHECK_FALSE(scene.volumes.wishes.empty());
}

TEST_CASE("a volume whose lookup ends at once is looked up again") {
  struct Counting : test::ScriptedVolumes {
    std::optional<volume::Status> status(const std::string& id) const override {
      ++asked;
      return ScriptedVolumes::status(id);
    }
    std::vector<volume::Status> status() const override { return all; }
    mutable int asked = 0;
  } volumes;
  auto& volume = volumes.all.emplace_back();
  volume.volume_id = "v";
  volume.staged_at = {"/staging"};
  volume.attachment_uid = "u";
  test::Loop loop;
  const Error no_server{errc::unavailable, "no API server is known"};
  orchestrator::Attachments attachments(loop.control(), loop.clock, no_server, {"driver", "node-1", 10min});
  orchestrator::Orphans orphans(loop.control(), loop.clock, attachments, [] { return std::optional<kube::Node>(); },
                                volumes, {});
  orphans.start();
  loop.advance(20min);
  CHECK(volumes.asked > 1);
  loop.run(orphans.stop({}));
}

TEST_CASE("a volume whose unstage is under way is neither looked up nor unstaged again") {
  struct Slow : test::ScriptedVolumes {
    explicit Slow(test::Loop& loop) : done(loop.control(), loop.clock) {}
    task<result<>> want(std::string, plan::Wish wish, Until) override {
      wishes.push_back(std::move(wish));
      co_await done.wait({});
      co_return result<>();
    }
    Event done;
  };
  test::Loop loop;
  Slow volumes(loop);
  auto& volume = volumes.all.emplace_back();
  volume.volume_id = "v";
  volume.staged_at = {"/staging"};
  volume.attachment_uid = "u";
  BlockingPool pool(loop.control(), loop.clock, 1);
  ApiServer server([](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target.find("/nodes/") != request.target.npos) return peer.object(request, 200, "{}");
    peer.absent(request);
  });
  kube::Api api(loop.control(), loop.clock, pool, pool, server.access());
  orchestrator::Attachments attachments(loop.control(), loop.clock, &api, {"driver", "node-1", 10min});
  orchestrator::Orphans::Config config;
  config.driver = "driver";
  config.unstage = true;
  orchestrator::Orphans orphans(
      loop.control(), loop.clock, attachments, [] { return std::optional<kube::Node>(); }, volumes, config);
  orphans.start();
  const auto minutes = [&](int count) {
    for (; count > 0; --count) {
      loop.clock.advance(1min);
      for (int idle = 0; idle < 8;) {
        loop.io.restart();
        idle = loop.io.run_one_for(20ms) == 0 ? idle + 1 : 0;
      }
    }
  };
  minutes(20);
  REQUIRE(volumes.wishes.size() == 1);
  const auto asked = server.requests().size();
  minutes(15);
  CHECK(volumes.wishes.size() == 1);
  CHECK(server.requests().size() == asked);
  volumes.done.set();
  minutes(10);
  CHECK(volumes.wishes.size() > 1);
  const auto stopped = [](orchestrator::Orphans& one, orchestrator::Attachments& other) -> task<bool> {
    co_await one.stop({});
    co_await other.stop({});
    co_return true;
  };
  test::Started<bool>(loop.io, stopped(orphans, attachments)).get();
}
