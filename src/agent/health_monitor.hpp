// The facts of the node's health that no room has: whoever the agent asks now and then, and what it finds.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "corbd/csi/registrar.hpp"
#include "corbd/device/served.hpp"
#include "corbd/keeper/keeper.hpp"
#include "corbd/kube/api.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/ops/cordon.hpp"
#include "corbd/ops/health.hpp"

namespace corbd::agent {

/// Control thread only; stop() before it is destroyed, if it was started.
class HealthMonitor {
 public:
  struct Needs {
    BlockingPool& files;
    BlockingPool& names;
    const std::string& state_dir;
    const std::string& endpoint;
    result<kube::Api*> api;  ///< failed_precondition: this node has none, and needs none
    const device::Served& devices;
    const keeper::Client* keeper;  ///< may be null: this agent has none
    int pod_file;                  ///< of handover::say_pod_lives(), for `corbd-probe`; -1: none
    const ops::Cordon& cordon;
    const std::optional<csi::Registrar>& registrar;
    const kube::OwnNode& node;
    std::function<ops::PortFacts()> metrics;  ///< asked from announce() on
  };
  HealthMonitor(executor control, Clock& clock, const Needs& needs);
  void start();
  task<> stop();
  /// As they were found at the last beat, or by whoever watches them: it asks nobody, since anybody may want them.
  ops::NodeFacts facts() const;
  std::optional<ops::KeeperFacts> keeper() const;
  /// Calls `tell` when people should hear of the node, until stop(). No volume keeps the node from being ready, so none
  /// is looked at. From now on this agent serves, and may be ready.
  void announce(std::function<void(const volume::Notice&)> tell);
  duration worst_lag() const { return lag_.worst(); }

 private:
  ops::Outsider api_server() const;
  void look_again();
  void beat();
  void note_pulse() const;

  Clock& clock_;
  const Needs needs_;
  ops::LoopLag lag_;
  ops::Writable state_dir_;
  ops::Watched system_bus_;
  std::optional<ops::Watched> api_server_;
  std::function<void(const volume::Notice&)> tell_;
  result<> csi_ = Error{errc::unavailable, "not asked yet"};  ///< what our own socket said at the last beat
  ops::Announcements announcements_;
  bool told_of_node_ = false;
  Clock::TimerId announces_ = 0, beats_ = 0;
};

}  // namespace corbd::agent
