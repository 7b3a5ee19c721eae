// The agent's pages over HTTP: metrics, /healthz and /readyz. Anybody may ask for them, so each page is made at most
// once a second.
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

/// Sources of the pages. Control thread, and quick.
struct WebSources {
  /// Returns everything except now, calls and process. It reads the node's devices once.
  std::function<Snapshot()> snapshot;
  /// Returns the health without the components of volumes, clusters and helpers. Those do not affect these pages, and
  /// take time on the control thread that grows with the node, while anybody may ask.
  std::function<NodeHealth()> node;
};

/// Control thread only; stop() before it is destroyed.
class Web {
 public:
  /// `pool`: renders the metrics.
  Web(executor control, Clock& clock, BlockingPool& pool, WebConfig config, WebSources sources);
  ~Web();
  /// Never fails, because volumes are served without it. If the port is taken, it is retried.
  void start();
  task<> stop(Until until);
  PortFacts port() const;
  /// Returns the server's answer.
  task<http::Response> page(http::Request request);
  /// Counts a CSI call that ended.
  void ended(const rpc::Ended& call);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::ops
