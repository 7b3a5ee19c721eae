// Who needs healing, how many at once, and when again. Every volume with a record is tried until it answers or is proven not ours.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "corbd/core/async_lock.hpp"
#include "corbd/core/backoff.hpp"
#include "corbd/core/gate.hpp"
#include "corbd/volume/wish.hpp"

namespace corbd::heal {

struct Config {
  std::size_t at_once = 16;
  Backoff backoff{};                       ///< between two tries of one volume
  std::uint32_t random_seed = 1;           ///< of the jitter
};

/// Control thread only; stop() before it is destroyed.
class Healer {
 public:
  Healer(executor control, Clock& clock, volume::Volumes& volumes, Config config);
  ~Healer();

  /// Tries the volume until the planner says Done or that it is lost. No effect while it is being tried.
  void heal(const std::string& volume_id);
  /// Volumes that are still being tried.
  std::size_t pending() const;
  task<> stop();

 private:
  task<> run(std::string volume_id);
  double random();

  executor control_;
  Clock& clock_;
  volume::Volumes& volumes_;
  Config config_;
  Slots slots_;
  Gate gate_;
  CancelScope stopping_;
  std::set<std::string> pending_;
  std::uint64_t random_state_;
};

}  // namespace corbd::heal
