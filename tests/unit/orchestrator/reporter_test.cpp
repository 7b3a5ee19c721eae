// Events on the object that people look at, against a scripted API server.
#include "corbd/orchestrator/reporter.hpp"

#include <boost/json/parse.hpp>

#include "corbd/kube/objects.hpp"
#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using volume::Health;

namespace {

struct Scene {
  std::map<std::string, std::string> objects{
      {"/apis/storage.k8s.io/v1/volumeattachments/" + kube::volume_attachment_name("v", "driver", "node-1"),
       R"({"spec":{"source":{"persistentVolumeName":"pv-1"}}})"},
      {"/api/v1/persistentvolumes/pv-1",
       R"({"metadata":{"name":"pv-1","uid":"pv-uid"},"spec":{"claimRef":{"name":"claim","namespace":"ns","uid":"claim-uid"}}})"}};
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.method != "GET") return peer.answer(201, R"({"metadata":{"name":"claim.1"}})");
    const auto place = objects.find(request.target);
    place == objects.end() ? peer.absent(request) : peer.object(request, 200, place->second);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  test::ScriptedVolumes volumes;
  orchestrator::VolumeObjects objects_of_volumes{loop.clock, &api, {"driver", "node-1"}};
  orchestrator::Reporter reporter{loop.control(), loop.clock, &api, objects_of_volumes, volumes, {"node-1"}};
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.reporter.stop({});
    co_return true;
  }
  void becomes(Health health) { reporter.note({{}, "v", Health::staged, health, "its lock is free"}); }
  /// The n-th that was sent.
  ApiServer::Request sent(std::size_t n) {
    std::vector<ApiServer::Request> all;
    const bool came = test::eventually(loop.io, [&] {
      all = server.requests();
      std::erase_if(all, [](const auto& request) { return request.method == "GET"; });
      return all.size() > n;
    });
    REQUIRE(came);
    return all[n];
  }
};

boost::json::value parsed(const std::string& text) { return boost::json::parse(text); }
std::string about(const ApiServer::Request& request, const char* key) {
  return parsed(request.body).at("involvedObject").at(key).as_string().c_str();
}

}  // namespace

TEST_CASE("an Event of a volume is about its claim") {
  Scene scene;
  scene.becomes(Health::unproven);
  const auto made = scene.sent(0);
  CHECK(made.method == "POST");
  CHECK(made.target == "/api/v1/namespaces/ns/events");
  CHECK(about(made, "kind") == "PersistentVolumeClaim");
  CHECK(about(made, "name") == "claim");
  CHECK(about(made, "uid") == "claim-uid");
  CHECK(parsed(made.body).at("reason") == "HealingFailed");
  CHECK(parsed(made.body).at("source").at("host") == "node-1");
}

TEST_CASE("an Event of a volume without a claim is about its PersistentVolume, or else the Node") {
  Scene scene;
  const bool has_volume = GENERATE(true, false);
  scene.objects.at("/api/v1/persistentvolumes/pv-1") = R"({"metadata":{"name":"pv-1","uid":"pv-uid"}})";
  if (!has_volume) scene.objects.clear();
  scene.becomes(Health::unproven);
  const auto made = scene.sent(0);
  CHECK(made.target == "/api/v1/namespaces/default/events");
  CHECK(about(made, "kind") == (has_volume ? "PersistentVolume" : "Node"));
  CHECK(about(made, "uid") == (has_volume ? "pv-uid" : "node-1"));
  CHECK_THAT(std::string(parsed(made.body).at("message").as_string()), ContainsSubstring("Volume v"));
}

TEST_CASE("an Event of the node is about the Node and looks up no volume") {
  Scene scene;
  scene.reporter.tell_node({"AgentNotReady", true, "no driver"});
  const auto made = scene.sent(0);
  CHECK(about(made, "kind") == "Node");
  CHECK(about(made, "name") == "node-1");
  CHECK(parsed(made.body).at("reason") == "AgentNotReady");
  CHECK(parsed(made.body).at("message") == "no driver");
  CHECK(scene.server.requests().size() == 1);
}

TEST_CASE("a repeated Event is counted in the existing one") {
  Scene scene;
  scene.becomes(Health::unproven);
  scene.sent(0);
  scene.becomes(Health::staged);
  CHECK(parsed(scene.sent(1).body).at("reason") == "VolumeHealed");
  scene.becomes(Health::unproven);
  const auto again = scene.sent(2);
  CHECK(again.method == "PATCH");
  CHECK(again.target == "/api/v1/namespaces/ns/events/claim.1");
  CHECK(parsed(again.body).at("count") == 2);
}
