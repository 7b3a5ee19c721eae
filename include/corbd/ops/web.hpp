// The agent's pages over HTTP: metrics, /healthz and /readyz. Each is made on request.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  /// Everything except now, calls, health and process.
  std::function<Snapshot()> snapshot;
  std::function<NodeHealth()> health;
  /// The same without the components of volumes, clusters and helpers: they hold nothing, and take time on the control
  /// thread that grows with the node, while anybody may ask for these pages.
  std::function<NodeHealth()> node;
};

/// Control thread only; stop() before it is destroyed.
class Web {
 public:
  Web(executor control, Clock& clock, WebConfig config, WebSources sources);
  ~Web();
  /// Never fails, because volumes are served without it. It tries a port that is taken again.
  void start();
  task<> stop(Until until);
  /// What the server answers.
  http::Response page(const http::Request& request) const;
  /// A CSI call ended.
  void ended(const rpc::Ended& call);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corbd::ops
