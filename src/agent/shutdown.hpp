// How an agent ends: it leaves its devices to the next start, or hands them to the next agent.
#pragma once

#include <chrono>
#include <optional>

#include "corbd/agent/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/csi/registrar.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/device/device.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/image/image.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "corbd/volume/shell.hpp"
#include "health_monitor.hpp"

namespace corbd::agent {

inline constexpr std::chrono::milliseconds kLogEndsWithin{200};

/// Control thread only.
class Shutdown {
 public:
  struct Parts {
    const Options& options;
    BlockingPool& files;
    volume::Shell& shell;
    device::Devices& devices;
    image::Clusters& clusters;
    heal::Healer& healer;
    orchestrator::Kubernetes& kubernetes;
    kube::OwnNode& node;
    csi::Server& csi;
    std::optional<csi::Registrar>& registrar;
    ops::Admin& admin;
    ops::Web& web;
    HealthMonitor& health;
    handover::Giver& giver;
    const Fd& lock;           ///< of the state folder
    const bool& told_to_end;  ///< by a signal
  };
  Shutdown(executor control, Clock& clock, const Parts& parts);

  /// By a signal, or because the node goes down. Does not return.
  task<> leave();
  /// A planned restart: the next agent waits. Returns only if that one is lost before anything has ended here.
  task<> hand_over();
  bool hands_over() const { return hands_over_; }
  /// After a handover. kubelet would start its container again, with the same arguments.
  bool stays_in_reserve() const { return parts_.options.handover && !parts_.options.pod.empty(); }

 private:
  task<> end_commands();
  task<> begin_nothing();
  task<> end_callers(Until until, duration calls_within);
  task<volume::Taken> give(device::LinkSocket one);
  struct Listening {
    Fd socket;
    bool registered = false;
  };
  std::vector<Listening> release_listeners();
  task<> tell_successor();
  task<bool> ends_by_signal();
  task<> note_reserve();
  void go_into_reserve() const;

  executor control_;
  Clock& clock_;
  const Parts parts_;
  bool hands_over_ = false;
};

}  // namespace corbd::agent
