// Volumes that no record names, against a scripted API server.
#include "corbd/orchestrator/finder.hpp"

#include <algorithm>
#include <ctime>
#include <fstream>

#include "corbd/core/file.hpp"
#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;

namespace {

const std::string kHandle = "volume-1";

/// One device without a record; it is claimed by the wish that names it.
class Scripted final : public test::ScriptedVolumes {
  void granted(const std::string& id, const plan::Wish&) override {
    for (auto* all : {&devices, &kernel_devices})
      std::erase_if(*all, [&](const auto& device) { return device.volume_id == id; });
  }
};

std::string time_text(std::chrono::system_clock::time_point at, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

struct Scene {
  test::Folder folder;
  std::string path = folder.path() + "/plugins/kubernetes.io/csi/pv/pv-1/globalmount";
  std::map<std::string, std::string> objects{
      {"/apis/storage.k8s.io/v1/volumeattachments/" + kube::volume_attachment_name(kHandle, "driver", "node-1"),
       R"({"metadata":{"uid":"uid-1","creationTimestamp":"2020-01-01T00:00:00Z"},"spec":{"attacher":"driver","nodeName":"node-1",
           "source":{"persistentVolumeName":"pv-1"}},"status":{"attached":true,"attachmentMetadata":{"from":"controller"}}})"},
      {"/api/v1/persistentvolumes/pv-1",
       R"({"metadata":{"name":"pv-1"},"spec":{"csi":{"driver":"driver","volumeHandle":"volume-1","fsType":"xfs","volumeAttributes":{"pool":"p"},
           "nodeStageSecretRef":{"name":"s","namespace":"n"}},"accessModes":["ReadWriteOnce"],"claimRef":{"name":"data","namespace":"shop"},"mountOptions":["discard"]},"status":{"phase":"Bound"}})"},
      {"/api/v1/namespaces/n/secrets/s", R"({"data":{"userID":"YWRtaW4="}})"}};
  std::string headers;  ///< of what the server answers
  std::vector<orchestrator::StageArguments> asked;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    const auto place = objects.find(request.target);
    place == objects.end() ? peer.absent(request) : peer.object(request, 200, place->second, headers);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  Scripted volumes;
  orchestrator::Attachments attachments{loop.control(), loop.clock, &api, {"driver", "node-1"}};
  orchestrator::Finder finder{loop.control(),
                              loop.clock,
                              pool,
                              &api,
                              attachments,
                              volumes,
                              [this](const orchestrator::StageArguments& arguments) -> result<plan::Wish> {
                                asked.push_back(arguments);
                                plan::Staged wish;
                                wish.path = arguments.staging_path;
                                return plan::Wish(std::move(wish));
                              },
                              {"driver", "node-1", folder.path() + "/plugins"}};
  Scene() {
    REQUIRE(make_folder(path, 0700));
    std::ofstream(path + "/image-meta.json") << "{}";
    volumes.devices.push_back({kHandle, 0, {path + "/" + kHandle}});
  }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.finder.stop({});
    co_await self.attachments.stop({});
    co_return true;
  }
  /// When the VolumeAttachment was made.
  void attached(const std::string& at) {
    for (auto& [target, text] : objects)
      if (target.starts_with("/apis")) text.replace(text.find("2020-01-01T00:00:00Z"), 20, at);
  }
  /// `patience`: time that may pass for the agent.
  bool comes(std::function<bool()> condition, std::chrono::seconds patience = 90s, duration step = 100ms) {
    const auto end = loop.clock.now() + patience;
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < end) loop.clock.advance(step);
      return condition();
    });
  }
  std::string left() const { return finder.left().contains(kHandle) ? finder.left().at(kHandle) : ""; }
};

}  // namespace

TEST_CASE("a device without a record is staged as the API server tells, by three requests") {
  Scene scene;
  scene.finder.start();
  REQUIRE(scene.comes([&] { return !scene.volumes.wishes.empty() && scene.finder.left().empty(); }));
  CHECK(scene.server.requests().size() == 3);
  const auto& arguments = scene.asked.front();
  CHECK(arguments.staging_path == scene.path);
  CHECK(arguments.fstype == "xfs");
  CHECK(arguments.access_mode == "ReadWriteOnce");
  CHECK(arguments.mount_flags == std::vector<std::string>{"discard"});
  CHECK(arguments.volume_context.at("pool") == "p");
  CHECK(arguments.publish_context.at("from") == "controller");
  CHECK(arguments.secrets.at("userID").reveal() == "admin");
  CHECK(std::get<plan::Staged>(scene.volumes.wishes.front()).attachment.uid == "uid-1");
  CHECK(std::get<plan::Staged>(scene.volumes.wishes.front()).claim == plan::PvcRef{"data", "shop", "pv-1"});
}

