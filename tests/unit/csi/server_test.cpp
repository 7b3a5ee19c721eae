// The CSI socket with a scripted volume side: what callers see of waiting, cancelling, crowding and stopping.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "corbd/core/gate.hpp"
#include "corbd/csi/server.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "csiaddons/encryptionkeyrotation.grpc.pb.h"
#include "csiaddons/identity.grpc.pb.h"
#include "csiaddons/reclaimspace.grpc.pb.h"
#include "support/catch.hpp"
#include "support/control_thread.hpp"
#include "support/folder.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
namespace v1 = ::csi::v1;
using namespace std::chrono_literals;

namespace {

/// Every wish waits until `open` is set from the control thread.
class Scripted final : public test::ScriptedVolumes {
 public:
  Scripted(executor control, Clock& clock) : open(control, clock) {
    auto& one = all.emplace_back();
    one.volume_id = "image-1";
    one.health = volume::Health::failed;
    one.size = 2u << 30;
  }
  task<result<>> want(std::string, plan::Wish, Until until) override {
    ++asked;
    const Waited how = co_await open.wait(until);
    if (how != Waited::ready) co_return wait_error(how, "the scripted volume");
    co_return result<>();
  }
  task<result<host::Usage>> usage(std::string id, std::string, Until) override {
    if (!status(id)) co_return Error{errc::not_found, "no such volume"};
    co_return host::Usage{1 << 30, 1 << 20};
  }
  Event open;
  std::atomic<int> asked{0};
};

class Scene {
 public:
  explicit Scene(std::size_t max_calls = 512, bool volume_health = false)
      : clock_(make_real_clock(thread.control())), volumes(thread.control(), *clock_) {
    corbd::csi::Config config;
    config.endpoint = "unix://" + socket();
    config.addons_endpoint = "unix://" + addons_socket();
    config.drivername = "rbd.csi.ceph.com";
    config.nodeid = "node-1";
    config.version = "1";
    config.topology = [this] { return topology; };
    config.max_calls = max_calls;
    config.volume_health = volume_health;
    config.on_ended = [this](const rpc::Ended& call) {
      ++calls[std::string(call.method) + " " + std::to_string(call.grpc_code)];
    };
    server = std::make_unique<corbd::csi::Server>(thread.control(), *clock_, volumes, config);
    thread.start();
  }
  ~Scene() {
    stop();
    thread.call([this] { server.reset(); });
    thread.end();
  }
  void stop() { thread.finish(server->stop({clock_->now() + 2s})); }
  std::string addons_socket() const { return folder_.path() + "/csi/csi-addons.sock"; }
  std::string socket() const { return folder_.path() + "/csi/csi.sock"; }
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("unix://" + socket(), grpc::InsecureChannelCredentials());
  }
  grpc::StatusCode unstage(std::chrono::milliseconds deadline, std::size_t padding = 0) const {
    auto stub = v1::Node::NewStub(channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    v1::NodeUnstageVolumeRequest request;
    request.set_volume_id("image-1" + std::string(padding, 'x'));
    request.set_staging_target_path("/staging");
    v1::NodeUnstageVolumeResponse response;
    return stub->NodeUnstageVolume(&context, request, &response).error_code();
  }

 private:
  test::Folder folder_;

 public:
  test::ControlThread thread;

 private:
  std::unique_ptr<Clock> clock_;

 public:
  Scripted volumes;
  std::map<std::string, int> calls;  ///< by method and gRPC status; control thread
  result<std::map<std::string, std::string>> topology = std::map<std::string, std::string>();
  std::unique_ptr<corbd::csi::Server> server;
};

}  // namespace

TEST_CASE("a caller that runs out of time hears so, and a repeat gets the answer") {
  Scene scene;
  REQUIRE(scene.server->start());
  CHECK(scene.unstage(200ms) == grpc::StatusCode::DEADLINE_EXCEEDED);
  scene.thread.call([&] { scene.volumes.open.set(); });
  CHECK(scene.unstage(20s) == grpc::StatusCode::OK);
}

