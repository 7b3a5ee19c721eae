#include "corbd/ops/admin.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "corbd/core/log.hpp"
#include "corbd/rpc/server.hpp"
#include "corbd/rpc/utf8.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "events.hpp"
#include "fencing.hpp"
#include "messages.hpp"

namespace corbd::ops {
namespace {

using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

constexpr std::size_t kKeptEvents = 1024;
constexpr std::size_t kPage = 256;
constexpr std::chrono::milliseconds kLongestWait{60000};

constexpr const char* kNobodyTold =
    "there is no record or no key of it here, and no API server was asked: the next NodeStageVolume makes it known "
    "(restart kubelet)";
constexpr const char* kLeftToKernel =
    "the kernel serves it; the next NodeStageVolume makes it known here (restart kubelet)";

rpc::Config rpc_config(const AdminConfig& config) {
  rpc::Config out;
  out.endpoint = "unix://" + std::filesystem::absolute(config.runtime_dir).string() + "/admin.sock";
  out.max_calls = config.max_calls;
  out.log_as = "admin.call";
  out.log_good = log::Level::debug;
  return out;
}

/// A scope that ends when the caller or the agent leaves.
class Either {
 public:
  Either(CancelScope& leaving, CancelScope& call) : both_(&leaving), call_(call) {
    if (call_.cancelled()) both_.cancel();
    hook_ = call_.on_cancel([this] { both_.cancel(); });
  }
  ~Either() { call_.forget(hook_); }
  Either(const Either&) = delete;
  Either& operator=(const Either&) = delete;
  CancelScope* scope() { return &both_; }

 private:
  CancelScope both_;
  CancelScope& call_;
  CancelScope::Hook hook_;
};

/// The service's methods, on the control thread. Requests and responses live until the call's end.
class Desk {
 public:
  Desk(executor control, Clock& clock, AdminSources sources, const AdminConfig& config)
      : clock_(clock),
        sources_(std::move(sources)),
        config_(config),
        started_(clock.now()),
        events_(std::move(control), clock, kKeptEvents),
        run_(static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(clock.wall().time_since_epoch()).count())) {}

  void changed(const volume::Change& change) { events_.push(change); }
  void leave() { leaving_.cancel(); }

  NodeFacts facts(const volume::Overview& seen) const {
    auto all = sources_.facts();
    tally(all, seen.volumes, sources_.healer.queue());
    for (const auto& one : sources_.stuck_helpers())
      all.hanging.push_back({one.what, one.pid, clock_.now() - one.since});
    for (const auto& device : unclaimed(seen)) ++all.unclaimed[device.kind];
    return all;
  }

  task<result<>> answer(const v1::CheckAliveRequest&, v1::CheckAliveResponse&, Until) { co_return result<>(); }

  task<result<>> answer(const v1::GetStatusRequest&, v1::GetStatusResponse& response, Until) {
    using namespace std::chrono;
    if (config_.describe != nullptr) config_.describe(*response.mutable_program());
    response.set_version(response.program().version());
    response.set_pid(::getpid());
    response.set_node_id(rpc::valid_utf8(config_.nodeid));
    response.set_pod(rpc::valid_utf8(config_.pod));
    response.set_uptime_ms(duration_cast<milliseconds>(clock_.now() - started_).count());
    const auto known = facts(sources_.volumes.overview());
    count(response, known);
    add_stuck(response, known.hanging);
    response.set_draining(known.cordoned.has_value());
    add_unclaimed(response, known);
    add_health(response, judge(known));
    co_return result<>();
  }

  task<result<>> answer(const v1::ListVolumesRequest&, v1::ListVolumesResponse& response, Until) {
    auto seen = sources_.volumes.overview();
    auto& all = seen.volumes;
    std::sort(all.begin(), all.end(),
              [](const auto& one, const auto& other) { return one.volume_id < other.volume_id; });
    for (const auto& status : all) *response.add_volumes() = to_message(status, sources_.healer.queue(), clock_.now());
    for (const auto& [path, user] : seen.kernel_users) {
      auto& entry = *response.add_kernel_devices();
      entry.set_device_path(path);
      entry.set_user(rpc::valid_utf8(user));
    }
    for (const auto& why : seen.not_read) response.add_not_read(rpc::valid_utf8(why));
    const auto left = sources_.left();
    for (const auto& device : unclaimed(seen)) {
      const auto why = left.find(device.volume_id);
      const bool by_kernel = !traits(device.kind).served;
      auto& entry = *response.add_unclaimed();
      entry.set_volume_id(rpc::valid_utf8(device.volume_id));
      entry.set_device(device.device);
      entry.set_device_path(device::path(device.device, device.kind));
      entry.set_by_kernel(by_kernel);
      entry.set_why(by_kernel ? kLeftToKernel : why == left.end() ? kNobodyTold : rpc::valid_utf8(why->second));
    }
    co_return result<>();
  }

