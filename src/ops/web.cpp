#include "corbd/ops/web.hpp"

#include <string_view>

#include "corbd/core/log.hpp"

namespace corbd::ops {
namespace {

/// A pod that leaves may hold the port a little longer.
constexpr std::chrono::seconds kBindAgain{10};

http::Config http_config(const WebConfig& config) {
  http::Config out;
  out.address = config.address;
  out.port = config.port;
  return out;
}

}  // namespace

class Web::Impl {
 public:
  Impl(executor control, Clock& clock, WebConfig config, WebSources sources)
      : control_(control),
        clock_(clock),
        config_(std::move(config)),
        sources_(std::move(sources)),
        gate_(control, clock),
        server_(control, clock, http_config(config_), [this](const http::Request& request) { return page(request); }) {}

  void start() {
    if (config_.port == 0) return;
    gate_.spawn(listen(*this));
  }

  task<> stop(Until until) {
    stopping_.cancel();
    co_await gate_.close({});
    co_await server_.stop(until);
  }

  http::Response page(const http::Request& request) const {
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    if (path == config_.metrics_path) return metrics();
    if (path == "/healthz") return healthz(sources_.node());
    if (path == "/readyz") return readyz(sources_.node());
    return {404, "text/plain; charset=utf-8",
            "this server has only " + config_.metrics_path + ", /healthz and /readyz\n"};
  }

  Calls calls;

 private:
  static task<> listen(Impl& self) {
    for (bool told = false; !self.stopping_.cancelled(); told = true) {
      const auto listens = self.server_.start();
      if (listens) {
        log::info("web.serves", {{"address", self.config_.address}, {"port", self.server_.port()}});
        co_return;
      }
      if (!told)
        log::error("web.refused", {{"code", name(listens.error().code)},
                                   {"error", listens.error().text},
                                   {"hint", "the agent keeps trying"}});
      co_await sleep_until(self.control_, self.clock_, self.clock_.now() + kBindAgain, &self.stopping_);
    }
  }

  http::Response metrics() const {
    Snapshot snapshot = sources_.snapshot();
    snapshot.now = clock_.now();
    snapshot.calls = &calls;
    snapshot.health = sources_.health();
    snapshot.process = read_process();
    return {200, kMetricsType, render(snapshot)};
  }

  executor control_;
  Clock& clock_;
  const WebConfig config_;
  const WebSources sources_;
  CancelScope stopping_;
  Gate gate_;
  http::Server server_;
};

Web::Web(executor control, Clock& clock, WebConfig config, WebSources sources)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(config), std::move(sources))) {}
Web::~Web() = default;
void Web::start() { impl_->start(); }
task<> Web::stop(Until until) { return impl_->stop(until); }
http::Response Web::page(const http::Request& request) const { return impl_->page(request); }
void Web::ended(const rpc::Ended& call) { impl_->calls.add(call); }

}  // namespace corbd::ops
