// What a start costs the API server, with 100 volumes.
#include <algorithm>
#include <fstream>

#include "corbd/core/file.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using test::ApiServer;

namespace {

constexpr int kVolumes = 100;

std::string id(int number) { return "volume-" + std::to_string(number); }

std::string own_node() {
  std::string attached;
  for (int number = 0; number < kVolumes; ++number)
    attached += (number == 0 ? "" : ",") + (R"({"name":")" + kube::attached_name(id(number), "driver") + "\"}");
  return R"({"metadata":{"name":"node-1"},"status":{"volumesAttached":[)" + attached + "]}}";
}

class Scripted final : public test::ScriptedVolumes {
  void granted(const std::string& id, const plan::Wish&) override {
    std::erase_if(devices, [&](const auto& device) { return device.volume_id == id; });
  }
};

/// A server that knows a watch in the place of a list, as those since 1.32 do.
struct Scene {
  test::Folder folder;
  std::map<std::string, std::string> objects;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 2};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target.find("sendInitialEvents") != request.target.npos) {
      peer.begin();
      peer.piece(
          R"({"type":"ADDED","object":)" + own_node() + "}\n" +
          R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}})"
          "\n");
      return peer.hang();
    }
    const auto place = objects.find(request.target);
    place == objects.end() ? peer.absent(request) : peer.object(request, 200, place->second);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  kube::OwnNode own{loop.control(), loop.clock, &api, "node-1"};
  Scripted volumes;
  orchestrator::ApiOrchestrator asked{loop.control(), loop.clock, &api, {"driver", "node-1"}, nullptr};
  orchestrator::Kubernetes kubernetes{
      loop.control(),
      loop.clock,
      {.pool = pool,
       .api = &api,
       .own = own,
       .orchestrator = asked,
       .volumes = volumes,
       .make_wish = [](const orchestrator::StageArguments& arguments) -> result<plan::Wish> {
         plan::Staged wish;
         wish.path = arguments.staging_path;
         return plan::Wish(std::move(wish));
       }},
      {"driver", "node-1", folder.path() + "/plugins"}};
  Scene() {
    objects["/api/v1/namespaces/n/secrets/s"] = R"({"data":{"userID":"YWRtaW4="}})";
    for (int number = 0; number < kVolumes; ++number) {
      const auto pv = "pv-" + std::to_string(number);
      objects["/apis/storage.k8s.io/v1/volumeattachments/" +
              kube::volume_attachment_name(id(number), "driver", "node-1")] =
          R"({"metadata":{"uid":"u","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"attacher":"driver","nodeName":"node-1",
              "source":{"persistentVolumeName":")" +
          pv + R"("}},"status":{"attached":true}})";
      objects["/api/v1/persistentvolumes/" + pv] =
          R"({"metadata":{"name":")" + pv + R"("},"spec":{"csi":{"driver":"driver","volumeHandle":")" + id(number) +
          R"(","nodeStageSecretRef":{"name":"s","namespace":"n"}},"accessModes":["ReadWriteOnce"]},"status":{"phase":"Bound"}})";
    }
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.kubernetes.stop({});
    co_await self.own.stop({});
    co_return true;
  }
  void start() {
    kubernetes.start();
    comes([&] { return own.now().has_value(); });
  }
  std::chrono::steady_clock::time_point advanced;
  bool comes(std::function<bool()> condition) {
    return test::eventually(loop.io, [&] {
      // No faster than the server answers: a request's deadline is in the loop's time, the server works in its own.
      const auto now = std::chrono::steady_clock::now();
      if (now - advanced < std::chrono::milliseconds(2)) return condition();
      advanced = now;
      if (loop.clock.next() < loop.clock.now() + std::chrono::seconds(10))
        loop.clock.advance(std::chrono::milliseconds(20));
      return condition();
    });
  }
};

}  // namespace

TEST_CASE("with local state a start asks for its own Node, and for each volume that needs that proof once") {
  Scene scene;
  for (int number = 0; number < kVolumes; ++number) {
    auto& volume = scene.volumes.all.emplace_back();
    volume.volume_id = id(number);
    volume.staged_at = {"/staging"};
    volume.published_at = {"/target"};
    volume.attachment_uid = "u";
    volume.node = "node-1";
  }
  scene.start();
  constexpr int unproven = 30;
  for (int number = 0; number < unproven; ++number)
    CHECK(test::Started<plan::Attachment>(scene.loop.io, scene.asked.attachment(id(number))).get().state ==
          plan::Attachment::State::here);
  CHECK(scene.server.requests().size() <= 2 + unproven);
}

TEST_CASE("without local state a start asks three times for each volume, and for its own Node") {
  Scene scene;
  for (int number = 0; number < kVolumes; ++number) {
    const auto path =
        scene.folder.path() + "/plugins/kubernetes.io/csi/pv/pv-" + std::to_string(number) + "/globalmount";
    REQUIRE(make_folder(path, 0700));
    std::ofstream(path + "/image-meta.json") << "{}";
    scene.volumes.devices.push_back({id(number), static_cast<std::uint32_t>(number), {path + "/" + id(number)}});
  }
  scene.start();
  CHECK(scene.comes([&] { return scene.volumes.wishes.size() == kVolumes; }));
  CHECK(scene.server.requests().size() <= 2 + 3 * kVolumes);
}
