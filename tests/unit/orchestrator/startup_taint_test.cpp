// The startup taint of the agent's node, against a scripted API server.
#include "corbd/orchestrator/startup_taint.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <mutex>

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using orchestrator::taint_stays_because;
using test::ApiServer;
namespace json = boost::json;

namespace {

constexpr const char* kOthers = R"({"key":"gpu","effect":"NoSchedule"})";
constexpr const char* kOurs = R"({"key":"driver/agent-not-ready","effect":"NoExecute"})";

/// A server with one Node, whose taints it patches as a real one does: each operation in turn, or none of them.
class Server {
 public:
  std::string taints = std::string("[") + kOurs + "]", drivers = "[]";
  unsigned refuses = 0;   ///< so many patches are refused with 403
  std::string meanwhile;  ///< taints that another client writes before the next patch arrives; empty: none does
  std::vector<std::string> patches;

  void answer(const ApiServer::Request& request, ApiServer::Peer& peer) {
    const std::lock_guard lock(mutex_);
    const auto has = [&](const char* part) { return request.target.find(part) != std::string::npos; };
    if (has("sendInitialEvents")) return peer.answer(422, R"({"kind":"Status","reason":"Invalid"})");
    if (has("watch=1")) return peer.answer(200, "");
    if (has("/csinodes/")) return peer.object(request, 200, R"({"spec":{"drivers":)" + drivers + "}}");
    if (request.method == "PATCH") return patch(request, peer);
    const std::string node = R"({"metadata":{"name":"node-1"},"spec":{"taints":)" + taints + "}}";
    if (has("/nodes/")) return peer.answer(200, node);
    peer.answer(200, R"({"metadata":{"resourceVersion":"7"},"items":[)" + node + "]}");
  }
  template <class Do>
  auto with(Do what) {
    const std::lock_guard lock(mutex_);
    return what(*this);
  }

 private:
  void patch(const ApiServer::Request& request, ApiServer::Peer& peer) {
    patches.push_back(request.body);
    if (refuses > 0) {
      --refuses;
      return peer.answer(403, R"({"kind":"Status","reason":"Forbidden","message":"nodes is forbidden"})");
    }
    if (!meanwhile.empty()) taints = std::exchange(meanwhile, {});
    auto all = json::parse(taints).as_array();
    const auto operations = json::parse(request.body).as_array();
    for (const auto& one : operations) {
      const std::string path(one.at("path").as_string());
      const auto at = std::stoul(path.substr(path.rfind('/') + 1));
      const bool there = at < all.size();
      if (!there || (one.at("op") == "test" && all[at] != one.at("value")))
        return peer.answer(422, R"({"kind":"Status","reason":"Invalid","message":"testing value failed"})");
      if (one.at("op") == "remove") all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
    }
    taints = json::serialize(all);
    peer.answer(200, R"({"metadata":{"name":"node-1"}})");
  }
  std::mutex mutex_;
};

struct Scene {
  explicit Scene(bool remove = true) {
    volumes.all.emplace_back().volume_id = "v";
    taint = std::make_unique<orchestrator::StartupTaint>(
        loop.control(), loop.clock, &api, node, volumes,
        orchestrator::StartupTaint::Config{.driver = "driver", .node = "node-1", .remove = remove});
    node.on_change([this] { taint->note_node(); });
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    self.node.on_change(nullptr);
    co_await self.taint->stop({});
    co_await self.node.stop({});
    co_return true;
  }
  void start() {
    node.start();
    taint->start();
  }
  bool comes(const std::function<bool()>& condition) {
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return condition();
    });
  }
  std::string taints() {
    return scripted.with([](Server& server) { return server.taints; });
  }
  void registered() {
    scripted.with([](Server& server) { return server.drivers = R"([{"name":"other"},{"name":"driver"}])"; });
  }
  Server scripted;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const auto& request, auto& peer) { scripted.answer(request, peer); }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  kube::OwnNode node{loop.control(), loop.clock, &api, "node-1"};
  test::ScriptedVolumes volumes;
  std::unique_ptr<orchestrator::StartupTaint> taint;
};

}  // namespace

TEST_CASE("the startup taint goes once kubelet has registered the driver and every volume has a server") {
  CHECK(taint_stays_because({.registered = true, .all_served = true}).empty());
  CHECK_THAT(taint_stays_because({.registered = false, .all_served = true}),
             ContainsSubstring("kubelet has not registered"));
  CHECK_THAT(taint_stays_because({.registered = true, .all_served = false, .since_started = 119s}),
             ContainsSubstring("healing"));
}

TEST_CASE("a volume that cannot be healed keeps the startup taint for two minutes at most") {
  CHECK(taint_stays_because({.registered = true, .all_served = false, .since_started = 120s}).empty());
  CHECK_FALSE(taint_stays_because({.registered = false, .all_served = false, .since_started = 24h}).empty());
}

TEST_CASE("the agent waits for kubelet and for its volumes, and then removes the startup taint and no other") {
  Scene scene;
  scene.scripted.taints = std::string("[") + kOthers + "," + kOurs + "," + kOthers + "]";
  scene.volumes.all.front().unserved = true;
  scene.start();
  CHECK(scene.comes([&] { return scene.taint->why().find("kubelet has not registered") != std::string::npos; }));
  scene.registered();
  CHECK(scene.comes([&] { return scene.taint->why().find("healing") != std::string::npos; }));
  CHECK(scene.scripted.patches.empty());
  scene.volumes.all.front().unserved = false;
  CHECK(scene.comes([&] { return scene.taints() == std::string("[") + kOthers + "," + kOthers + "]"; }));
  CHECK(scene.comes([&] { return scene.taint->why().empty(); }));
  CHECK(scene.scripted.patches.size() == 1);
}

TEST_CASE("taints that others write at the same time stay, and the agent removes its own with the next try") {
  Scene scene;
  scene.registered();
  scene.scripted.meanwhile = std::string("[") + kOthers + "," + kOurs + "]";
  scene.start();
  CHECK(scene.comes([&] { return scene.taints() == std::string("[") + kOthers + "]"; }));
  CHECK(scene.scripted.patches.size() == 2);
}

TEST_CASE("the agent that may not patch its node says which right it lacks, and tries again") {
  Scene scene;
  scene.registered();
  scene.scripted.refuses = 2;
  scene.start();
  CHECK(scene.comes([&] { return scene.taint->why().find("nodes") != std::string::npos; }));
  CHECK(scene.comes([&] { return scene.taints() == "[]"; }));
}

TEST_CASE("without --remove-startup-taint the agent leaves the taint and says so") {
  Scene scene(false);
  scene.registered();
  scene.start();
  CHECK(scene.comes([&] { return scene.taint->why().find("--remove-startup-taint") != std::string::npos; }));
  CHECK(scene.scripted.patches.empty());
}

TEST_CASE("a startup taint that comes back while the agent serves is removed again, and never put on by the agent") {
  Scene scene;
  scene.registered();
  scene.start();
  CHECK(scene.comes([&] { return scene.taints() == "[]"; }));
  CHECK(scene.comes([&] { return scene.taint->why().empty(); }));
  scene.scripted.with([](Server& server) { return server.taints = std::string("[") + kOurs + "]"; });
  CHECK(scene.comes([&] { return scene.taints() == "[]"; }));
  for (const auto& patch : scene.scripted.patches) CHECK(patch.find("add") == std::string::npos);
}
