// Where this node is, also before the API server has answered.
#include "node_labels.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

/// One agent of a node whose reads go by its labels.
struct Life {
  Life(const test::Folder& folder, const std::string& nodeid, bool server_answers)
      : server([server_answers](const ApiServer::Request& request, ApiServer::Peer& peer) {
          if (!server_answers) return peer.hang();
          if (request.target.find("sendInitialEvents") != request.target.npos)
            return peer.answer(422, R"({"kind":"Status","reason":"Invalid"})");
          if (request.target.find("watch=1") != request.target.npos) peer.hang();
          peer.answer(200, R"({"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"node-1",)"
                           R"("labels":{"topology.kubernetes.io/zone":"a"}}}]})");
        }) {
    options.runtime_dir = folder.path();
    options.nodeid = nodeid;
    cluster.read_affinity = true;
    cluster.crush_labels = {"topology.kubernetes.io/zone"};
  }
  ~Life() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Life& self) {
    co_await self.node.stop({});
    co_return true;
  }
  bool comes(const std::function<bool()>& condition) {
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return condition();
    });
  }
  agent::Options options;
  rbd::ClusterEntry cluster;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server;
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  kube::OwnNode node{loop.control(), loop.clock, &api, options.nodeid};
  std::optional<agent::NodeLabels> made;
  agent::NodeLabels& labels() {
    if (!made) made.emplace(options, node, pool);
    return *made;
  }
};

}  // namespace

TEST_CASE("an agent knows its node's place from its start if an earlier agent of this node learned it",
          "[failure:234]") {
  const test::Folder folder;
  {
    Life first(folder, "node-1", true);
    const auto unknown = first.labels().read_policy(first.cluster);
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().code == errc::unavailable);
    CHECK(first.comes([&] { return first.labels().read_policy(first.cluster).has_value(); }));
    CHECK(first.comes([&] { return std::filesystem::exists(folder.path() + "/node-labels.json"); }));
  }
  Life second(folder, "node-1", false);
  const auto known = second.labels().read_policy(second.cluster);
  REQUIRE(known);
  CHECK(known->location == "zone:a");
  Life renamed(folder, "node-2", false);
  CHECK_FALSE(renamed.labels().read_policy(renamed.cluster));
}
