#include "corbd/orchestrator/volume_objects.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

const std::string kAttachment =
    "/apis/storage.k8s.io/v1/volumeattachments/" + kube::volume_attachment_name("v", "driver", "node-1");

struct Scene {
  std::map<std::string, std::string> objects{
      {kAttachment, R"({"spec":{"source":{"persistentVolumeName":"pv-1"}}})"},
      {"/api/v1/persistentvolumes/pv-1", R"({"metadata":{"name":"pv-1"},"spec":{"storageClassName":"gold"}})"}};
  bool silent = false;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (silent) return;
    const auto place = objects.find(request.target);
    place == objects.end() ? peer.absent(request) : peer.object(request, 200, place->second);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  orchestrator::VolumeObjects volumes{loop.clock, &api, {"driver", "node-1", 1s}};
  result<kube::PersistentVolume> find() {
    return test::Started<result<kube::PersistentVolume>>(loop.io, volumes.find("v", {})).get();
  }
};

}  // namespace

TEST_CASE("a volume's PersistentVolume is found by way of its attachment, and asked for once") {
  Scene scene;
  CHECK(scene.find()->storage_class == "gold");
  const auto asked = scene.server.requests().size();
  CHECK(scene.find()->storage_class == "gold");
  CHECK(scene.server.requests().size() == asked);
}

TEST_CASE("a PersistentVolume that is forgotten is asked for again") {
  Scene scene;
  REQUIRE(scene.find());
  scene.objects["/api/v1/persistentvolumes/pv-1"] = R"({"metadata":{"name":"pv-1"},"spec":{"storageClassName":"tin"}})";
  scene.volumes.forget("v");
  CHECK(scene.find()->storage_class == "tin");
}

TEST_CASE("no PersistentVolume is found for a volume without an attachment") {
  Scene scene;
  SECTION("nor one that names none") {
    scene.objects[kAttachment] = "{}";
    CHECK(scene.find().error().code == errc::not_found);
  }
  SECTION("nor one that names one that is gone") {
    scene.objects.erase("/api/v1/persistentvolumes/pv-1");
    CHECK_FALSE(scene.find());
  }
}

TEST_CASE("a silent API server delays the answer no longer than the caller's limit") {
  Scene scene;
  scene.silent = true;
  test::Started<result<kube::PersistentVolume>> asked(scene.loop.io, scene.volumes.find("v", {}));
  REQUIRE(test::eventually(scene.loop.io, [&] { return !scene.server.requests().empty(); }));
  scene.loop.clock.advance(1s);
  CHECK_FALSE(asked.get());
}
