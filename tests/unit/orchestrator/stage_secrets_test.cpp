#include "corbd/orchestrator/stage_secrets.hpp"

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using volume::SecretAge;

namespace {

const std::string kSecret = "/api/v1/namespaces/n/secrets/s";

std::string attachment_of(const std::string& volume) {
  return "/apis/storage.k8s.io/v1/volumeattachments/" + kube::volume_attachment_name(volume, "driver", "node-1");
}

struct Secrets {
  std::map<std::string, std::string> objects{
      {attachment_of("v"), R"({"spec":{"source":{"persistentVolumeName":"pv-1"}}})"},
      {attachment_of("w"), R"({"spec":{"source":{"persistentVolumeName":"pv-1"}}})"},
      {"/api/v1/persistentvolumes/pv-1",
       R"({"metadata":{"name":"pv-1"},"spec":{"csi":{"nodeStageSecretRef":{"name":"s","namespace":"n"}}}})"},
      {kSecret, R"({"data":{"userID":"bm9kZQ=="}})"}};
  std::size_t reads = 0;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target == kSecret) ++reads;
    const auto place = objects.find(request.target);
    place == objects.end() ? peer.absent(request) : peer.object(request, 200, place->second);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  CancelScope leaving;
  orchestrator::StageSecrets secrets{loop.control(), loop.clock, &api, {"driver", "node-1", &read}};
  static result<plan::Credential> read(const std::map<std::string, Secret>& fields) {
    if (!fields.contains("userID")) return Error{errc::invalid_argument, "missing field 'userID'"};
    return plan::Credential{std::string(fields.at("userID").reveal()), Secret("key")};
  }
  plan::StageSecret find(const std::string& volume = "v", const std::string& persistent_volume = "",
                         volume::SecretAge age = volume::SecretAge::named_now) {
    return test::Started<plan::StageSecret>(loop.io, secrets.find(volume, persistent_volume, leaving, age)).get();
  }
};

}  // namespace

TEST_CASE("a volume's Secret is found by way of its PersistentVolume, with its name and what it has") {
  Secrets scene;
  const auto found = scene.find();
  CHECK(found.name == "Secret n/s");
  REQUIRE(found.credential);
  CHECK(found.credential->user == "node");
}

TEST_CASE("a Secret is read once for all its volumes, and again after a pause", "[failure:220]") {
  Secrets scene;
  REQUIRE(scene.find("v").credential);
  REQUIRE(scene.find("w").credential);
  REQUIRE(scene.find("v").credential);
  CHECK(scene.reads == 1);
  scene.objects[kSecret] = R"({"data":{"userID":"bm9kZS4x"}})";
  scene.loop.clock.advance(61s);
  CHECK(scene.find().credential->user == "node.1");
  CHECK(scene.reads == 2);
}

TEST_CASE("a PersistentVolume that was made again with another Secret is followed, and the first one is read once") {
  Secrets scene;
  REQUIRE(scene.find().credential);
  scene.objects["/api/v1/persistentvolumes/pv-1"] =
      R"({"metadata":{"name":"pv-1"},"spec":{"csi":{"nodeStageSecretRef":{"name":"other","namespace":"n"}}}})";
  scene.objects["/api/v1/namespaces/n/secrets/other"] = R"({"data":{"userID":"bm9kZS4x"}})";
  const auto found = scene.find();
  CHECK(found.name == "Secret n/other");
  REQUIRE(found.credential);
  CHECK(found.credential->user == "node.1");
  CHECK(scene.reads == 1);
}

TEST_CASE("a look from time to time reads the Secret that the PersistentVolume named when it was read last") {
  Secrets scene;
  REQUIRE(scene.find("v", "", SecretAge::named_before).credential);
  scene.objects.erase(attachment_of("v"));
  scene.objects[kSecret] = R"({"data":{"userID":"bm9kZS4x"}})";
  scene.loop.clock.advance(61s);
  CHECK(scene.find("v", "", SecretAge::named_before).credential->user == "node.1");
  CHECK_FALSE(scene.find("v").credential);
}

TEST_CASE("what the Secret has now is read at once, however lately it was read") {
  Secrets scene;
  REQUIRE(scene.find().credential);
  scene.objects[kSecret] = R"({"data":{"userID":"bm9kZS4x"}})";
  CHECK(scene.find().credential->user == "node");
  CHECK(scene.find("v", "", SecretAge::now).credential->user == "node.1");
}

TEST_CASE("a Secret that is missing, or lacks a field, is named with the reason") {
  Secrets scene;
  SECTION("missing") { scene.objects.erase(kSecret); }
  SECTION("a field") { scene.objects[kSecret] = "{}"; }
  const auto found = scene.find();
  CHECK(found.name == "Secret n/s");
  CHECK_FALSE(found.credential);
  CHECK_FALSE(found.why.empty());
}

TEST_CASE("a PersistentVolume without a node-stage Secret is no answer, and the reason says so") {
  Secrets scene;
  scene.objects["/api/v1/persistentvolumes/pv-1"] = R"({"metadata":{"name":"pv-1"}})";
  CHECK_THAT(scene.find().why, ContainsSubstring("pv-1 names no nodeStageSecretRef"));
}

TEST_CASE("without a VolumeAttachment the PersistentVolume that the volume was staged with names its Secret") {
  Secrets scene;
  scene.objects.erase(attachment_of("v"));
  const std::string handle = GENERATE("v", "another");
  scene.objects["/api/v1/persistentvolumes/pv-1"] =
      R"({"metadata":{"name":"pv-1"},"spec":{"csi":{"driver":"driver","volumeHandle":")" + handle +
      R"(","nodeStageSecretRef":{"name":"s","namespace":"n"}}}})";
  CHECK(scene.find("v", "pv-1").credential.has_value() == (handle == "v"));
  CHECK_THAT(scene.find("v", "").why, ContainsSubstring("VolumeAttachment"));
}

TEST_CASE("without an API server nobody knows of a Secret") {
  Secrets scene;
  orchestrator::StageSecrets alone{
      scene.loop.control(), scene.loop.clock, Error{errc::not_found, "none"}, {"driver", "node-1", &Secrets::read}};
  const auto found = test::Started<plan::StageSecret>(scene.loop.io, alone.find("v", "", scene.leaving)).get();
  CHECK(found.name.empty());
  CHECK(found.why.empty());
}