  task<result<>> answer(const v1::ListActivityRequest&, v1::ListActivityResponse& response, Until) {
    using namespace std::chrono;
    sources_.volumes.count_used();
    auto all = sources_.volumes.status();
    std::sort(all.begin(), all.end(),
              [](const auto& one, const auto& other) { return one.volume_id < other.volume_id; });
    response.set_at_us(duration_cast<microseconds>(clock_.now().time_since_epoch()).count());
    response.set_started_at_ms(static_cast<std::int64_t>(run_ / 1000));
    for (const double bound : device::kLatencyBounds) response.add_latency_bounds_s(bound);
    for (const auto& status : all) *response.add_volumes() = activity_of(status, clock_.now());
    co_return result<>();
  }

  task<result<>> answer(const v1::GetVolumeRequest& request, v1::GetVolumeResponse& response, Until) {
    sources_.volumes.count_used();
    const auto status = sources_.volumes.status(request.id());
    if (!status) co_return unknown(request.id());
    *response.mutable_volume() = to_message(*status, sources_.healer.queue(), clock_.now());
    for (const auto& change : sources_.timeline(request.id())) *response.add_timeline() = to_message(change);
    co_return result<>();
  }

  /// Joins the healer's own try: both are wishes for this volume.
  task<result<>> answer(const v1::HealRequest& request, v1::HealResponse& response, Until until, std::string by) {
    const std::string& id = request.id();
    if (!id.empty() && !sources_.volumes.status(id)) co_return unknown(id);
    if (request.adopt() && id.empty())
      co_return Error{errc::invalid_argument, "only one volume at a time can be taken over from rbd-nbd: give its ID"};
    if (request.without_proof() || request.loss_accepted()) {
      response.add_volume_ids(id);
      auto done = co_await heal_on_word(request, std::move(by), until);
      response.set_loss_accepted(done && request.loss_accepted());
      co_return done;
    }
    log::info("admin.heal", {{"volume", id.empty() ? "every unserved volume" : id}, {"adopt", request.adopt()}});
    sources_.healer.retry_now(id);
    if (!id.empty()) {
      response.add_volume_ids(id);
      co_return co_await want(id, request.adopt() ? plan::Wish(plan::Adopted{}) : plan::Wish(plan::Healed{}), until);
    }
    for (const auto& status : sources_.volumes.status())
      if (status.unserved) response.add_volume_ids(rpc::valid_utf8(status.volume_id));
    co_return result<>();
  }

  task<result<>> answer(const v1::FailRequest& request, v1::FailResponse&, Until until) {
    const std::string& id = request.id();
    if (!sources_.volumes.status(id)) co_return unknown(id);
    log::warning("admin.fail",
                 {{"volume", id}, {"effect", "its device answers EIO to every request until the volume is unstaged"}});
    co_return co_await want(id, plan::Wish(plan::GivenUp{}), until);
  }

  task<result<>> answer(const v1::FsckRequest& request, v1::FsckResponse& response, Until) {
    if (request.id().empty() || request.token().empty())
      co_return Error{errc::invalid_argument, "a check needs the ID of a volume, and a token"};
    const auto told = sources_.volumes.check_by_hand(request.id(), request.token(), request.repair());
    if (!told) co_return told.error();
    response = to_message(*told);
    co_return result<>();
  }

