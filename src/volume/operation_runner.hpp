// Carries out one wish for one volume, under the volume's lock: asks the planner for one step after another.
#pragma once

#include "shutdown.hpp"
#include "stalls.hpp"

namespace corbd::volume {

class OperationRunner {
 public:
  OperationRunner(executor control, Clock& clock, const Ports& ports, const Config& config, const VolumeMap& volumes,
                  Steps& steps, const HealthTracker& health, Stalls& stalls, const Shutdown& shutdown)
      : control_(std::move(control)),
        clock_(clock),
        ports_(ports),
        config_(config),
        volumes_(volumes),
        steps_(steps),
        health_(health),
        stalls_(stalls),
        shutdown_(shutdown) {}
  /// Pursues the wish. If it fails for good, its additions are undone, because the caller forgets the volume at a final
  /// code (I3, I6).
  task<result<>> fulfil(Volume& volume, Wish wish);
  /// Closes an image that was left open without a device by an operation that ended while the agent was leaving.
  /// Requires the volume's lock.
  task<> leave_cut_short(Volume& volume) { return leave_without_device(volume, Healed{}); }

 private:
  task<result<>> carry_out(Volume& volume, Wish wish);
  task<result<>> prepare(Volume& volume, const Wish& wish);
  task<result<>> pursue(Volume& volume, Wish wish);
  task<result<>> pursue_with_secret(Volume& volume, const Wish& wish);
  task<result<>> ask_secret(Volume& volume, const Wish& wish, Error refused);
  /// Writes the record again after a success that may not be on the disk.
  task<result<>> rewrite_record(Volume& volume, const Wish& wish);
  /// Drops a key that a stage may have left, after an unstage that had no record.
  task<result<>> drop_leftover_key(Volume& volume, const Wish& wish, bool had_record);
  task<result<>> run(Volume& volume, const Step& step, const Wish& wish);
  result<Observation> look(Volume& volume, const Wish& wish);
  task<> pause(Volume& volume);
  task<result<>> step_failed(Volume& volume, const Wish& wish, Step step, Error error);
  task<> leave_image(Volume& volume, const Wish& wish);
  task<> leave_without_device(Volume& volume, Wish wish);

  executor control_;
  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  const VolumeMap& volumes_;
  Steps& steps_;
  const HealthTracker& health_;
  Stalls& stalls_;
  const Shutdown& shutdown_;
};

/// Makes the error of an agent that is leaving, and begins nothing.
Error stopping();

}  // namespace corbd::volume
