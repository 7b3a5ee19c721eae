// Which Ceph clients earlier agents had, as their incarnation files say. Until that is known nobody knows whom to
// fence, so no image is opened.
#pragma once

#include <cstdint>
#include <optional>

#include "corbd/core/blocking_pool.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/rbd/clusters.hpp"
#include "incarnation.hpp"

namespace corbd::rbd {

/// Control thread only.
class EarlierAgents {
 public:
  /// What it reads goes into `incarnations`. `gate`: for everything under way. `config`: `beside` may change.
  EarlierAgents(executor control, Clock& clock, BlockingPool& files, Gate& gate, const Config& config,
                Incarnations& incarnations);
  /// When the agent starts, on this very thread. What cannot be read is read again.
  void read_at_start();
  /// `again`: what cannot be read is read again until it can be. The answer is that of the first try.
  task<result<>> read(bool again);
  /// Why their clients are not known. Nothing: they are.
  const std::optional<Error>& unknown() const { return unknown_; }
  /// The agent leaves: nothing is read again.
  void stop();

 private:
  task<result<>> read_once();
  void take_in(const LoadedIncarnations& loaded);
  void read_again_because_of(const Error& failed);
  task<> read_again();

  executor control_;
  Clock& clock_;
  BlockingPool& files_;
  Gate& gate_;
  const Config& config_;
  Incarnations& incarnations_;
  std::optional<Error> unknown_;
  bool reads_again_ = false;  ///< read_again() runs
  bool stopped_ = false;
  CancelScope pauses_;
};

}  // namespace corbd::rbd