  task<result<>> answer(const v1::DrainRequest& request, v1::DrainResponse& response, Until until) {
    const bool was_cordoned = sources_.facts().cordoned.has_value();
    if (auto done = co_await sources_.set_cordoned(!request.undo(), until); !done) co_return done.error();
    if (was_cordoned == request.undo()) log::warning("admin.cordon", {{"cordoned", !request.undo()}});
    for (const auto& status : sources_.volumes.status()) response.add_volume_ids(rpc::valid_utf8(status.volume_id));
    co_return result<>();
  }

  task<result<>> answer(const v1::SetLogLevelRequest& request, v1::SetLogLevelResponse&, Until) {
    const auto level = log::level_of(request.level());
    if (!level)
      co_return Error{errc::invalid_argument,
                      "there is no log level \"" + request.level() + "\": use debug, info, warning or error"};
    log::set_level(*level);
    log::write(std::max(*level, log::Level::warning), "admin.log_level", {{"new", request.level()}});
    co_return result<>();
  }

  /// The wait ends with its time, or when the caller or the agent leaves.
  task<result<>> answer(const v1::NextEventsRequest& request, v1::NextEventsResponse& response, Until until) {
    const bool follows = request.run() == run_;
    const std::uint64_t after = follows ? request.after() : 0;
    Either either(leaving_, *until.scope);
    const std::chrono::milliseconds wait{request.wait_ms()};
    until.scope = either.scope();
    co_await events_.beyond(after, until.at_most(clock_.now() + std::min(wait, kLongestWait)));
    const auto page = events_.read(after, kPage);
    response.set_run(run_);
    response.set_last(page.last);
    response.set_missed(follows ? page.missed : 0);
    response.set_leaving(leaving_.cancelled());
    for (const auto& change : page.changes) *response.add_events() = to_message(change);
    co_return result<>();
  }

 private:
  std::vector<volume::Unclaimed> unclaimed(const volume::Overview& seen) const {
    auto all = seen.unclaimed;
    std::ranges::copy(seen.left_to_kernel, std::back_inserter(all));
    std::erase_if(all, [&](const auto& device) { return of_another_driver(device, config_.driver); });
    return all;
  }

  static Error unknown(const std::string& id) {
    return {errc::not_found,
            "volume " + id + " has no record on this node: `corbd volumes` lists the volumes that have one"};
  }

  /// An override is part of the wish and ends with it. No later try has it.
  task<result<>> heal_on_word(const v1::HealRequest& request, std::string by, Until until) {
    const std::string& id = request.id();
    const plan::Healed word{request.without_proof(), request.loss_accepted()};
    if (id.empty() || request.adopt() || (word.operator_override && word.loss_accepted))
      co_return Error{errc::invalid_argument,
                      "an operator override is for one volume that rbd-nbd does not serve: give that "
                      "volume's ID, and only one of without_proof, loss_accepted and adopt"};
    if (const auto status = sources_.volumes.status(id); word.loss_accepted && status && !status->cache_lost)
      co_return Error{errc::failed_precondition, "volume " + id + " has no lost cache: there is no loss to accept"};
    log::warning(word.loss_accepted ? "admin.heal_loss_accepted" : "admin.heal_without_proof",
                 {{"volume", id},
                  {"caller", by},
                  {"effect", word.loss_accepted
                                 ? "flushes succeed again, although writes that were acknowledged before may be lost"
                                 : "the waiting writes are written, unless another client or an attachment "
                                   "contradicts it"}});
    auto done = co_await want(id, plan::Wish(word), until);
    log::warning("volume.operator_override",
                 {{"volume", id}, {"caller", by}, {"error", done ? "" : done.error().text}});
    sources_.on_override(id, word, by, done);
    co_return done;
  }

  task<result<>> want(std::string id, plan::Wish wish, Until until) {
    Either either(leaving_, *until.scope);
    until.scope = either.scope();
    auto done = co_await sources_.volumes.want(std::move(id), std::move(wish), until);
    if (!done && leaving_.cancelled())
      co_return Error{errc::unavailable, "the agent is stopping: repeat when it is back"};
    co_return done;
  }

  Clock& clock_;
  const AdminSources sources_;
  const AdminConfig& config_;
  const time_point started_;
  CancelScope leaving_;
  Events events_;
  const std::uint64_t run_;
};

class Service final : public v1::Admin::CallbackService {
 public:
  Service(rpc::Server& server, Desk& desk) : server_(server), desk_(desk) {}

