// What the services answer: sizes, conditions, capabilities, topology, and CSI-Addons.
#include "csiaddons/encryptionkeyrotation.grpc.pb.h"
#include "csiaddons/identity.grpc.pb.h"
#include "csiaddons/reclaimspace.grpc.pb.h"
#include "served.hpp"
#include "stage_request.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

v1::NodeExpandVolumeRequest expansion(const std::string& id, const std::string& path, std::int64_t required = 0,
                                      std::int64_t limit = 0) {
  v1::NodeExpandVolumeRequest request;
  request.set_volume_id(id);
  request.set_volume_path(path);
  request.mutable_capacity_range()->set_required_bytes(required);
  request.mutable_capacity_range()->set_limit_bytes(limit);
  return request;
}

grpc::StatusCode expand(const Served& scene, const v1::NodeExpandVolumeRequest& request,
                        v1::NodeExpandVolumeResponse& response) {
  grpc::ClientContext context;
  return v1::Node::NewStub(scene.channel())->NodeExpandVolume(&context, request, &response).error_code();
}

}  // namespace

TEST_CASE("an expansion answers with the size of the device") {
  Served scene;
  REQUIRE(scene.start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  v1::NodeExpandVolumeResponse response;
  REQUIRE(expand(scene, expansion("image-1", "/target"), response) == grpc::OK);
  CHECK(response.capacity_bytes() == 2ll << 30);
}

TEST_CASE("an expansion uses the staging path if the request has one, and the volume path otherwise") {
  Served scene;
  REQUIRE(scene.start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  v1::NodeExpandVolumeResponse response;
  auto request = expansion("image-1", "/pods/mount", 2 << 20);
  REQUIRE(expand(scene, request, response) == grpc::OK);
  scene.thread.call([&] { CHECK(scene.volumes.expanded == plan::Expanded{"/pods/mount", 2 << 20}); });
  request.set_staging_target_path("/staging");
  request.clear_capacity_range();
  REQUIRE(expand(scene, request, response) == grpc::OK);
  scene.thread.call([&] { CHECK(scene.volumes.expanded == plan::Expanded{"/staging", 0, "/pods/mount"}); });
}

TEST_CASE("an expansion needs a volume ID, a volume path and a valid range of sizes") {
  Served scene;
  REQUIRE(scene.start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  v1::NodeExpandVolumeResponse response;
  CHECK(expand(scene, expansion("image-1", "/a", 1), response) == grpc::OK);
  CHECK(expand(scene, expansion("", "/a", 1), response) == grpc::INVALID_ARGUMENT);
  CHECK(expand(scene, expansion("image-1", "", 1), response) == grpc::INVALID_ARGUMENT);
  CHECK(expand(scene, expansion("image-1", "/a", -1), response) == grpc::INVALID_ARGUMENT);
  CHECK(expand(scene, expansion("image-1", "/a", 2, 1), response) == grpc::OUT_OF_RANGE);
}

TEST_CASE("a stage uses the mounter that the configuration chooses, and is refused if the choice fails") {
  Served scene;
  scene.thread.call([&] { scene.volumes.open.set(); });
  REQUIRE(scene.start());
  const auto stage = [&] {
    grpc::ClientContext context;
    v1::NodeStageVolumeResponse response;
    return v1::Node::NewStub(scene.channel())->NodeStageVolume(&context, stage_request(), &response).error_code();
  };
  scene.thread.call([&] { scene.mounters = cephcsi::Mounters{.instead = cephcsi::Mounter::krbd}; });
  CHECK(stage() == grpc::OK);
  CHECK(scene.volumes.mounter == cephcsi::Mounter::krbd);
  scene.thread.call([&] { scene.mounters = Error{errc::unavailable, "mounters.json names a StorageClass"}; });
  CHECK(stage() == grpc::UNAVAILABLE);
  CHECK(scene.volumes.asked == 1);
}

TEST_CASE("the statistics of a known volume contain its condition, and those of an unknown volume are NOT_FOUND") {
  Served scene;
  REQUIRE(scene.start());
  const auto ask = [&](const std::string& id, v1::NodeGetVolumeStatsResponse& response,
                       const std::string& path = "some/path") {
    grpc::ClientContext context;
    v1::NodeGetVolumeStatsRequest request;
    request.set_volume_id(id);
    request.set_volume_path(path);
    return v1::Node::NewStub(scene.channel())->NodeGetVolumeStats(&context, request, &response).error_code();
  };
  v1::NodeGetVolumeStatsResponse response;
  REQUIRE(ask("image-1", response) == grpc::OK);
  CHECK(response.usage(0).used() == 1 << 20);
  CHECK(response.volume_condition().abnormal());
  CHECK(ask("image-2", response) == grpc::NOT_FOUND);
  CHECK(ask("", response) == grpc::INVALID_ARGUMENT);
  CHECK(ask("image-1", response, "") == grpc::INVALID_ARGUMENT);
}

TEST_CASE("the health of volumes and of the storage is served and announced only with --volume-health") {
  const bool flag = GENERATE(false, true);
  Served scene(512, flag);
  REQUIRE(scene.start());
  const auto node = v1::Node::NewStub(scene.channel());
  grpc::ClientContext context, storage_context, capabilities_context;
  v1::NodeGetVolumeHealthRequest request;
  request.set_volume_id("image-1");
  v1::NodeGetVolumeHealthResponse response;
  CHECK(node->NodeGetVolumeHealth(&context, request, &response).error_code() ==
        (flag ? grpc::OK : grpc::UNIMPLEMENTED));
  CHECK(response.volume_health().health_statuses_size() == (flag ? 1 : 0));
  v1::NodeGetStorageHealthRequest storage_request;
  (*storage_request.mutable_secrets())["userKey"] = "secret";
  v1::NodeGetStorageHealthResponse storage;
  CHECK(node->NodeGetStorageHealth(&storage_context, storage_request, &storage).error_code() ==
        (flag ? grpc::OK : grpc::UNIMPLEMENTED));
  CHECK(storage.backend_health_size() == (flag ? 1 : 0));
  v1::NodeGetCapabilitiesResponse capabilities;
  REQUIRE(node->NodeGetCapabilities(&capabilities_context, v1::NodeGetCapabilitiesRequest(), &capabilities).ok());
  std::vector<int> offered;
  for (const auto& one : capabilities.capabilities()) offered.push_back(one.rpc().type());
  CHECK(offered == (flag ? std::vector<int>{1, 2, 4, 3, 5, 7, 8} : std::vector<int>{1, 2, 4, 3, 5}));
}

TEST_CASE("the CSI-Addons socket announces space reclaim and key rotation, and serves space reclaim") {
  Served scene;
  REQUIRE(scene.start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  const auto channel = grpc::CreateChannel("unix://" + scene.addons_socket(), grpc::InsecureChannelCredentials());
  grpc::ClientContext identity_context, first, second, third;
  identity::GetCapabilitiesResponse capabilities;
  REQUIRE(identity::Identity::NewStub(channel)
              ->GetCapabilities(&identity_context, identity::GetCapabilitiesRequest(), &capabilities)
              .ok());
  REQUIRE(capabilities.capabilities_size() == 3);
  CHECK(capabilities.capabilities(1).reclaim_space().type() == identity::Capability::ReclaimSpace::ONLINE);
  CHECK(capabilities.capabilities(2).encryption_key_rotation().type() ==
        identity::Capability::EncryptionKeyRotation::ENCRYPTIONKEYROTATION);
  const auto node = reclaimspace::ReclaimSpaceNode::NewStub(channel);
  reclaimspace::NodeReclaimSpaceRequest request;
  reclaimspace::NodeReclaimSpaceResponse response;
  request.set_volume_id("image-1");
  CHECK(node->NodeReclaimSpace(&first, request, &response).error_code() == grpc::INVALID_ARGUMENT);
  request.set_staging_target_path("/staging");
  CHECK(node->NodeReclaimSpace(&second, request, &response).ok());
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(
      v1::VolumeCapability::AccessMode::MULTI_NODE_READER_ONLY);
  CHECK(node->NodeReclaimSpace(&third, request, &response).error_code() == grpc::UNIMPLEMENTED);
  CHECK(scene.volumes.asked == 1);
}

TEST_CASE("a key rotation needs a volume ID, and becomes a wish of that volume") {
  Served scene;
  REQUIRE(scene.start());
  const auto channel = grpc::CreateChannel("unix://" + scene.addons_socket(), grpc::InsecureChannelCredentials());
  const auto rotation = encryptionkeyrotation::EncryptionKeyRotationController::NewStub(channel);
  grpc::ClientContext first, second;
  encryptionkeyrotation::EncryptionKeyRotateRequest request;
  encryptionkeyrotation::EncryptionKeyRotateResponse response;
  CHECK(rotation->EncryptionKeyRotate(&first, request, &response).error_code() == grpc::INVALID_ARGUMENT);
  request.set_volume_id("image-1");
  scene.thread.call([&] { scene.volumes.open.set(); });
  CHECK(rotation->EncryptionKeyRotate(&second, request, &response).ok());
  CHECK(scene.volumes.asked == 1);
}

// Kubelet then asks again.
TEST_CASE("the answer to NodeGetInfo is UNAVAILABLE until the node's labels are known") {
  Served scene;
  scene.topology = Error{errc::unavailable, "the labels of node node-1 are not known yet"};
  REQUIRE(scene.start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  CHECK(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).error_code() ==
        grpc::UNAVAILABLE);
}

TEST_CASE("a plugin without a controller, which promises no topology, sends none") {
  Served scene(512, false, false);
  REQUIRE(scene.start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).ok());
  CHECK_FALSE(info.has_accessible_topology());
}

TEST_CASE("the answer to NodeGetInfo contains the node's topology with its segments") {
  Served scene;
  scene.topology = std::map<std::string, std::string>{{"topology.rbd.csi.ceph.com/zone", "z1"}};
  REQUIRE(scene.start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).ok());
  CHECK(info.has_accessible_topology());
  REQUIRE(info.accessible_topology().segments_size() == 1);
  CHECK(info.accessible_topology().segments().at("topology.rbd.csi.ceph.com/zone") == "z1");
}

TEST_CASE("the answer to NodeGetInfo says how many volumes the node has room for") {
  Served scene;
  REQUIRE(scene.start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).ok());
  CHECK(info.max_volumes_per_node() == 12);
}

// An orchestrator waits for the topology, because the plugin's capabilities promise one.
TEST_CASE("the answer to NodeGetInfo contains a topology even if the node has no segments") {
  Served scene;
  scene.topology = std::map<std::string, std::string>();
  REQUIRE(scene.start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).ok());
  CHECK(info.has_accessible_topology());
  CHECK(info.accessible_topology().segments().empty());
}

TEST_CASE("the plugin's capabilities name a controller only if one is deployed, and online expansion always") {
  const bool controller = GENERATE(true, false);
  Served scene(512, false, controller);
  REQUIRE(scene.start());
  const auto stub = v1::Identity::NewStub(scene.channel());
  grpc::ClientContext context;
  v1::GetPluginCapabilitiesResponse said;
  REQUIRE(stub->GetPluginCapabilities(&context, {}, &said).ok());
  bool service = false, grows = false;
  for (const auto& one : said.capabilities()) {
    service = service || one.service().type() == v1::PluginCapability::Service::CONTROLLER_SERVICE;
    grows = grows || one.volume_expansion().type() == v1::PluginCapability::VolumeExpansion::ONLINE;
  }
  CHECK(service == controller);
  CHECK(grows);
}
