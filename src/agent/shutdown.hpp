// The end of an agent: it leaves its devices to the next start, or hands them to the next agent.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "corbd/agent/options.hpp"
#include "corbd/core/blocking_pool.hpp"
#include "corbd/csi/registrar.hpp"
#include "corbd/csi/server.hpp"
#include "corbd/device/served.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/heal/healer.hpp"
#include "corbd/image/image.hpp"
#include "corbd/lifecycle/lifecycle.hpp"
#include "corbd/ops/admin.hpp"
#include "corbd/ops/web.hpp"
#include "corbd/orchestrator/kubernetes.hpp"
#include "corbd/volume/shell.hpp"
#include "health_monitor.hpp"
#include "kept_listeners.hpp"

namespace corbd::agent {

inline constexpr std::chrono::milliseconds kLogEndsWithin{200};

/// Control thread only.
class Shutdown {
 public:
  struct Parts {
    const Options& options;
    BlockingPool& files;
    volume::Shell& shell;
    device::Served& devices;
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
    const Fd& lock;  ///< lock of the state directory
    KeptListeners& listeners;
  };
  Shutdown(executor control, Clock& clock, const Parts& parts);

  /// An error is the action's Done with its code.
  task<result<lifecycle::Event>> carry_out(lifecycle::HandingOverAction action);
  task<result<lifecycle::Event>> carry_out(lifecycle::LeavingAction action);

 private:
  task<> stop_new_work();
  task<> end_commands();
  void release_listeners();
  task<> await_callers(duration within);
  task<result<>> serve_on();
  task<> end_callers(duration calls_within);
  task<> unregister();
  task<> tell_successor();
  task<> note_reserve();
  result<> hand_over_listeners();
  task<result<>> hand_over_links();
  task<volume::Taken> hand_over(device::LinkSocket one);
  task<> stop_volumes(duration within);
  task<> close_clients();
  task<> hear_last_signals();

  executor control_;
  Clock& clock_;
  const Parts parts_;
  std::vector<Fd> callers_;  ///< sockets on which callers wait
  Fd registration_;          ///< kubelet's socket
  bool registered_ = false;
  Until until_;  ///< limit for everything else, set by stop_new_work()
  std::size_t links_ = 0;
  std::optional<Error> failure_;  ///< failure of a handover
};

}  // namespace corbd::agent