  Reactor* CheckAlive(Context* context, const v1::CheckAliveRequest* request,
                      v1::CheckAliveResponse* response) override {
    return serve(context, "CheckAlive", {}, *request, *response, rpc::Server::Bound::none);
  }
  Reactor* GetStatus(Context* context, const v1::GetStatusRequest* request, v1::GetStatusResponse* response) override {
    return serve(context, "GetStatus", {}, *request, *response);
  }
  Reactor* ListVolumes(Context* context, const v1::ListVolumesRequest* request,
                       v1::ListVolumesResponse* response) override {
    return serve(context, "ListVolumes", {}, *request, *response);
  }
  Reactor* ListActivity(Context* context, const v1::ListActivityRequest* request,
                        v1::ListActivityResponse* response) override {
    return serve(context, "ListActivity", {}, *request, *response);
  }
  Reactor* GetVolume(Context* context, const v1::GetVolumeRequest* request, v1::GetVolumeResponse* response) override {
    return serve(context, "GetVolume", request->id(), *request, *response);
  }
  Reactor* Heal(Context* context, const v1::HealRequest* request, v1::HealResponse* response) override {
    auto work = [this, request, response, by = rpc::peer_of(*context)](Until until) {
      return desk_.answer(*request, *response, until, by);
    };
    return server_.unary(context, "Heal", request->id(), work);
  }
  Reactor* Fail(Context* context, const v1::FailRequest* request, v1::FailResponse* response) override {
    return serve(context, "Fail", request->id(), *request, *response);
  }
  Reactor* Fsck(Context* context, const v1::FsckRequest* request, v1::FsckResponse* response) override {
    return serve(context, "Fsck", request->id(), *request, *response);
  }
  Reactor* Drain(Context* context, const v1::DrainRequest* request, v1::DrainResponse* response) override {
    return serve(context, "Drain", {}, *request, *response);
  }
  Reactor* SetLogLevel(Context* context, const v1::SetLogLevelRequest* request,
                       v1::SetLogLevelResponse* response) override {
    return serve(context, "SetLogLevel", {}, *request, *response);
  }
  Reactor* NextEvents(Context* context, const v1::NextEventsRequest* request,
                      v1::NextEventsResponse* response) override {
    return serve(context, "NextEvents", {}, *request, *response);
  }

 private:
  template <class Request, class Response>
  Reactor* serve(Context* context, const char* method, const std::string& subject, const Request& request,
                 Response& response, rpc::Server::Bound bound = rpc::Server::Bound::max_calls) {
    auto work = [this, &request, &response](Until until) { return desk_.answer(request, response, until); };
    return server_.unary(context, method, subject, work, bound);
  }

  rpc::Server& server_;
  Desk& desk_;
};

}  // namespace

class Admin::Impl {
 public:
  Impl(executor control, Clock& clock, AdminSources sources, AdminConfig config)
      : config_(std::move(config)),
        desk_(control, clock, sources, config_),
        server_(control, clock, rpc_config(config_)),
        service_(server_, desk_),
        fencing_(sources.fencer == nullptr ? nullptr : make_fencing(server_, sources.volumes, *sources.fencer)) {}
  result<> start() {
    std::vector<grpc::Service*> services{&service_};
    if (fencing_) services.push_back(fencing_.get());
    return server_.start(services);
  }
  NodeFacts facts(const volume::Overview& seen) const { return desk_.facts(seen); }
  void changed(const volume::Change& change) { desk_.changed(change); }
  task<> stop(Until until) {
    desk_.leave();
    co_await server_.stop(until);
  }

 private:
  const AdminConfig config_;
  Desk desk_;
  rpc::Server server_;
  Service service_;
  const std::unique_ptr<grpc::Service> fencing_;
};

Admin::Admin(executor control, Clock& clock, AdminSources sources, AdminConfig config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(sources), std::move(config))) {}
Admin::~Admin() = default;
result<> Admin::start() { return impl_->start(); }
NodeFacts Admin::facts(const volume::Overview& seen) const { return impl_->facts(seen); }
void Admin::changed(const volume::Change& change) { impl_->changed(change); }
task<> Admin::stop(Until until) { return impl_->stop(until); }

}  // namespace corbd::ops