TEST_CASE("the socket is 0600 in a folder of 0750") {
  Scene scene;
  REQUIRE(scene.server->start());
  struct stat found{};
  REQUIRE(::stat(scene.socket().c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  REQUIRE(::stat(scene.socket().substr(0, scene.socket().rfind('/')).c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0750);
}

TEST_CASE("a socket that a dead agent left is replaced, one that answers is not") {
  Scene scene;
  std::filesystem::create_directories(scene.socket().substr(0, scene.socket().rfind('/')));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  scene.socket().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  SECTION("dead") {
    ::close(fd);
    CHECK(scene.server->start());
  }
  SECTION("alive") {
    REQUIRE(::listen(fd, 1) == 0);
    const auto started = scene.server->start();
    REQUIRE_FALSE(started);
    CHECK(started.error().code == errc::in_use);
    ::close(fd);
  }
}

TEST_CASE("more calls than the bound are refused at once, every other one is answered") {
  Scene scene(4);
  REQUIRE(scene.server->start());
  std::atomic<int> fine{0}, refused{0}, other{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 50; ++i)
    callers.emplace_back([&] {
      const auto code = scene.unstage(20s);
      (code == grpc::OK ? fine : code == grpc::RESOURCE_EXHAUSTED ? refused : other)++;
    });
  while (refused < 46) std::this_thread::sleep_for(1ms);
  scene.thread.call([&] { scene.volumes.open.set(); });
  for (auto& caller : callers) caller.join();
  CHECK(fine == 4);
  CHECK(refused == 46);
  CHECK(other == 0);
}

TEST_CASE("the answers that kubelet asks for all the time come while the control thread is busy") {
  Scene scene;
  REQUIRE(scene.server->start());
  std::promise<void> release;
  std::thread blocker([&] { scene.thread.call([&] { release.get_future().wait(); }); });
  grpc::ClientContext node_context, probe_context, info_context;
  v1::NodeGetCapabilitiesResponse capabilities;
  CHECK(v1::Node::NewStub(scene.channel())
            ->NodeGetCapabilities(&node_context, v1::NodeGetCapabilitiesRequest(), &capabilities)
            .ok());
  CHECK(capabilities.capabilities_size() == 5);
  v1::ProbeResponse probe;
  CHECK(v1::Identity::NewStub(scene.channel())->Probe(&probe_context, v1::ProbeRequest(), &probe).ok());
  CHECK(probe.ready().value());
  v1::GetPluginInfoResponse info;
  CHECK(v1::Identity::NewStub(scene.channel())->GetPluginInfo(&info_context, v1::GetPluginInfoRequest(), &info).ok());
  CHECK(info.name() == "rbd.csi.ceph.com");
  release.set_value();
  blocker.join();
}

TEST_CASE("of a thousand calls at once each is answered, or told to come later") {
  constexpr int many = 1000;
  struct Call {
    grpc::ClientContext context;
    v1::NodeUnstageVolumeRequest request;
    v1::NodeUnstageVolumeResponse response;
    v1::ProbeRequest probe_request;
    v1::ProbeResponse probe_response;
  };
  Scene scene;
  REQUIRE(scene.server->start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  const auto channel = scene.channel();
  const auto node = v1::Node::NewStub(channel);
  const auto identity = v1::Identity::NewStub(channel);
  std::vector<Call> calls(many);
  std::atomic<int> fine{0}, later{0}, other{0};
  for (int i = 0; i < many; ++i) {
    Call& call = calls[static_cast<std::size_t>(i)];
    call.context.set_deadline(std::chrono::system_clock::now() + 60s);
    auto ended = [&](const grpc::Status& status) {
      const auto code = status.error_code();
      (code == grpc::OK ? fine : code == grpc::RESOURCE_EXHAUSTED ? later : other)++;
    };
    if (i % 2 == 0) {
      identity->async()->Probe(&call.context, &call.probe_request, &call.probe_response, ended);
      continue;
    }
    call.request.set_volume_id("image-" + std::to_string(i));
    call.request.set_staging_target_path("/staging");
    node->async()->NodeUnstageVolume(&call.context, &call.request, &call.response, ended);
  }
  while (fine + later + other < many) std::this_thread::sleep_for(1ms);
  CHECK(other == 0);
  CHECK(fine >= many / 2);
  CHECK(scene.unstage(20s) == grpc::OK);
}

TEST_CASE("an expansion answers with the size that the device has") {
  Scene scene;
  REQUIRE(scene.server->start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  grpc::ClientContext context;
  v1::NodeExpandVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_volume_path("/target");
  v1::NodeExpandVolumeResponse response;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeExpandVolume(&context, request, &response).ok());
  CHECK(response.capacity_bytes() == 2ll << 30);
}

TEST_CASE("the statistics of a known volume come with its condition, those of another are not found") {
  Scene scene;
  REQUIRE(scene.server->start());
  const auto ask = [&](const std::string& id, v1::NodeGetVolumeStatsResponse& response) {
    grpc::ClientContext context;
    v1::NodeGetVolumeStatsRequest request;
    request.set_volume_id(id);
    request.set_volume_path("some/path");
    return v1::Node::NewStub(scene.channel())->NodeGetVolumeStats(&context, request, &response).error_code();
  };
  v1::NodeGetVolumeStatsResponse response;
  REQUIRE(ask("image-1", response) == grpc::OK);
  CHECK(response.usage(0).used() == 1 << 20);
  CHECK(response.volume_condition().abnormal());
  CHECK(ask("image-2", response) == grpc::NOT_FOUND);
  CHECK(ask("", response) == grpc::INVALID_ARGUMENT);
}

TEST_CASE("a volume's health is served and announced with its flag only") {
  const bool flag = GENERATE(false, true);
  Scene scene(512, flag);
  REQUIRE(scene.server->start());
  const auto node = v1::Node::NewStub(scene.channel());
  grpc::ClientContext context, capabilities_context;
  v1::NodeGetVolumeHealthRequest request;
  request.set_volume_id("image-1");
  v1::NodeGetVolumeHealthResponse response;
  CHECK(node->NodeGetVolumeHealth(&context, request, &response).error_code() ==
        (flag ? grpc::OK : grpc::UNIMPLEMENTED));
  CHECK(response.volume_health().health_statuses_size() == (flag ? 1 : 0));
  v1::NodeGetCapabilitiesResponse capabilities;
  REQUIRE(node->NodeGetCapabilities(&capabilities_context, v1::NodeGetCapabilitiesRequest(), &capabilities).ok());
  CHECK(capabilities.capabilities_size() == (flag ? 6 : 5));
}

TEST_CASE("on its own socket CSI-Addons hears of a node that gives space back and changes keys, and asks it to") {
  Scene scene;
  REQUIRE(scene.server->start());
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

TEST_CASE("another key for a volume is asked of the volume") {
  Scene scene;
  REQUIRE(scene.server->start());
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

TEST_CASE("a node whose labels are not known yet is told so, and kubelet asks again") {
  Scene scene;
  scene.topology = Error{errc::unavailable, "the labels of node node-1 are not known yet"};
  REQUIRE(scene.server->start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  CHECK(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).error_code() ==
        grpc::UNAVAILABLE);
}

TEST_CASE("a node's topology is always told, with its segments if it has any") {
  Scene scene;
  scene.topology = std::map<std::string, std::string>{{"topology.rbd.csi.ceph.com/zone", "z1"}};
  REQUIRE(scene.server->start());
  grpc::ClientContext context;
  v1::NodeGetInfoResponse info;
  REQUIRE(v1::Node::NewStub(scene.channel())->NodeGetInfo(&context, v1::NodeGetInfoRequest(), &info).ok());
  CHECK(info.has_accessible_topology());
  REQUIRE(info.accessible_topology().segments_size() == 1);
  CHECK(info.accessible_topology().segments().at("topology.rbd.csi.ceph.com/zone") == "z1");
}

TEST_CASE("calls that end are told with their status, those that were refused too") {
  Scene scene(1);
  REQUIRE(scene.server->start());
  grpc::StatusCode first = grpc::UNKNOWN;
  std::thread waiting([&] { first = scene.unstage(60s); });
  while (scene.volumes.asked == 0) std::this_thread::sleep_for(1ms);
  CHECK(scene.server->in_flight() == 1);
  CHECK(scene.unstage(20s) == grpc::RESOURCE_EXHAUSTED);
  scene.thread.call([&] { scene.volumes.open.set(); });
  waiting.join();
  CHECK(first == grpc::OK);
  std::map<std::string, int> told;
  scene.thread.call([&] { told = scene.calls; });
  CHECK(told == std::map<std::string, int>{{"NodeUnstageVolume 0", 1}, {"NodeUnstageVolume 8", 1}});
}

TEST_CASE("bytes that are no request, or text that is no UTF-8, reach nobody") {
  Scene scene;
  REQUIRE(scene.server->start());
  // Field 1, the volume id: cut off, and not UTF-8; field 5, the secrets, with a value that is not UTF-8.
  const std::string bytes = GENERATE(std::string("\x0a\x20short"), std::string("\x0a\x02\xff\xfe"),
                                     std::string("\x0a\x01"
                                                 "a\x2a\x0d\x0a\x07"
                                                 "userKey\x12\x02\xff\xfe"));
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  grpc::GenericStub stub(scene.channel());
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/csi.v1.Node/NodeStageVolume", {}, &request, &response,
                 [&](grpc::Status status) { ended.set_value(status); });
  const auto status = ended.get_future().get();
  CHECK_FALSE(status.ok());
  CHECK_THAT(status.error_message(), !ContainsSubstring("\xff"));
  CHECK(scene.volumes.asked == 0);
}

TEST_CASE("a message of more than 1 MiB is refused") {
  Scene scene;
  REQUIRE(scene.server->start());
  CHECK(scene.unstage(20s, 2 << 20) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(scene.volumes.asked == 0);
}

TEST_CASE("a call that waits does not keep the server from stopping, and hears of it") {
  Scene scene;
  REQUIRE(scene.server->start());
  grpc::StatusCode code = grpc::OK;
  std::thread caller([&] { code = scene.unstage(60s); });
  while (scene.volumes.asked == 0) std::this_thread::sleep_for(1ms);
  scene.stop();
  caller.join();
  CHECK(code != grpc::OK);
}

TEST_CASE("a stage request's secrets are not in the log") {
  Scene scene;
  REQUIRE(scene.server->start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  test::Folder folder;
  const int old = ::dup(STDERR_FILENO);
  std::FILE* log = std::fopen((folder.path() + "/log").c_str(), "w+");
  ::dup2(::fileno(log), STDERR_FILENO);
  v1::NodeStageVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_staging_target_path("/staging");
  request.mutable_volume_capability()->mutable_mount();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(
      v1::VolumeCapability::AccessMode::SINGLE_NODE_WRITER);
  (*request.mutable_volume_context())["staticVolume"] = "true";
  (*request.mutable_volume_context())["clusterID"] = "c";
  (*request.mutable_volume_context())["pool"] = "p";
  (*request.mutable_secrets())["userID"] = "node";
  (*request.mutable_secrets())["userKey"] = "AQCanary==";
  grpc::ClientContext context;
  v1::NodeStageVolumeResponse response;
  const bool ok = v1::Node::NewStub(scene.channel())->NodeStageVolume(&context, request, &response).ok();
  ::dup2(old, STDERR_FILENO);
  ::close(old);
  CHECK(ok);
  std::ifstream written(folder.path() + "/log");
  const std::string text((std::istreambuf_iterator<char>(written)), std::istreambuf_iterator<char>());
  std::fclose(log);
  CHECK_THAT(text, ContainsSubstring("NodeStageVolume"));
  CHECK_THAT(text, !ContainsSubstring("Canary"));
}
