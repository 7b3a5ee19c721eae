// The FenceController on its socket, called as CSI-Addons' sidecar calls it.
#include "csiaddons/fence.grpc.pb.h"
#include "csiaddons/identity.grpc.pb.h"
#include "served.hpp"
#include "support/catch.hpp"
#include "support/monitors.hpp"

using corbd::errc;
using corbd::Error;
using corbd::result;
namespace test = corbd::test;

namespace {

class Fencing {
 public:
  Fencing() {
    monitors.now.own = {"10.0.0.9:0/1"};
    corbd::csi::Config config;
    config.addons_endpoint = "unix://" + folder_.path() + "/csi-addons.sock";
    config.drivername = "rbd.csi.ceph.com";
    config.fencer = &fencer_;
    server_ = std::make_unique<corbd::csi::FencingServer>(thread_.control(), *clock_, config);
    thread_.start();
    result<> started;
    thread_.call([&] { started = server_->start(); });
    REQUIRE(started);
    channel = grpc::CreateChannel(config.addons_endpoint, grpc::InsecureChannelCredentials());
  }
  ~Fencing() {
    thread_.finish(server_->stop({clock_->now() + std::chrono::seconds(2)}));
    thread_.call([this] { server_.reset(); });
    thread_.end();
  }

  grpc::Status fence(const std::vector<std::string>& blocks, std::map<std::string, std::string> parameters) {
    ::fence::FenceClusterNetworkRequest request;
    fill(request, std::move(parameters));
    for (const auto& block : blocks) request.add_cidrs()->set_cidr(block);
    ::fence::FenceClusterNetworkResponse response;
    grpc::ClientContext context;
    return ::fence::FenceController::NewStub(channel)->FenceClusterNetwork(&context, request, &response);
  }
  grpc::Status unfence(const std::string& block) {
    ::fence::UnfenceClusterNetworkRequest request;
    fill(request, {{"clusterID", "lab"}});
    request.add_cidrs()->set_cidr(block);
    ::fence::UnfenceClusterNetworkResponse response;
    grpc::ClientContext context;
    return ::fence::FenceController::NewStub(channel)->UnfenceClusterNetwork(&context, request, &response);
  }
  std::vector<std::string> list() {
    ::fence::ListClusterFenceRequest request;
    fill(request, {{"clusterID", "lab"}});
    ::fence::ListClusterFenceResponse response;
    grpc::ClientContext context;
    REQUIRE(::fence::FenceController::NewStub(channel)->ListClusterFence(&context, request, &response).ok());
    std::vector<std::string> all;
    for (const auto& one : response.cidrs()) all.push_back(one.cidr());
    return all;
  }
  template <class Request>
  static void fill(Request& request, std::map<std::string, std::string> parameters) {
    request.mutable_parameters()->insert(parameters.begin(), parameters.end());
    (*request.mutable_secrets())["userID"] = "admin";
    (*request.mutable_secrets())["userKey"] = "key";
  }

  test::Monitors monitors;
  std::shared_ptr<grpc::Channel> channel;

