#include "corbd/kube/own_node.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

struct Scene {
  explicit Scene(std::string items)
      : server([items = std::move(items)](const ApiServer::Request& request, ApiServer::Peer& peer) {
          if (request.target.find("sendInitialEvents") != request.target.npos)
            return peer.answer(422, R"({"kind":"Status"})");
          if (request.target.find("watch=1") != request.target.npos) peer.hang();
          peer.answer(200, R"({"metadata":{"resourceVersion":"7"},"items":[)" + items + "]}");
        }) {}
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.node.stop({});
    co_return true;
  }
  bool comes(std::function<bool()> condition) {
    node.start();
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return condition();
    });
  }
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server;
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  kube::OwnNode node{loop.control(), loop.clock, &api, "node-1"};
};

}  // namespace

TEST_CASE("the node's own labels are unavailable until the server has sent them") {
  Scene scene(R"({"metadata":{"name":"node-1","labels":{"zone":"a"}}})");
  const auto before = scene.node.labels();
  REQUIRE_FALSE(before);
  CHECK(before.error().code == errc::unavailable);
  CHECK(scene.node.exists());
  CHECK(scene.comes([&] { return scene.node.labels().has_value(); }));
  CHECK(scene.node.labels()->at("zone") == "a");
  CHECK(scene.server.requests().front().target.find("metadata.name%3Dnode-1") != std::string::npos);
}

TEST_CASE("the error for a node that the server does not know names the node") {
  Scene scene("");
  CHECK(scene.comes([&] { return !scene.node.labels() && scene.node.labels().error().code == errc::not_found; }));
  CHECK_THAT(scene.node.labels().error().text, ContainsSubstring("node-1") && ContainsSubstring("--nodeid"));
  CHECK_FALSE(scene.node.exists());
}

TEST_CASE("outside of a pod and without a kubeconfig, the error for the node's labels names what is missing") {
  const auto nothing = [](const char*) { return std::string(); };
  test::Loop loop;
  const kube::OwnNode node(loop.control(), loop.clock, kube::find_access("", nothing).error(), "node-1");
  CHECK(node.labels().error().code == errc::failed_precondition);
  CHECK(node.exists());
  CHECK_THAT(node.labels().error().text, ContainsSubstring("KUBERNETES_SERVICE_HOST"));
  CHECK_THAT(kube::find_access("/no/such/file", nothing).error().text, ContainsSubstring("/no/such/file"));
}
