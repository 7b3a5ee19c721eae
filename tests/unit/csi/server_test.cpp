// What callers of the CSI socket see of deadlines, overload, malformed requests and shutdown.
#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <future>
#include <thread>

#include "corbd/core/gate.hpp"
#include "served.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

TEST_CASE("a call that exceeds its deadline ends with DEADLINE_EXCEEDED, and a repeated call gets the answer",
          "[rule:13]") {
  Served scene;
  REQUIRE(scene.start());
  CHECK(scene.unstage(200ms) == grpc::StatusCode::DEADLINE_EXCEEDED);
  scene.thread.call([&] { scene.volumes.open.set(); });
  CHECK(scene.unstage(20s) == grpc::StatusCode::OK);
}

TEST_CASE("a call that waits until its caller leaves says before why it waited", "[rule:13]") {
  Served scene;
  REQUIRE(scene.start());
  const auto ended = scene.try_unstage(5s);
  CHECK(ended.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK_THAT(ended.error_message(), ContainsSubstring("the scripted volume"));
}

TEST_CASE("the CSI socket has mode 0600, and its folder has mode 0750") {
  Served scene;
  REQUIRE(scene.start());
  struct stat found{};
  REQUIRE(::stat(scene.socket().c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  REQUIRE(::stat(scene.socket().substr(0, scene.socket().rfind('/')).c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0750);
}

TEST_CASE("a CSI socket that a dead agent left is replaced, and one that answers is not") {
  Served scene;
  std::filesystem::create_directories(scene.socket().substr(0, scene.socket().rfind('/')));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  scene.socket().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  SECTION("a dead agent's socket") {
    ::close(fd);
    CHECK(scene.start());
  }
  SECTION("a socket that answers") {
    REQUIRE(::listen(fd, 1) == 0);
    const auto started = scene.start();
    REQUIRE_FALSE(started);
    CHECK(started.error().code == errc::in_use);
    ::close(fd);
  }
}

TEST_CASE("calls beyond the limit are refused at once, and all others are answered", "[failure:24]") {
  Served scene(4);
  REQUIRE(scene.start());
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

TEST_CASE("the node's capabilities, Probe and GetPluginInfo are answered while the control thread is busy",
          "[rule:17]") {
  Served scene;
  REQUIRE(scene.start());
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

TEST_CASE("each of a thousand simultaneous calls is answered or refused with RESOURCE_EXHAUSTED", "[failure:22]") {
  constexpr int many = 1000;
  struct Call {
    grpc::ClientContext context;
    v1::NodeUnstageVolumeRequest request;
    v1::NodeUnstageVolumeResponse response;
    v1::ProbeRequest probe_request;
    v1::ProbeResponse probe_response;
  };
  Served scene;
  REQUIRE(scene.start());
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

TEST_CASE("each ended call is reported with its status, and so is each refused call") {
  Served scene(1);
  REQUIRE(scene.start());
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

TEST_CASE("a malformed request, or one with invalid UTF-8, fails before it reaches a volume") {
  Served scene;
  REQUIRE(scene.start());
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
  Served scene;
  REQUIRE(scene.start());
  CHECK(scene.unstage(20s, 2 << 20) == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(scene.volumes.asked == 0);
}

TEST_CASE("a waiting call does not keep the server from stopping, and ends with an error") {
  Served scene;
  REQUIRE(scene.start());
  grpc::StatusCode code = grpc::OK;
  std::thread caller([&] { code = scene.unstage(60s); });
  while (scene.volumes.asked == 0) std::this_thread::sleep_for(1ms);
  scene.stop();
  caller.join();
  CHECK(code != grpc::OK);
}

TEST_CASE("a stage request's secrets are not in the log", "[rule:15]") {
  Served scene;
  REQUIRE(scene.start());
  scene.thread.call([&] { scene.volumes.open.set(); });
  Folder folder;
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
