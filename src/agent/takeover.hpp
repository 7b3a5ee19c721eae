// Takes over from the serving agent, one device at a time, while that agent serves the others.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/device/served.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/image/image.hpp"
#include "corbd/lifecycle/lifecycle.hpp"
#include "corbd/rpc/inherited.hpp"
#include "corbd/volume/shell.hpp"

namespace corbd::agent {

/// Control thread only.
class Takeover {
 public:
  struct Parts {
    BlockingPool& files;
    std::string state_dir;
    volume::Shell& shell;
    device::Served& devices;
    image::Clusters& clusters;
  };

  /// `predecessor`: from handover::ask(); invalid: no agent serves.
  Takeover(executor control, Clock& clock, Fd predecessor, Parts parts);
  /// An error is the action's Done with its code.
  task<result<lifecycle::Event>> carry_out(lifecycle::TakingOverAction action);
  /// Closes the conversation, so that the predecessor sees the end of this agent.
  void leave();
  /// Returns the lock of the state directory, once this agent has it.
  Fd take_lock() { return std::move(lock_); }
  /// Keeps a socket on which the predecessor listened. `registered`: kubelet has registered the driver there.
  void inherit_listener(Fd socket, bool registered);
  /// Returns the sockets on which the predecessor listened, and whether kubelet has registered the driver there.
  rpc::Inherited& listeners() { return listeners_; }
  bool registered() const { return registered_; }

 private:
  void say(const handover::PeerMessage& peer_message);
  task<result<>> preopen(duration within);
  task<result<lifecycle::Event>> hear(lifecycle::TakingOverAction action);
  task<result<>> take_lock_and_records();
  task<result<>> lock_alone(duration pause);
  void take_link();
  task<> serve(handover::PeerMessage link);

  executor control_;
  Clock& clock_;
  Parts parts_;
  std::optional<handover::Conversation> predecessor_;
  std::vector<std::string> unopened_images_;
  handover::ReceivedMessage said_;  ///< the message received last
  Gate serving_;
  Fd lock_;
  rpc::Inherited listeners_;
  bool registered_ = false;
};

}  // namespace corbd::agent
