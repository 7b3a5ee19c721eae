// Takes over from the agent that serves: device by device, while that one serves the others.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/device/device.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/image/image.hpp"
#include "corbd/rpc/inherited.hpp"
#include "corbd/volume/shell.hpp"

namespace corbd::agent {

/// Control thread only.
class Takeover final : private handover::TakeoverSink {
 public:
  struct Parts {
    BlockingPool& files;
    std::string state_dir;
    volume::Shell& shell;
    device::Devices& devices;
    image::Clusters& clusters;
    duration starts_again_within{};  ///< the agent before, if it dies: its keeper does that
    std::function<void()> begins;    ///< called once the agent before will serve no longer than it must
  };

  Takeover(executor control, Clock& clock, Parts parts);
  /// Until the agent before holds nothing any more. Then this one has the lock and the records, and serves what it was
  /// given. `before`: as handover::ask() gave it.
  task<result<>> run(Fd before);
  /// The lock of the state folder.
  Fd take_lock() { return std::move(lock_); }
  /// The sockets on which the agent before listened, and whether kubelet has taken the driver there.
  rpc::Inherited& listeners() { return listeners_; }
  bool registered() const { return registered_; }

 private:
  void begin() override { parts_.begins(); }
  task<result<>> take_lock(Fd lock) override;
  void take_listener(Fd socket, bool registered) override;
  void take_link(device::LinkSocket link, std::function<void()> served) override;
  task<> serve(std::string volume_id, std::function<void()> served);
  task<result<>> lock_alone();

  executor control_;
  Clock& clock_;
  Parts parts_;
  Gate serving_;
  Fd lock_;
  rpc::Inherited listeners_;
  bool registered_ = false;
};

}  // namespace corbd::agent
