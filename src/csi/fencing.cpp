// CSI-Addons' FenceController (docs/sources.md#fence-controller).
#include "addons.hpp"
#include "corbd/core/text.hpp"
#include "csiaddons/fence.grpc.pb.h"
#include "requests.hpp"

namespace corbd::csi {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

template <class Map>
std::string value_of(const Map& map, const std::string& name) {
  const auto place = map.find(name);
  return place == map.end() ? std::string() : place->second;
}

template <class Request>
fence::Asker asker_of(const Request& request) {
  fence::Asker asker{value_of(request.parameters(), "clusterID"), value_of(request.secrets(), "userID"),
                     Secret(without_end(value_of(request.secrets(), "userKey")))};
  wipe_secrets(request);
  return asker;
}

template <class Request>
result<fence::Order> order_of(const Request& request) {
  fence::Order order;
  for (const auto& block : request.cidrs()) order.blocks.push_back(block.cidr());
  if (const std::string duration = value_of(request.parameters(), "duration"); !duration.empty()) {
    const auto read = fence::read_duration(duration);
    if (!read) return read.error();
    order.duration = *read;
  }
  const std::string force = value_of(request.parameters(), "force");
  if (!force.empty() && force != "true" && force != "false")
    return Error{errc::invalid_argument, "the parameter force is \"" + printable(force) + "\": write true or false"};
  order.forced = force == "true";
  return order;
}

class FenceController final : public ::fence::FenceController::CallbackService {
 public:
  FenceController(rpc::Server& server, fence::Fencer& fencer) : server_(server), fencer_(fencer) {}

  Reactor* FenceClusterNetwork(Context* context, const ::fence::FenceClusterNetworkRequest* request,
                               ::fence::FenceClusterNetworkResponse*) override {
    auto work = [this, request](Until until) { return fence(*request, until); };
    return server_.unary(context, "FenceClusterNetwork", value_of(request->parameters(), "clusterID"), work);
  }
  Reactor* UnfenceClusterNetwork(Context* context, const ::fence::UnfenceClusterNetworkRequest* request,
                                 ::fence::UnfenceClusterNetworkResponse*) override {
    auto work = [this, request](Until until) { return unfence(*request, until); };
    return server_.unary(context, "UnfenceClusterNetwork", value_of(request->parameters(), "clusterID"), work);
  }
  Reactor* ListClusterFence(Context* context, const ::fence::ListClusterFenceRequest* request,
                            ::fence::ListClusterFenceResponse* response) override {
    auto work = [this, request, response](Until until) { return list(*request, *response, until); };
    return server_.unary(context, "ListClusterFence", value_of(request->parameters(), "clusterID"), work);
  }
  Reactor* GetFenceClients(Context* context, const ::fence::GetFenceClientsRequest* request,
                           ::fence::GetFenceClientsResponse* response) override {
    auto work = [this, request, response](Until until) { return clients(*request, *response, until); };
    return server_.unary(context, "GetFenceClients", value_of(request->parameters(), "clusterID"), work);
  }

 private:
  task<result<>> fence(const ::fence::FenceClusterNetworkRequest& request, Until until) {
    auto asker = asker_of(request);
    auto order = order_of(request);
    if (!order) co_return order.error();
    auto done = co_await fencer_.fence(std::move(asker), std::move(*order), until);
    co_return done ? result<>() : result<>(done.error());
  }
  task<result<>> unfence(const ::fence::UnfenceClusterNetworkRequest& request, Until until) {
    auto asker = asker_of(request);
    auto order = order_of(request);
    if (!order) co_return order.error();
    auto done = co_await fencer_.unfence(std::move(asker), std::move(*order), until);
    co_return done ? result<>() : result<>(done.error());
  }
  task<result<>> list(const ::fence::ListClusterFenceRequest& request, ::fence::ListClusterFenceResponse& response,
                      Until until) {
    const auto now = co_await fencer_.list(asker_of(request), until);
    if (!now) co_return now.error();
    for (const auto& block : fence::blocks_of(*now)) response.add_cidrs()->set_cidr(block.text());
    co_return result<>();
  }
  task<result<>> clients(const ::fence::GetFenceClientsRequest& request, ::fence::GetFenceClientsResponse& response,
                         Until until) {
    const auto found = co_await fencer_.clients(asker_of(request), until);
    if (!found) co_return found.error();
    auto* client = response.add_clients();
    client->set_id(found->fsid);
    for (const auto& address : found->addresses) client->add_addresses()->set_cidr(address.text());
    co_return result<>();
  }

  rpc::Server& server_;
  fence::Fencer& fencer_;
};

rpc::Config addons_config(const Config& config) {
  rpc::Config out;
  out.endpoint = config.addons_endpoint;
  out.max_calls = config.max_calls;
  out.on_ended = config.on_ended;
  return out;
}

}  // namespace

std::unique_ptr<grpc::Service> make_fence_controller(rpc::Server& server, fence::Fencer& fencer) {
  return std::make_unique<FenceController>(server, fencer);
}

class FencingServer::Impl {
 public:
  Impl(executor control, Clock& clock, Config config)
      : config_(std::move(config)),
        server_(std::move(control), clock, addons_config(config_)),
        identity_(make_identity(config_, Role::fencing_only)),
        controller_(make_fence_controller(server_, *config_.fencer)) {}
  result<> start() { return server_.start({identity_.get(), controller_.get()}); }
  task<> stop(Until until) { return server_.stop(until); }

 private:
  const Config config_;
  rpc::Server server_;
  std::unique_ptr<grpc::Service> identity_, controller_;
};

FencingServer::FencingServer(executor control, Clock& clock, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(config))) {}
FencingServer::~FencingServer() = default;
result<> FencingServer::start() { return impl_->start(); }
task<> FencingServer::stop(Until until) { return impl_->stop(until); }

}  // namespace corbd::csi
