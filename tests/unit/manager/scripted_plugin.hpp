// A CSI plugin that is not ours: a gRPC server of another make than the agent's. It mounts a tmpfs for each volume, or
// nothing, and fails as its script says.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "csi/v1/csi.grpc.pb.h"
#include "support/folder.hpp"

namespace corbd::test {

namespace wire = ::csi::v1;

class ScriptedPlugin final : public wire::Node::Service, public wire::Identity::Service {
 public:
  using Context = grpc::ServerContext;
  /// What a call answers before it has its effect; nothing: it does its work.
  using Script = std::function<std::optional<grpc::Status>(const std::string& call, Context& context)>;

  explicit ScriptedPlugin(const std::string& socket, bool mounts = false) : socket_(socket), mounts_(mounts) {
    start();
  }
  ~ScriptedPlugin() override { stop(); }

  void start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix://" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<wire::Node::Service*>(this));
    builder.RegisterService(static_cast<wire::Identity::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  void stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  void say(Script script) {
    const std::lock_guard guard(mutex_);
    script_ = std::move(script);
  }
  std::vector<std::string> calls() {
    const std::lock_guard guard(mutex_);
    return calls_;
  }
  template <class Request>
  Request last(Request ScriptedPlugin::* which) {
    const std::lock_guard guard(mutex_);
    return this->*which;
  }

  std::atomic<bool> stages = true, ready = true;
  wire::NodeStageVolumeRequest staged;
  wire::NodePublishVolumeRequest published;
  wire::NodeExpandVolumeRequest expanded;
  std::atomic<std::int64_t> size = 0;

  grpc::Status GetPluginInfo(Context* context, const wire::GetPluginInfoRequest*,
                             wire::GetPluginInfoResponse* said) override {
    said->set_name("scripted.csi.example.com");
    said->set_vendor_version("7");
    return answer("info", *context, [] { return 0; });
  }
  grpc::Status Probe(Context* context, const wire::ProbeRequest*, wire::ProbeResponse* said) override {
    said->mutable_ready()->set_value(ready);
    return answer("probe", *context, [] { return 0; });
  }
  grpc::Status NodeGetCapabilities(Context* context, const wire::NodeGetCapabilitiesRequest*,
                                   wire::NodeGetCapabilitiesResponse* said) override {
    if (stages)
      said->add_capabilities()->mutable_rpc()->set_type(wire::NodeServiceCapability::RPC::STAGE_UNSTAGE_VOLUME);
    return answer("stages", *context, [] { return 0; });
  }
  grpc::Status NodeStageVolume(Context* context, const wire::NodeStageVolumeRequest* request,
                               wire::NodeStageVolumeResponse*) override {
    return answer("stage", *context, [&] {
      staged = *request;
      return mounts_ ? ::mount("scripted", request->staging_target_path().c_str(), "tmpfs", 0, nullptr) : 0;
    });
  }
  grpc::Status NodePublishVolume(Context* context, const wire::NodePublishVolumeRequest* request,
                                 wire::NodePublishVolumeResponse*) override {
    return answer("publish", *context, [&] {
      published = *request;
      if (!mounts_) return 0;
      ::mkdir(request->target_path().c_str(), 0750);
      const auto& from = request->staging_target_path();
      return ::mount(from.c_str(), request->target_path().c_str(), nullptr, MS_BIND, nullptr);
    });
  }
  grpc::Status NodeUnpublishVolume(Context* context, const wire::NodeUnpublishVolumeRequest* request,
                                   wire::NodeUnpublishVolumeResponse*) override {
    return answer("unpublish", *context, [&] { return take_down(request->target_path(), true); });
  }
  grpc::Status NodeUnstageVolume(Context* context, const wire::NodeUnstageVolumeRequest* request,
                                 wire::NodeUnstageVolumeResponse*) override {
    return answer("unstage", *context, [&] { return take_down(request->staging_target_path(), false); });
  }
  grpc::Status NodeExpandVolume(Context* context, const wire::NodeExpandVolumeRequest* request,
                                wire::NodeExpandVolumeResponse* said) override {
    return answer("expand", *context, [&] {
      expanded = *request;
      said->set_capacity_bytes(size);
      return 0;
    });
  }
  grpc::Status NodeGetVolumeStats(Context* context, const wire::NodeGetVolumeStatsRequest*,
                                  wire::NodeGetVolumeStatsResponse*) override {
    return answer("stats", *context, [] { return 0; });
  }

 private:
  int take_down(const std::string& path, bool remove) const {
    if (!mounts_) return 0;
    if (::umount(path.c_str()) != 0 && errno != EINVAL && errno != ENOENT) return -1;
    if (remove) ::rmdir(path.c_str());
    return 0;
  }
  grpc::Status answer(const std::string& call, Context& context, const std::function<int()>& work) {
    Script script;
    {
      const std::lock_guard guard(mutex_);
      calls_.push_back(call);
      script = script_;
    }
    if (script)
      if (const auto said = script(call, context)) return *said;
    const std::lock_guard guard(mutex_);
    if (work() == 0) return grpc::Status::OK;
    return {grpc::StatusCode::INTERNAL, call + ": " + std::strerror(errno)};
  }

  const std::string socket_;
  const bool mounts_;
  std::mutex mutex_;
  Script script_;
  std::vector<std::string> calls_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace corbd::test