// behind Y1
TEST_CASE("a device whose PersistentVolume is being deleted, and still bound, is staged") {
  Scene scene;
  auto& volume = scene.objects.at("/api/v1/persistentvolumes/pv-1");
  volume.insert(volume.find("\"name\""), R"("deletionTimestamp":"2026-01-01T00:00:00Z",)");
  scene.finder.start();
  CHECK(scene.comes([&] { return !scene.volumes.wishes.empty(); }));
}

TEST_CASE("a volume whose object is missing is skipped, and the reason is shown until it is found") {
  Scene scene;
  const auto [target, name] =
      GENERATE(table<std::string, std::string>({{"/apis/storage.k8s.io", "VolumeAttachment"},
                                                {"/api/v1/persistentvolumes", "PersistentVolume pv-1"},
                                                {"/api/v1/namespaces/n/secrets", "Secret n/"}}));
  const auto place =
      std::ranges::find_if(scene.objects, [&](const auto& object) { return object.first.starts_with(target); });
  const auto missing = *place;
  scene.objects.erase(place);
  scene.finder.start();
  REQUIRE(scene.comes([&] { return scene.left().find(name) != std::string::npos; }));
  CHECK(scene.volumes.wishes.empty());
  scene.objects.insert(missing);
  CHECK(scene.comes([&] { return !scene.volumes.wishes.empty(); }, 10min, 1s));
}

TEST_CASE("a volume whose stage fails is tried again") {
  Scene scene;
  scene.volumes.outcome = Error{errc::unreachable, "no monitor answers"};
  scene.finder.start();
  REQUIRE(scene.comes([&] { return scene.left() == "no monitor answers"; }));
  scene.volumes.outcome = {};
  CHECK(scene.comes([&] { return scene.finder.left().empty(); }));
  CHECK(scene.volumes.wishes.size() >= 2);
}

TEST_CASE("one volume that is not ours does not keep another from its server") {
  Scene scene;
  scene.volumes.devices.insert(scene.volumes.devices.begin(), {"another", 1, {}});
  scene.finder.start();
  REQUIRE(scene.comes([&] { return !scene.volumes.wishes.empty(); }));
  CHECK(
      scene.comes([&] { return scene.finder.left().size() == 1 && scene.finder.left().begin()->first == "another"; }));
}

TEST_CASE("a device whose volume has since been detached is left alone") {
  Scene scene;
  scene.attached("2099-01-01T00:00:00Z");
  scene.finder.start();
  REQUIRE(scene.comes([&] { return scene.left().find("staged before") != std::string::npos; }));
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a device that was staged under another VolumeAttachment is left alone, however young its stash is") {
  Scene scene;
  std::ofstream(scene.path + "/image-meta.json") << R"({"corbdAttachmentUID":"uid-0"})";
  scene.finder.start();
  REQUIRE(scene.comes([&] { return scene.left().find("uid-0, now uid-1") != std::string::npos; }));
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a device whose stash names its VolumeAttachment is staged, however old the stash seems") {
  Scene scene;
  scene.attached("2099-01-01T00:00:00Z");
  std::ofstream(scene.path + "/image-meta.json") << R"({"corbdAttachmentUID":"uid-1"})";
  scene.finder.start();
  CHECK(scene.comes([&] { return !scene.volumes.wishes.empty(); }));
}

TEST_CASE("a node whose clock is late finds the volumes that ceph-csi staged") {
  Scene scene;
  const auto late = std::chrono::hours(24);
  scene.attached(time_text(std::chrono::system_clock::now() + late / 2, "%Y-%m-%dT%H:%M:%SZ"));
  scene.headers = "Date: " + time_text(scene.loop.clock.wall() + late, "%a, %d %b %Y %H:%M:%S GMT") + "\r\n";
  scene.finder.start();
  CHECK(scene.comes([&] { return !scene.volumes.wishes.empty(); }));
}

TEST_CASE("the SELinux context with which kubelet staged a volume is one of its mount flags") {
  Scene scene;
  std::ofstream(scene.path.substr(0, scene.path.rfind('/')) + "/vol_data.json")
      << R"({"seLinuxMountContext":"u:r:t:s0:c1,c2"})";
  scene.finder.start();
  REQUIRE(scene.comes([&] { return !scene.asked.empty(); }));
  CHECK(scene.asked.front().mount_flags.back() == "context=\"u:r:t:s0:c1,c2\"");
}

TEST_CASE("what ceph-csi staged with the kernel's client is staged as the API server tells, without kubelet",
          "[failure:246]") {
  Scene scene;
  std::swap(scene.volumes.devices, scene.volumes.kernel_devices);
  scene.volumes.kernel_devices.front().kind = device::Kind::krbd;
  scene.finder.start();
  REQUIRE(scene.comes([&] { return !scene.volumes.wishes.empty() && scene.finder.left().empty(); }));
  CHECK(scene.asked.front().staging_path == scene.path);
  CHECK(std::get<plan::Staged>(scene.volumes.wishes.front()).attachment.uid == "uid-1");
}
