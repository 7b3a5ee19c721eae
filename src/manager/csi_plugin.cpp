#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

#include "corbd/manager/plugin.hpp"
#include "csi/v1/csi.grpc.pb.h"
#include "csi_requests.hpp"

namespace corbd::manager {
namespace {

namespace spec = ::csi::v1;

// With these a plugin that comes back is used soon, and not after gRPC's own two minutes.
constexpr int kReconnectFirstMs = 100, kReconnectMostMs = 1000;
// A plugin that is only slow to greet is not gone.
constexpr int kGreetingMs = 5000;

/// Calls that gRPC has not ended. gRPC's threads use it too, and it may outlive the plugin's object briefly.
class InFlight {
 public:
  void enter(grpc::ClientContext* context) {
    const std::lock_guard guard(mutex_);
    contexts_.insert(context);
  }
  void leave(grpc::ClientContext* context) {
    const std::lock_guard guard(mutex_);
    contexts_.erase(context);
    if (contexts_.empty()) none_.notify_all();
  }
  void cancel_and_wait() {
    std::unique_lock guard(mutex_);
    for (auto* context : contexts_) context->TryCancel();
    none_.wait(guard, [this] { return contexts_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::set<grpc::ClientContext*> contexts_;
};

template <class Request, class Response>
struct Flight {
  grpc::ClientContext context;
  Request request;
  Response response;
};

std::shared_ptr<grpc::Channel> channel_to(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kGreetingMs);  // gRPC's limit of one attempt
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMostMs);
  // Without this, a new channel would inherit an old one's backoff.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Some servers refuse gRPC's default for a unix socket, which is its path with percent signs.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

class CsiPlugin final : public Plugin {
 public:
  CsiPlugin(executor control, Clock& clock, std::string endpoint)
      : control_(std::move(control)),
        clock_(clock),
        endpoint_(std::move(endpoint)),
        channel_(channel_to(endpoint_)),
        identity_(spec::Identity::NewStub(channel_)),
        node_(spec::Node::NewStub(channel_)),
        in_flight_(std::make_shared<InFlight>()) {}
  ~CsiPlugin() override { in_flight_->cancel_and_wait(); }

  task<result<Info>> info(Until until) override {
    const auto said = co_await call<spec::GetPluginInfoResponse>(
        spec::GetPluginInfoRequest(), [this](auto... of) { identity_->async()->GetPluginInfo(of...); }, until);
    if (!said) co_return said.error();
    if (said->name().empty())
      co_return Error{errc::internal, "the plugin on " + endpoint_ + " has no name: it does not keep to CSI"};
    co_return Info{said->name(), said->vendor_version()};
  }
  task<result<bool>> probe(Until until) override {
    const auto said = co_await call<spec::ProbeResponse>(
        spec::ProbeRequest(), [this](auto... of) { identity_->async()->Probe(of...); }, until);
    if (!said) co_return said.error();
    // An absent value means ready (CSI, ProbeResponse).
    co_return !said->has_ready() || said->ready().value();
  }
  task<result<bool>> stages(Until until) override {
    const auto said = co_await call<spec::NodeGetCapabilitiesResponse>(
        spec::NodeGetCapabilitiesRequest(), [this](auto... of) { node_->async()->NodeGetCapabilities(of...); }, until);
    if (!said) co_return said.error();
    for (const auto& capability : said->capabilities())
      if (capability.rpc().type() == spec::NodeServiceCapability::RPC::STAGE_UNSTAGE_VOLUME) co_return true;
    co_return false;
  }
  task<result<>> stage(Mount mount, std::string staging, Until until) override {
    return tell<spec::NodeStageVolumeResponse>(
        stage_request(mount, staging), [this](auto... of) { node_->async()->NodeStageVolume(of...); }, until);
  }
  task<result<>> publish(Mount mount, std::string staging, Until until) override {
    return tell<spec::NodePublishVolumeResponse>(
        publish_request(mount, staging), [this](auto... of) { node_->async()->NodePublishVolume(of...); }, until);
  }
  task<result<>> unpublish(std::string external_id, std::string target, Until until) override {
    spec::NodeUnpublishVolumeRequest request;
    request.set_volume_id(external_id);
    request.set_target_path(target);
    return tell<spec::NodeUnpublishVolumeResponse>(
        std::move(request), [this](auto... of) { node_->async()->NodeUnpublishVolume(of...); }, until);
  }
  task<result<>> unstage(std::string external_id, std::string staging, Until until) override {
    spec::NodeUnstageVolumeRequest request;
    request.set_volume_id(external_id);
    request.set_staging_target_path(staging);
    return tell<spec::NodeUnstageVolumeResponse>(
        std::move(request), [this](auto... of) { node_->async()->NodeUnstageVolume(of...); }, until);
  }
  task<result<std::uint64_t>> expand(Claim claim, std::string staging, Until until) override {
    const auto said = co_await call<spec::NodeExpandVolumeResponse>(
        expand_request(claim, staging), [this](auto... of) { node_->async()->NodeExpandVolume(of...); }, until);
    if (!said) co_return said.error();
    co_return static_cast<std::uint64_t>(std::max<std::int64_t>(said->capacity_bytes(), 0));
  }
  task<result<>> stats(std::string external_id, std::string target, Until until) override {
    spec::NodeGetVolumeStatsRequest request;
    request.set_volume_id(external_id);
    request.set_volume_path(target);
    return tell<spec::NodeGetVolumeStatsResponse>(
        std::move(request), [this](auto... of) { node_->async()->NodeGetVolumeStats(of...); }, until);
  }

 private:
  /// Makes a call whose answer says only that it is done.
  template <class Response, class Request, class Begin>
  task<result<>> tell(Request request, Begin begin, Until until) {
    const auto said = co_await call<Response>(std::move(request), std::move(begin), until);
    if (!said) co_return said.error();
    co_return result<>();
  }

  template <class Response, class Request, class Begin>
  task<result<Response>> call(Request request, Begin begin, Until until) {
    auto flight = std::make_shared<Flight<Request, Response>>();
    flight->request = std::move(request);
    const auto left = until.deadline - clock_.now();
    if (until.deadline != time_point::max())
      flight->context.set_deadline(std::chrono::system_clock::now() +
                                   std::chrono::duration_cast<std::chrono::microseconds>(left));
    Promise<Response> promise(control_, clock_);
    const auto future = promise.future();
    in_flight_->enter(&flight->context);
    begin(&flight->context, &flight->request, &flight->response,
          std::function<void(grpc::Status)>([flight, promise, all = in_flight_](const grpc::Status& status) mutable {
            promise.set(status.ok() ? result<Response>(flight->response) : result<Response>(error_of(status)));
            // The context holds the channel. If it were the last holder, gRPC's thread would end its own queue.
            auto* const context = &flight->context;
            flight.reset();
            all->leave(context);
          }));
    auto answer = co_await future.get(until, "an answer of the plugin on " + endpoint_);
    if (!answer) flight->context.TryCancel();
    // A plugin that answers may return the same code, with a reason of its own.
    const bool lost = channel_->GetState(false) != GRPC_CHANNEL_READY;
    if (!answer && answer.error().code == errc::unavailable && lost)
      co_return Error{errc::unavailable, "no plugin answers on " + endpoint_ + ": " + answer.error().text};
    co_return answer;
  }

  executor control_;
  Clock& clock_;
  const std::string endpoint_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<spec::Identity::Stub> identity_;
  std::unique_ptr<spec::Node::Stub> node_;
  std::shared_ptr<InFlight> in_flight_;
};

}  // namespace

std::unique_ptr<Plugin> connect(executor control, Clock& clock, std::string endpoint) {
  return std::make_unique<CsiPlugin>(std::move(control), clock, std::move(endpoint));
}

}  // namespace corbd::manager