 private:
  test::Folder folder_;
  test::ControlThread thread_;
  std::unique_ptr<corbd::Clock> clock_ = corbd::make_real_clock(thread_.control());
  corbd::fence::Fencer fencer_{monitors, [](const std::string& id) -> result<std::vector<std::string>> {
                                 if (id != "lab") return Error{errc::not_found, "config.json has no cluster " + id};
                                 return std::vector<std::string>{"10.0.0.1"};
                               }};
  std::unique_ptr<corbd::csi::FencingServer> server_;
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("calls of CSI-Addons fence, list and unfence networks") {
  Fencing served;
  REQUIRE(served.fence({"10.0.0.7/32", "10.0.1.0/24"}, {{"clusterID", "lab"}}).ok());
  CHECK(served.monitors.asked_as == "admin key");
  CHECK(served.monitors.lasting == std::chrono::seconds(157784760));
  CHECK(served.list() == Texts{"10.0.0.7/32", "10.0.1.0/24"});
  REQUIRE(served.unfence("10.0.0.7/32").ok());
  CHECK(served.list() == Texts{"10.0.1.0/24"});
}

TEST_CASE("a fence accepts a duration, and covers the agent's own address only with force") {
  Fencing served;
  REQUIRE(served.fence({"10.0.0.7/32"}, {{"clusterID", "lab"}, {"duration", "2h"}}).ok());
  CHECK(served.monitors.lasting == std::chrono::hours(2));
  CHECK(served.fence({"10.0.0.9/32"}, {{"clusterID", "lab"}}).error_code() == grpc::FAILED_PRECONDITION);
  CHECK(served.fence({"10.0.0.9/32"}, {{"clusterID", "lab"}, {"force", "true"}}).ok());
}

TEST_CASE("an incomplete or malformed fencing call is refused with an error that names the wrong part") {
  Fencing served;
  const auto refused = [&](std::vector<std::string> blocks, std::map<std::string, std::string> parameters,
                           grpc::StatusCode code, const std::string& part) {
    const auto status = served.fence(blocks, std::move(parameters));
    CHECK(status.error_code() == code);
    CHECK(status.error_message().find(part) != std::string::npos);
  };
  refused({}, {{"clusterID", "lab"}}, grpc::INVALID_ARGUMENT, "no block");
  refused({"10.0.0.7"}, {{"clusterID", "lab"}}, grpc::INVALID_ARGUMENT, "10.0.0.7/32");
  refused({"10.0.0.7/32"}, {}, grpc::INVALID_ARGUMENT, "clusterID");
  refused({"10.0.0.7/32"}, {{"clusterID", "x"}}, grpc::NOT_FOUND, "cluster x");
  refused({"10.0.0.7/32"}, {{"clusterID", "lab"}, {"duration", "soon"}}, grpc::INVALID_ARGUMENT, "soon");
  refused({"10.0.0.7/32"}, {{"clusterID", "lab"}, {"force", "yes"}}, grpc::INVALID_ARGUMENT, "force");
  CHECK(served.monitors.now.entries.empty());
}

TEST_CASE(
    "the answer to GetFenceClients is one client, with the cluster's fsid as its ID and the addresses of serving "
    "clients") {
  Fencing served;
  served.monitors.now.own.push_back("10.0.0.8:0/1");
  served.monitors.now.serving = {"10.0.0.8:0/1", "10.0.0.8:0/2"};
  ::fence::GetFenceClientsRequest request;
  Fencing::fill(request, {{"clusterID", "lab"}});
  ::fence::GetFenceClientsResponse response;
  grpc::ClientContext context;
  REQUIRE(::fence::FenceController::NewStub(served.channel)->GetFenceClients(&context, request, &response).ok());
  REQUIRE(response.clients_size() == 1);
  CHECK(response.clients(0).id() == "fsid");
  REQUIRE(response.clients(0).addresses_size() == 1);
  CHECK(response.clients(0).addresses(0).cidr() == "10.0.0.8/32");
}

TEST_CASE("the fencing server announces network fencing and the list of clients to fence") {
  Fencing served;
  const auto ask = [](const std::shared_ptr<grpc::Channel>& channel) {
    identity::GetCapabilitiesResponse response;
    grpc::ClientContext context;
    REQUIRE(identity::Identity::NewStub(channel)->GetCapabilities(&context, {}, &response).ok());
    std::map<int, bool> fences;
    for (const auto& one : response.capabilities())
      if (one.has_network_fence()) fences[one.network_fence().type()] = true;
    return fences;
  };
  using Fence = identity::Capability::NetworkFence;
  CHECK(ask(served.channel) == std::map<int, bool>{{Fence::NETWORK_FENCE, true}, {Fence::GET_CLIENTS_TO_FENCE, true}});
}
