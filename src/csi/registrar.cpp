#include "corbd/csi/registrar.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <tuple>

#include "corbd/core/backoff.hpp"
#include "corbd/rpc/server.hpp"
#include "pluginregistration/registration.grpc.pb.h"
#include "registration.hpp"

namespace corbd::csi {
namespace {

constexpr std::string_view kScheme = "unix://";
constexpr std::chrono::seconds kLookEvery{60};

/// Answers on gRPC's thread, because kubelet waits only 1 s. It passes kubelet's words to the control thread.
class Service final : public pluginregistration::Registration::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Service(executor control, const RegistrarConfig& config, std::function<void()> asked,
          std::function<void(bool, const std::string&)> told)
      : control_(std::move(control)), config_(config), asked_(std::move(asked)), told_(std::move(told)) {}

  Reactor* GetInfo(Context* context, const pluginregistration::InfoRequest*,
                   pluginregistration::PluginInfo* info) override {
    info->set_type("CSIPlugin");
    info->set_name(config_.drivername);
    info->set_endpoint(config_.endpoint);
    info->add_supported_versions("1.0.0");
    asio::post(control_, asked_);
    return rpc::Server::answer(context, grpc::Status::OK);
  }
  Reactor* NotifyRegistrationStatus(Context* context, const pluginregistration::RegistrationStatus* status,
                                    pluginregistration::RegistrationStatusResponse*) override {
    asio::post(control_, [told = told_, registered = status->plugin_registered(), text = status->error()] {
      told(registered, text);
    });
    return rpc::Server::answer(context, grpc::Status::OK);
  }

 private:
  const executor control_;
  const RegistrarConfig& config_;
  const std::function<void()> asked_;
  const std::function<void(bool, const std::string&)> told_;
};

rpc::Config registrar_config(const std::string& path) {
  rpc::Config config;
  config.endpoint = std::string(kScheme) + path;
  return config;
}

}  // namespace

class Registrar::Impl {
 public:
  Impl(executor control, Clock& clock, RegistrarConfig config)
      : control_(control),
        clock_(clock),
        config_(std::move(config)),
        path_(config_.folder + "/" + config_.drivername + "-reg.sock"),
        gate_(control, clock) {}

  void start(rpc::Inherited& inherited, bool registered) {
    inherited_ = inherited.take(std::string(kScheme) + path_);
    if (inherited_ && registered) now_.state = Registered::State::registered;
    gate_.spawn(run(*this));
  }

  void on_socket(std::function<void(const std::string&, int, bool)> tell) { tell_ = std::move(tell); }

  Fd release() {
    if (!socket_ || !is_there()) return {};
    tell_(path_, -1, false);
    released_ = true;
    return socket_->server.release();
  }

  result<> adopt(Fd socket) {
    released_ = false;
    if (!socket_) return {};
    auto adopted = socket_->server.adopt(std::move(socket));
    tell_of_socket();
    return adopted;
  }

  task<> stop(Until until) {
    if (!released_) withdraw();
    stopping_.cancel();
    co_await gate_.close(until);
    if (socket_) co_await socket_->server.stop(until);
  }

  const Registered& now() const { return now_; }

 private:
  struct Socket {
    Socket(executor control, Clock& clock, const std::string& path, std::unique_ptr<Service> answers)
        : service(std::move(answers)), server(std::move(control), clock, registrar_config(path)) {}
    std::unique_ptr<Service> service;
    rpc::Server server;
    struct stat file{};
  };

  static task<> run(Impl& self) {
    while (!self.stopping_.cancelled()) {
      const bool goes_on = static_cast<bool>(self.inherited_);
      if (auto listening = self.listen(); !listening) {
        log::warning("kubelet.notify_failed", {{"error", listening.error().text}});
        const bool taken = listening.error().code == errc::in_use;
        self.now_ = {taken ? Registered::State::elsewhere : Registered::State::waits, listening.error().text};
        const auto pause = pause_after(++self.heard_.failures, uniform());
        co_await sleep_until(self.control_, self.clock_, self.clock_.now() + pause, &self.stopping_);
        continue;
      }
      // A refusal stands until kubelet says something else.
      if (!goes_on && self.now_.state != Registered::State::refused) self.now_ = {};
      // It may have registered the driver with the predecessor at the last moment, and then says no more.
      if (goes_on && self.now_.state != Registered::State::registered) self.heard_.asked = self.clock_.now();
      self.tell_of_socket();
      co_await self.serve();
      if (self.stopping_.cancelled()) co_return;
      self.tell_(self.path_, -1, false);
      self.withdraw();
      if (self.now_.state == Registered::State::registered) self.now_ = {};
      co_await self.socket_->server.stop({});
      self.socket_.reset();
    }
  }

