#include "corbd/ops/web.hpp"

#include <optional>
#include <string_view>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::ops {
namespace {

/// A pod that leaves may hold the port a little longer.
constexpr std::chrono::seconds kBindAgain{10};
/// Age from which a page is made again.
constexpr std::chrono::seconds kPageLives{1};
constexpr std::chrono::seconds kRenderWithin{10};

http::Config http_config(const WebConfig& config) {
  http::Config out;
  out.address = config.address;
  out.port = config.port;
  return out;
}

/// A page that all callers share.
struct Page {
  std::optional<http::Response> made;
  time_point at{};                ///< time when it was made
  std::shared_ptr<Event> making;  ///< set once the new one is made; null: nobody makes one
};

http::Response rendered(const Snapshot& snapshot) { return {200, kMetricsType, render(snapshot)}; }

}  // namespace

class Web::Impl {
 public:
  Impl(executor control, Clock& clock, BlockingPool& pool, WebConfig config, WebSources sources)
      : control_(control),
        clock_(clock),
        pool_(pool),
        config_(std::move(config)),
        sources_(std::move(sources)),
        gate_(control, clock),
        server_(control, clock, http_config(config_), [this](http::Request asked) { return page(*this, asked); }) {}

  void start() {
    if (config_.port == 0) return;
    gate_.spawn(listen(*this));
  }

  task<> stop(Until until) {
    stopping_.cancel();
    co_await gate_.close({});
    co_await server_.stop(until);
  }

  static task<http::Response> page(Impl& self, http::Request request) {
    const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
    if (path == self.config_.metrics_path) co_return co_await shared(self, self.metrics_, metrics);
    if (path == "/healthz") co_return co_await shared(self, self.health_, health);
    if (path == "/readyz") co_return co_await shared(self, self.readiness_, readiness);
    co_return http::Response{404, "text/plain; charset=utf-8",
                             "this server has only " + self.config_.metrics_path + ", /healthz and /readyz\n"};
  }

  PortFacts port() const { return refused_ ? PortFacts{refused_->why, clock_.now() - refused_->since} : PortFacts(); }

  Calls calls;

 private:
  struct Refused {
    std::string why;
    time_point since;
  };
  static task<> listen(Impl& self) {
    const auto began = self.clock_.now();
    for (bool told = false; !self.stopping_.cancelled(); told = true) {
      const auto listens = self.server_.start();
      self.refused_.reset();
      if (listens) {
        log::info("web.serves", {{"address", self.config_.address}, {"port", self.server_.port()}});
        co_return;
      }
      if (!told)
        log::error("web.refused", {{"code", name(listens.error().code)},
                                   {"error", listens.error().text},
                                   {"hint", "the agent keeps trying"}});
      self.refused_ = Refused{listens.error().text, began};
      co_await sleep_until(self.control_, self.clock_, self.clock_.now() + kBindAgain, &self.stopping_);
    }
  }

  /// Returns the page if it is young enough. Otherwise the first caller makes it, and the others wait.
  static task<http::Response> shared(Impl& self, Page& page, task<http::Response> (*make)(Impl& self)) {
    while (page.making) {
      const auto making = page.making;
      co_await making->wait({});
    }
    if (page.made && self.clock_.now() - page.at < kPageLives) co_return *page.made;
    page.making = std::make_shared<Event>(self.control_, self.clock_);
    page.made = co_await make(self);
    page.at = self.clock_.now();
    std::exchange(page.making, nullptr)->set();
    co_return *page.made;
  }

  static task<http::Response> metrics(Impl& self) {
    Snapshot snapshot = self.sources_.snapshot();
    snapshot.now = self.clock_.now();
    snapshot.calls = self.calls;
    auto job = [of = std::move(snapshot)]() mutable -> result<http::Response> {
      of.process = read_process();
      return rendered(of);
    };
    auto made = co_await self.pool_.run(std::move(job), {self.clock_.now() + kRenderWithin, &self.stopping_},
                                        "rendering the metrics");
    co_return made ? std::move(*made) : http::Response{503, "text/plain; charset=utf-8", made.error().text + "\n"};
  }
  static task<http::Response> health(Impl& self) { co_return healthz(self.sources_.node()); }
  static task<http::Response> readiness(Impl& self) { co_return readyz(self.sources_.node()); }

  executor control_;
  Clock& clock_;
  BlockingPool& pool_;
  const WebConfig config_;
  const WebSources sources_;
  Page metrics_, health_, readiness_;
  std::optional<Refused> refused_;
  CancelScope stopping_;
  Gate gate_;
  http::Server server_;
};

Web::Web(executor control, Clock& clock, BlockingPool& pool, WebConfig config, WebSources sources)
    : impl_(std::make_unique<Impl>(std::move(control), clock, pool, std::move(config), std::move(sources))) {}
Web::~Web() = default;
void Web::start() { impl_->start(); }
task<> Web::stop(Until until) { return impl_->stop(until); }
PortFacts Web::port() const { return impl_->port(); }
task<http::Response> Web::page(http::Request request) { return Impl::page(*impl_, std::move(request)); }
void Web::ended(const rpc::Ended& call) { impl_->calls.add(call); }

}  // namespace corbd::ops
