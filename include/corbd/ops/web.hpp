// The agent's pages over HTTP: metrics, /healthz and /readyz. Anybody may ask for them, so each is made at most once a
// second, whoever asks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/ops/health.hpp"
#include "corbd/ops/metrics.hpp"

namespace corbd::ops {

struct WebConfig {
  std::string address;
  std::uint16_t port = 0;  ///< 0: no server
  std::string metrics_path = "/metrics";
};

/// The sources of the pages. Control thread, and quick.
struct WebSources {
  /// Everything except now, calls and process. It looks once at the node's devices.
  std::function<Snapshot()> snapshot;
  /// The health without the components of volumes, clusters and helpers: they hold nothing, and take time on the
  /// control thread that grows with the node, while anybody may ask for these pages.
  std::function<NodeHealth()> node;
};

/// Control thread only; stop() before it is destroyed.
class Web {
 public:
  /// `pool`: renders the metrics.
  Web(executor control, Clock& clock, BlockingPool& pool, WebConfig config, WebSources sources);
  ~Web();
  /// Never fails, because volumes are served without it. It tries a port that is taken again.
  void start();
  task<> stop(Until until);
  PortFacts port() const;
  /// What the server answers.
  task<http::Response> page(http::Request request);
  /// A CSI call ended.
  void ended(const rpc::Ended& call);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::ops