  result<> listen() {
    auto service = std::make_unique<Service>(
        control_, config_, [this] { asked(); }, [this](bool yes, const std::string& text) { told(yes, text); });
    auto socket = std::make_unique<Socket>(control_, clock_, path_, std::move(service));
    heard_ = Heard{{}, {}, heard_.failures};
    if (auto started = socket->server.start({socket->service.get()}, std::move(inherited_)); !started) {
      auto error = started.error();
      if (error.code == errc::in_use)
        error.text += "; if node-driver-registrar runs beside this agent, start the agent with --register=false";
      return error;
    }
    ::lstat(path_.c_str(), &socket->file);
    socket_ = std::move(socket);
    return {};
  }

  /// Waits until the socket has to be recreated, or the agent stops.
  task<> serve() {
    const double jitter = uniform();
    while (!stopping_.cancelled()) {
      const auto now = clock_.now(), at = renewal(heard_, jitter);
      if (!is_there()) {
        log::warning("kubelet.socket_gone", {{"path", path_}});
        co_return;
      }
      if (at <= now) {
        if (!heard_.refused)
          log::warning("kubelet.silent",
                       {{"driver", config_.drivername},
                        {"hint", "kubelet asked but did not register the driver: kubelet's log says why"}});
        co_return;
      }
      news_.emplace(control_, clock_);
      co_await news_->wait({std::min(at, now + kLookEvery), &stopping_});
    }
  }

  void asked() {
    note_asked(heard_, clock_.now(), now_.state == Registered::State::registered);
    news();
  }

  void told(bool registered, const std::string& text) {
    heard_.asked.reset();
    heard_.refused.reset();
    if (registered) {
      heard_.failures = 0;
      now_ = {Registered::State::registered, {}};
      log::info("kubelet.registered", {{"driver", config_.drivername}, {"endpoint", config_.endpoint}});
    } else {
      heard_.refused = clock_.now();
      ++heard_.failures;
      now_ = {Registered::State::refused, text};
      log::error("kubelet.refused", {{"driver", config_.drivername}, {"endpoint", config_.endpoint}, {"error", text}});
    }
    if (socket_) tell_of_socket();
    news();
  }

  void tell_of_socket() const {
    if (!released_) tell_(path_, socket_->server.socket(), now_.state == Registered::State::registered);
  }

  void news() {
    if (news_) news_->set();
  }

  bool is_there() const {
    struct stat found{};
    if (::lstat(path_.c_str(), &found) != 0) return false;
    // An inode's number may be reused at once, but not with the same time.
    const auto identity = [](const struct stat& file) {
      return std::tuple(file.st_dev, file.st_ino, file.st_ctim.tv_sec, file.st_ctim.tv_nsec);
    };
    return identity(found) == identity(socket_->file);
  }

  /// Leave another program's socket at the path.
  void withdraw() const {
    if (socket_ && is_there()) ::unlink(path_.c_str());
  }

  executor control_;
  Clock& clock_;
  const RegistrarConfig config_;
  const std::string path_;
  std::unique_ptr<Socket> socket_;
  std::optional<Event> news_;
  Heard heard_;
  Registered now_;
  Fd inherited_;
  bool released_ = false;
  std::function<void(const std::string&, int, bool)> tell_ = [](const std::string&, int, bool) {};
  CancelScope stopping_;
  Gate gate_;
};

result<std::optional<RegistrarConfig>> registrar_config(const RegistrarWish& wish, bool registry_exists) {
  if (!wish.by_hand.value_or(registry_exists)) return std::optional<RegistrarConfig>();
  RegistrarConfig config{wish.kubelet_dir + "/plugins_registry", wish.drivername, wish.endpoint_on_host};
  if (!config.endpoint.empty() && !config.endpoint.starts_with('/'))
    return Error{errc::invalid_argument, "--kubelet-registration-path '" + config.endpoint +
                                             "' does not begin with /: give the path of the CSI socket on the host"};
  if (config.endpoint.empty() && wish.endpoint.starts_with(kScheme))
    config.endpoint = wish.endpoint.substr(kScheme.size());
  if (!wish.endpoint_on_host.empty() || config.endpoint.starts_with(wish.kubelet_dir + "/"))
    return std::optional(std::move(config));
  const Error unknown{errc::failed_precondition,
                      "this driver cannot be registered with kubelet: --endpoint " + wish.endpoint + " is not below " +
                          wish.kubelet_dir +
                          ". Give the socket's path on the host as --kubelet-registration-path, or --register=false"};
  if (wish.by_hand) return unknown;
  log::warning("kubelet.notify_failed", {{"error", unknown.text}});
  return std::optional<RegistrarConfig>();
}

Registrar::Registrar(executor control, Clock& clock, RegistrarConfig config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(config))) {}
Registrar::~Registrar() = default;
void Registrar::start(rpc::Inherited& inherited, bool registered) { impl_->start(inherited, registered); }
void Registrar::on_socket(std::function<void(const std::string&, int, bool)> tell) {
  impl_->on_socket(std::move(tell));
}
Fd Registrar::release() { return impl_->release(); }
result<> Registrar::adopt(Fd socket) { return impl_->adopt(std::move(socket)); }
task<> Registrar::stop(Until until) { return impl_->stop(until); }
const Registered& Registrar::now() const { return impl_->now(); }

}  // namespace corbd::csi
