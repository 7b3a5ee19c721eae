#include "addons.hpp"
#include "answers.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/rpc/server.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "requests.hpp"

namespace corbd::csi {
namespace {

namespace v1 = ::csi::v1;
using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

class Identity final : public v1::Identity::CallbackService {
 public:
  explicit Identity(const Config& config) : config_(config) {}

  Reactor* GetPluginInfo(Context* context, const v1::GetPluginInfoRequest*,
                         v1::GetPluginInfoResponse* response) override {
    response->set_name(config_.drivername);
    response->set_vendor_version(config_.version);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  /// These are the capabilities of the whole deployed plugin: ceph-csi's provisioner has the controller and its
  /// topology. Without a controller, an orchestrator must not wait for one (docs/sources.md#nomad).
  Reactor* GetPluginCapabilities(Context* context, const v1::GetPluginCapabilitiesRequest*,
                                 v1::GetPluginCapabilitiesResponse* response) override {
    using Service = v1::PluginCapability::Service;
    if (config_.controller) response->add_capabilities()->mutable_service()->set_type(Service::CONTROLLER_SERVICE);
    response->add_capabilities()->mutable_volume_expansion()->set_type(v1::PluginCapability::VolumeExpansion::ONLINE);
    if (config_.controller)
      response->add_capabilities()->mutable_service()->set_type(Service::VOLUME_ACCESSIBILITY_CONSTRAINTS);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  /// The agent is ready as soon as the socket serves. Healing is reported elsewhere.
  Reactor* Probe(Context* context, const v1::ProbeRequest*, v1::ProbeResponse* response) override {
    response->mutable_ready()->set_value(true);
    return rpc::Server::answer(context, grpc::Status::OK);
  }

 private:
  const Config& config_;
};

class Node final : public v1::Node::CallbackService {
 public:
  Node(rpc::Server& server, volume::Volumes& volumes, const Config& config)
      : server_(server), volumes_(volumes), config_(config) {}

  Reactor* NodeStageVolume(Context* context, const v1::NodeStageVolumeRequest* request,
                           v1::NodeStageVolumeResponse*) override {
    auto work = [this, request](Until until) { return stage(volumes_, config_, *request, until); };
    return server_.unary(context, "NodeStageVolume", request->volume_id(), work);
  }
  Reactor* NodeUnstageVolume(Context* context, const v1::NodeUnstageVolumeRequest* request,
                             v1::NodeUnstageVolumeResponse*) override {
    return want(context, "NodeUnstageVolume", *request);
  }
  Reactor* NodePublishVolume(Context* context, const v1::NodePublishVolumeRequest* request,
                             v1::NodePublishVolumeResponse*) override {
    return want(context, "NodePublishVolume", *request, cephcsi::Mounters{config_.default_mounter});
  }
  Reactor* NodeUnpublishVolume(Context* context, const v1::NodeUnpublishVolumeRequest* request,
                               v1::NodeUnpublishVolumeResponse*) override {
    return want(context, "NodeUnpublishVolume", *request);
  }
  Reactor* NodeExpandVolume(Context* context, const v1::NodeExpandVolumeRequest* request,
                            v1::NodeExpandVolumeResponse* response) override {
    auto work = [this, request, response](Until until) {
      wipe_secrets(*request);
      return expand(volumes_, *request, *response, until);
    };
    return server_.unary(context, "NodeExpandVolume", request->volume_id(), work);
  }
  Reactor* NodeGetVolumeStats(Context* context, const v1::NodeGetVolumeStatsRequest* request,
                              v1::NodeGetVolumeStatsResponse* response) override {
    auto work = [this, request, response](Until until) { return measure(volumes_, *request, *response, until); };
    return server_.unary(context, "NodeGetVolumeStats", request->volume_id(), work);
  }
  Reactor* NodeGetVolumeHealth(Context* context, const v1::NodeGetVolumeHealthRequest* request,
                               v1::NodeGetVolumeHealthResponse* response) override {
    auto work = [this, request, response](Until) {
      return judge(volumes_, config_.volume_health, *request, *response);
    };
    return server_.unary(context, "NodeGetVolumeHealth", request->volume_id(), work);
  }
  Reactor* NodeGetStorageHealth(Context* context, const v1::NodeGetStorageHealthRequest* request,
                                v1::NodeGetStorageHealthResponse* response) override {
    auto work = [this, request, response](Until) { return judge(config_, *request, *response); };
    return server_.unary(context, "NodeGetStorageHealth", "", work);
  }
  Reactor* NodeGetCapabilities(Context* context, const v1::NodeGetCapabilitiesRequest*,
                               v1::NodeGetCapabilitiesResponse* response) override {
    using Rpc = v1::NodeServiceCapability::RPC;
    for (const auto type : {Rpc::STAGE_UNSTAGE_VOLUME, Rpc::GET_VOLUME_STATS, Rpc::VOLUME_CONDITION, Rpc::EXPAND_VOLUME,
                            Rpc::SINGLE_NODE_MULTI_WRITER})
      response->add_capabilities()->mutable_rpc()->set_type(type);
    if (config_.volume_health)
      for (const auto type : {Rpc::GET_VOLUME_HEALTH, Rpc::GET_STORAGE_HEALTH})
        response->add_capabilities()->mutable_rpc()->set_type(type);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  Reactor* NodeGetInfo(Context* context, const v1::NodeGetInfoRequest*, v1::NodeGetInfoResponse* response) override {
    auto work = [this, response](Until until) { return tell_node(config_, *response, until); };
    return server_.unary(context, "NodeGetInfo", "", work);
  }

 private:
  /// `mounters` are for requests whose wish depends on them.
  template <class Request, class... Mounters>
  Reactor* want(Context* context, const char* method, const Request& request, Mounters... mounters) {
    auto work = [this, &request, mounters...](Until until) {
      auto wish = wish_of(request, mounters...);
      if constexpr (requires { request.secrets(); }) wipe_secrets(request);
      return carry_out(volumes_, request.volume_id(), std::move(wish), until);
    };
    return server_.unary(context, method, request.volume_id(), work);
  }

  static task<result<>> carry_out(volume::Volumes& volumes, std::string id, result<plan::Wish> wish, Until until) {
    if (!wish) co_return wish.error();
    co_return co_await volumes.want(std::move(id), std::move(*wish), until);
  }

  static task<result<>> stage(volume::Volumes& volumes, const Config& config, const v1::NodeStageVolumeRequest& request,
                              Until until) {
    result<cephcsi::Mounters> mounters = cephcsi::Mounters{config.default_mounter};
    if (config.mounters) {
      const auto& attributes = request.volume_context();
      mounters = co_await config.mounters(request.volume_id(), {attributes.begin(), attributes.end()}, until);
    }
    auto wish = mounters ? wish_of(request, *mounters) : result<plan::Wish>(mounters.error());
    wipe_secrets(request);
    co_return co_await carry_out(volumes, request.volume_id(), std::move(wish), until);
  }

  static task<result<>> expand(volume::Volumes& volumes, const v1::NodeExpandVolumeRequest& request,
                               v1::NodeExpandVolumeResponse& response, Until until) {
    auto done = co_await carry_out(volumes, request.volume_id(), wish_of(request), until);
    if (!done) co_return done;
    if (const auto status = volumes.status(request.volume_id()))
      response.set_capacity_bytes(static_cast<std::int64_t>(status->size));
    co_return done;
  }

  static task<result<>> measure(volume::Volumes& volumes, const v1::NodeGetVolumeStatsRequest& request,
                                v1::NodeGetVolumeStatsResponse& response, Until until) {
    if (auto id = check_id(request.volume_id()); !id) co_return id;
    if (auto path = check_known_path(request.volume_path(), "volume path"); !path) co_return path;
    const auto usage = co_await volumes.usage(request.volume_id(), request.volume_path(), until);
    if (!usage) co_return usage.error();
    const auto status = volumes.status(request.volume_id());
    if (!status) co_return unknown(request.volume_id());
    fill(response, *usage, *status);
    co_return result<>();
  }

  static task<result<>> judge(volume::Volumes& volumes, bool served, const v1::NodeGetVolumeHealthRequest& request,
                              v1::NodeGetVolumeHealthResponse& response) {
    if (!served)
      co_return Error{errc::unimplemented, "NodeGetVolumeHealth is off: start the agent with --volume-health"};
    if (auto id = check_id(request.volume_id()); !id) co_return id;
    const auto status = volumes.status(request.volume_id());
    if (!status) co_return unknown(request.volume_id());
    fill(response, *status);
    co_return result<>();
  }

  static task<result<>> judge(const Config& config, const v1::NodeGetStorageHealthRequest& request,
                              v1::NodeGetStorageHealthResponse& response) {
    wipe_secrets(request);
    if (!config.volume_health)
      co_return Error{errc::unimplemented, "NodeGetStorageHealth is off: start the agent with --volume-health"};
    fill(response, config.backends());
    co_return result<>();
  }

  static task<result<>> tell_node(const Config& config, v1::NodeGetInfoResponse& response, Until until) {
    const auto topology = config.topology();
    if (!topology) co_return topology.error();
    if (config.max_volumes) {
      const std::int64_t most = co_await config.max_volumes(until);
      response.set_max_volumes_per_node(most);
    }
    response.set_node_id(config.nodeid);
    // A plugin with VOLUME_ACCESSIBILITY_CONSTRAINTS must send this, even empty, and no other plugin may.
    if (config.controller)
      response.mutable_accessible_topology()->mutable_segments()->insert(topology->begin(), topology->end());
    co_return result<>();
  }

  static Error unknown(const std::string& id) {
    return {errc::not_found, "volume " + id + " is not known on this node"};
  }

  rpc::Server& server_;
  volume::Volumes& volumes_;
  const Config& config_;
};

rpc::Config rpc_config(const Config& config, const std::string& endpoint) {
  rpc::Config out;
  out.endpoint = endpoint;
  out.max_calls = config.max_calls;
  out.on_ended = config.on_ended;
  return out;
}

}  // namespace

class Server::Impl {
 public:
  Impl(executor control, Clock& clock, volume::Volumes& volumes, Config config)
      : config_(std::move(config)),
        server_(control, clock, rpc_config(config_, config_.endpoint)),
        identity_(config_),
        node_(server_, volumes, config_),
        addons_server_(control, clock, rpc_config(config_, config_.addons_endpoint)),
        addons_(make_addons(addons_server_, volumes, config_)) {}
  result<> start(rpc::Inherited& inherited) {
    if (server_.socket() < 0)
      if (auto started = server_.start({&identity_, &node_}, inherited.take(config_.endpoint)); !started)
        return started;
    if (config_.addons_endpoint.empty()) return {};
    std::vector<grpc::Service*> services;
    for (const auto& service : addons_) services.push_back(service.get());
    return addons_server_.start(services, inherited.take(config_.addons_endpoint));
  }
  std::vector<Fd> release() {
    std::vector<Fd> sockets;
    for (rpc::Server* server : {&server_, &addons_server_})
      if (Fd socket = server->release()) sockets.push_back(std::move(socket));
    return sockets;
  }
  result<> adopt(std::vector<Fd> sockets) {
    std::size_t next = 0;
    for (rpc::Server* server : {&server_, &addons_server_})
      if (next < sockets.size())
        if (auto adopted = server->adopt(std::move(sockets[next++])); !adopted) return adopted;
    return {};
  }
  std::map<std::string, int> sockets() const {
    std::map<std::string, int> all;
    for (const rpc::Server* server : {&server_, &addons_server_})
      if (server->socket() >= 0) all[server->path()] = server->socket();
    return all;
  }
  task<> stop(Until until) {
    co_await server_.stop(until);
    co_await addons_server_.stop(until);
  }
  std::size_t in_flight() const { return server_.in_flight() + addons_server_.in_flight(); }

 private:
  const Config config_;
  rpc::Server server_;
  Identity identity_;
  Node node_;
  rpc::Server addons_server_;
  std::vector<std::unique_ptr<grpc::Service>> addons_;
};

Server::Server(executor control, Clock& clock, volume::Volumes& volumes, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, volumes, std::move(config))) {}
Server::~Server() = default;
result<> Server::start(rpc::Inherited& inherited) { return impl_->start(inherited); }
std::vector<Fd> Server::release() { return impl_->release(); }
result<> Server::adopt(std::vector<Fd> sockets) { return impl_->adopt(std::move(sockets)); }
std::map<std::string, int> Server::sockets() const { return impl_->sockets(); }
task<> Server::stop(Until until) { return impl_->stop(until); }
std::size_t Server::in_flight() const { return impl_->in_flight(); }

}  // namespace corbd::csi
