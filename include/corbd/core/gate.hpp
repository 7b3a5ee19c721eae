// Counts operations under way, so that the objects they use are destroyed after the last of them. Every coroutine that
// nobody awaits is spawned through a gate.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "corbd/core/wait.hpp"

namespace corbd {

/// Control thread only. Must be closed and empty before it is destroyed.
class Gate {
 public:
  Gate(executor control, Clock& clock) : control_(control), empty_(control, clock) {}
  ~Gate();

  /// Runs the task to its end on the control thread. Once the gate is closed it returns false and runs nothing. An
  /// exception that leaves the task is a defect and ends the process.
  bool spawn(task<void> work);
  /// Refuses new work. Ready when all work has ended.
  task<Waited> close(Until until);
  bool closed() const { return closed_; }
  std::size_t count() const { return count_; }

 private:
  class Pass;
  static task<void> run(Pass pass, task<void> work);
  void leave();
  executor control_;
  Event empty_;
  bool closed_ = false;
  std::size_t count_ = 0;
};

}  // namespace corbd
