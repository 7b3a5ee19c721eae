// Facts of the node's health that belong to no room: asks for them now and then, and keeps the answers.
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
    result<kube::Api*> api;  ///< failed_precondition: this node has none and needs none
    const device::Served& devices;
    const keeper::Client* keeper;  ///< null: this agent has no keeper
    int pod_file;                  ///< from handover::say_pod_lives(), for `corbd-probe`; -1: none
    const ops::Cordon& cordon;
    const std::optional<csi::Registrar>& registrar;
    const kube::OwnNode& node;
    std::function<ops::PortFacts()> metrics;  ///< called from start_serving() on
  };
  HealthMonitor(executor control, Clock& clock, const Needs& needs);
  void start();
  task<> stop();
  /// Returns what the last beat or a watch found. It asks nobody, because anybody may call it often.
  ops::NodeFacts facts() const;
  std::optional<ops::KeeperFacts> keeper() const;
  /// Calls `tell` when people should hear of the node, until stop(). It looks at no volume, because no volume keeps the
  /// node from being ready. From now on this agent serves, and may be ready.
  void start_serving(std::function<void(const volume::Notice&)> tell);
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
  result<> csi_ = Error{errc::unavailable, "not asked yet"};  ///< our own socket's answer at the last beat
  ops::Announcements announcements_;
  bool told_of_node_ = false;
  Clock::TimerId announces_ = 0, beats_ = 0;
};

}  // namespace corbd::agent
