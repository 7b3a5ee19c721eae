// The CSI server on its socket, with scripted volumes behind it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>

#include "corbd/csi/server.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "support/control_thread.hpp"
#include "support/folder.hpp"
#include "support/scripted_volumes.hpp"

namespace corbd::test {

namespace v1 = ::csi::v1;

/// Every wish waits until `open` is set from the control thread.
class Scripted final : public ScriptedVolumes {
 public:
  Scripted(executor control, Clock& clock) : open(control, clock) {
    auto& one = all.emplace_back();
    one.volume_id = "image-1";
    one.health = volume::Health::failed;
    one.size = 2u << 30;
  }
  task<result<>> want(std::string, plan::Wish wish, Until until) override {
    ++asked;
    if (const auto* staged = std::get_if<plan::Staged>(&wish)) mounter = staged->mounter;
    if (const auto* one = std::get_if<plan::Expanded>(&wish)) expanded = *one;
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
  plan::Expanded expanded;                                       ///< the last one; control thread
  std::atomic<cephcsi::Mounter> mounter{cephcsi::Mounter::nbd};  ///< of the last stage
};

class Served {
 public:
  explicit Served(std::size_t max_calls = 512, bool volume_health = false, bool controller = true)
      : clock_(make_real_clock(thread.control())), volumes(thread.control(), *clock_) {
    corbd::csi::Config config;
    config.endpoint = "unix://" + socket();
    config.addons_endpoint = "unix://" + addons_socket();
    config.drivername = "rbd.csi.ceph.com";
    config.nodeid = "node-1";
    config.version = "1";
    config.topology = [this] { return topology; };
    config.mounters = [this](std::string, cephcsi::Attributes attributes, Until) {
      return choose(mounters, attributes.contains("pool"));
    };
    config.max_volumes = [this](Until) { return room(max_volumes); };
    config.max_calls = max_calls;
    config.volume_health = volume_health;
    config.backends = [] { return std::vector{corbd::csi::BackendCondition{true, "NodeFenced", "prod"}}; };
    config.controller = controller;
    config.on_ended = [this](const rpc::Ended& call) {
      ++calls[std::string(call.method) + " " + std::to_string(call.grpc_code)];
    };
    server = std::make_unique<corbd::csi::Server>(thread.control(), *clock_, volumes, config);
    thread.start();
  }
  result<> start() {
    rpc::Inherited none;
    return server->start(none);
  }
  ~Served() {
    stop();
    thread.call([this] { server.reset(); });
    thread.end();
  }
  void stop() { thread.finish(server->stop({clock_->now() + std::chrono::seconds(2)})); }
  std::string addons_socket() const { return folder_.path() + "/csi/csi-addons.sock"; }
  std::string socket() const { return folder_.path() + "/csi/csi.sock"; }
  std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("unix://" + socket(), grpc::InsecureChannelCredentials());
  }
  grpc::StatusCode unstage(std::chrono::milliseconds deadline, std::size_t padding = 0) const {
    return try_unstage(deadline, padding).error_code();
  }
  grpc::Status try_unstage(std::chrono::milliseconds deadline, std::size_t padding = 0) const {
    auto stub = v1::Node::NewStub(channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + deadline);
    v1::NodeUnstageVolumeRequest request;
    request.set_volume_id("image-1" + std::string(padding, 'x'));
    request.set_staging_target_path("/staging");
    v1::NodeUnstageVolumeResponse response;
    return stub->NodeUnstageVolume(&context, request, &response);
  }

  static task<std::uint32_t> room(std::uint32_t volumes) { co_return volumes; }
  static task<result<cephcsi::Mounters>> choose(result<cephcsi::Mounters> mounters, bool has_attributes) {
    if (!has_attributes) co_return Error{errc::internal, "the attributes are missing"};
    co_return mounters;
  }

 private:
  Folder folder_;

 public:
  ControlThread thread;

 private:
  std::unique_ptr<Clock> clock_;

 public:
  Scripted volumes;
  std::map<std::string, int> calls;                          ///< by method and gRPC status; control thread
  result<cephcsi::Mounters> mounters = cephcsi::Mounters();  ///< the answer for every volume
  result<std::map<std::string, std::string>> topology = std::map<std::string, std::string>();
  std::uint32_t max_volumes = 12;
  std::unique_ptr<corbd::csi::Server> server;
};

}  // namespace corbd::test
