// The startup taint: whoever makes this node puts `DRIVER/agent-not-ready` on it, so that no pod lands before its
// volumes can be mounted. The agent removes the taint, and never puts it on (docs/sources.md#startup-taint).
#pragma once

#include <string>

#include "corbd/core/gate.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/volume/volumes.hpp"

namespace corbd::orchestrator {

/// Returns the taint's key.
std::string startup_taint(const std::string& driver);

struct TaintView {
  bool registered = false;   ///< the node's CSINode lists the driver
  bool all_served = false;   ///< no volume of this node waits for a server
  duration since_started{};  ///< since the agent began to serve
};
/// Volumes that cannot be healed keep the taint on for this long after the agent began to serve.
inline constexpr std::chrono::seconds kTaintWaitsForVolumes{120};
/// Returns why the taint stays; empty: it goes.
std::string taint_stays_because(const TaintView& view);

/// Control thread only; stop() before it is destroyed.
class StartupTaint {
 public:
  struct Config {
    std::string driver, node;
    bool remove = false;
    std::chrono::seconds answer_within{10};
  };
  StartupTaint(executor control, Clock& clock, const result<kube::Api*>& api, const kube::OwnNode& own,
               const volume::Volumes& volumes, Config config);
  void start();
  /// The Node may have changed.
  void note_node();
  /// Returns why the node still has the taint; empty: it has none.
  const std::string& why() const { return why_; }
  task<> stop(Until until);

 private:
  static task<> run(StartupTaint& self);
  task<result<std::string>> try_to_remove();
  void tell(std::string why);
  bool is_there() const;
  bool all_served() const;

  executor control_;
  Clock& clock_;
  kube::Api* const api_;  ///< null: no API server
  const kube::OwnNode& own_;
  const volume::Volumes& volumes_;
  const Config config_;
  const std::string key_;
  time_point started_{};
  bool at_it_ = false;
  std::string why_;
  CancelScope stopping_;
  Gate gate_;
};

}  // namespace corbd::orchestrator
