// The last changes, numbered from 1. Callers ask for the changes after the last one that they know. No caller has state
// here, so a slow caller costs nothing: it learns how many it missed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "corbd/core/wait.hpp"
#include "corbd/volume/status.hpp"

namespace corbd::ops {

/// Control thread only.
class Events {
 public:
  struct Page {
    std::vector<volume::Change> changes;  ///< oldest first
    std::uint64_t missed = 0;             ///< changes after `after` that are not kept any more
    std::uint64_t last = 0;               ///< number of the last of `changes`; if it is empty, of the last pushed
  };
  Events(executor control, Clock& clock, std::size_t keep) : control_(std::move(control)), clock_(clock), keep_(keep) {
    renew();
  }

  void push(volume::Change change);
  /// Returns at most `limit` changes after number `after`.
  Page read(std::uint64_t after, std::size_t limit) const;
  /// Waits until there is a change with a number above `after`.
  task<Waited> beyond(std::uint64_t after, Until until);

 private:
  void renew() { arrived_ = std::make_shared<Event>(control_, clock_); }

  executor control_;
  Clock& clock_;
  std::size_t keep_;
  std::deque<volume::Change> kept_;
  std::uint64_t last_ = 0;
  std::shared_ptr<Event> arrived_;  ///< set by the next push
};

}  // namespace corbd::ops
