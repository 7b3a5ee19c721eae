// On which node a foreign client runs, by an API server that knows some nodes.
#include "corbd/heal/holder_nodes.hpp"

#include <map>

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using State = plan::HolderNode::State;

namespace {

std::string node(const std::string& name, const std::string& address, const std::string& ready = "True",
                 const std::string& taint = "") {
  const std::string taints = taint.empty() ? "" : R"({"key":")" + taint + R"("})";
  return R"({"metadata":{"name":")" + name + R"("},"spec":{"taints":[)" + taints +
         R"(]},"status":{"addresses":[{"type":"InternalIP","address":")" + address +
         R"("}],"conditions":[{"type":"Ready","status":")" + ready +
         R"(","lastTransitionTime":"2026-11-23T03:00:00Z"}]}})";
}

struct Scene {
  std::map<std::string, std::string> nodes;
  std::map<std::string, std::string> attachments;  ///< by node
  unsigned refuses = 0;                            ///< the status of every answer
  std::mutex mutex;
  int lists = 0;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) { answer(request, peer); }};
  kube::Api api{loop.control(), loop.clock, pool, server.access()};
  heal::HolderNodes finder{loop.clock, &api, {.driver = "driver"}};
  CancelScope leaving;

  void answer(const ApiServer::Request& request, ApiServer::Peer& peer) {
    const std::lock_guard lock(mutex);
    const std::string path(request.target.substr(0, request.target.find('?')));
    if (refuses != 0) return peer.answer(refuses, R"({"kind":"Status","message":"no"})");
    if (path == "/api/v1/nodes") {
      ++lists;
      std::string items;
      for (const auto& [name, body] : nodes) items += (items.empty() ? "" : ",") + body;
      return peer.answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + items + "]}");
    }
    for (const auto& [name, body] : nodes)
      if (path == "/api/v1/nodes/" + name) return peer.answer(200, body);
    for (const auto& [name, body] : attachments)
      if (path.ends_with(kube::volume_attachment_name("v", "driver", name))) return peer.answer(200, body);
    peer.answer(404, R"({"kind":"Status","message":"not found"})");
  }
  plan::HolderNode find(plan::Noted noted = {}, const std::string& host = "10.0.0.7") {
    return test::Started<plan::HolderNode>(loop.io, finder.find("v", host, std::move(noted), leaving)).get();
  }
};

}  // namespace

TEST_CASE("the node that the image's metadata names by its address is asked for, and no list") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  scene.attachments["n7"] = R"({"metadata":{"uid":"u","creationTimestamp":"2026-11-22T03:00:00Z"}})";
  const auto found = scene.find({{"n7"}, {}});
  CHECK(found.name == "n7");
  CHECK(found.state == State::not_ready);
  CHECK(found.since == "2026-11-23T03:00:00Z");
  CHECK(found.attached == true);
  CHECK(found.attached_since == "2026-11-22T03:00:00Z");
  CHECK(scene.lists == 0);
}

TEST_CASE("among nodes that only use the image, the one with the client's address is it") {
  Scene scene;
  scene.nodes["n6"] = node("n6", "10.0.0.6");
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  const auto found = scene.find({{}, {"n6", "n7"}});
  CHECK(found.name == "n7");
  CHECK(found.state == State::ready);
  CHECK(found.attached == false);
  CHECK(scene.lists == 0);
}

TEST_CASE("a client that no metadata explains is looked for in one list of all nodes, not in one for each look") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "True", "node.kubernetes.io/out-of-service");
  CHECK(scene.find().name == "n7");
  CHECK(scene.find().state == State::out_of_service);
  CHECK(scene.find({}, "10.0.0.8").name.empty());
  CHECK(scene.lists == 1);
  scene.loop.clock.advance(5min);
  CHECK(scene.find({}, "10.0.0.8").name.empty());
  CHECK(scene.lists == 2);
}

TEST_CASE("a node without an object is gone if it was seen with that address, unless that is another node's by now") {
  Scene scene;
  const auto never = scene.find({{"n7"}, {}});
  CHECK(never.state == State::unknown);
  CHECK(never.why.find("never saw") != std::string::npos);
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK(scene.find({{"n7"}, {}}).state == State::not_ready);
  scene.nodes.clear();
  const auto gone = scene.find({{"n7"}, {}});
  CHECK(gone.name == "n7");
  CHECK(gone.state == State::gone);
  CHECK(gone.attached == false);
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  scene.loop.clock.advance(30s);
  const auto other = scene.find({{"n7"}, {}});
  CHECK(other.name == "n8");
  CHECK(other.state == State::ready);
}

TEST_CASE("a node whose addresses are others than the client's is not the client's node") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.70", "True", "node.kubernetes.io/out-of-service");
  const auto found = scene.find({{"n7"}, {}});
  CHECK(found.name.empty());
  CHECK(found.state == State::unknown);
  CHECK(found.why.find("n7") != std::string::npos);
}

TEST_CASE("an address that two nodes have tells of neither") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "True", "node.kubernetes.io/out-of-service");
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  CHECK(scene.find().name.empty());
}

TEST_CASE("an API server that refuses or is not there leaves the node unknown, and nobody dead") {
  Scene scene;
  scene.refuses = 403;
  const auto refused = scene.find({{"n7"}, {}});
  CHECK(refused.state == State::unknown);
  CHECK_FALSE(refused.why.empty());
  CHECK_FALSE(plan::is_proven_dead({.address = "10.0.0.7:0/1", .node = refused}));
  heal::HolderNodes alone{scene.loop.clock, Error{errc::unavailable, "no API server"}, {.driver = "driver"}};
  const auto none =
      test::Started<plan::HolderNode>(scene.loop.io, alone.find("v", "10.0.0.7", {{"n7"}, {}}, scene.leaving)).get();
  CHECK(none.name == "n7");
  CHECK(none.state == State::unknown);
}
