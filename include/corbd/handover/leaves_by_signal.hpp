// For a process that waits for its turn: it holds nothing, so it ends well when it is told to.
#pragma once

#include <unistd.h>

#include <array>
#include <csignal>

namespace corbd::handover {

/// A process that is the first of its PID namespace gets a signal only if it asks for it.
class LeavesBySignal {
 public:
  LeavesBySignal() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) before_.at(i) = ::signal(kSignals.at(i), [](int) { ::_exit(0); });
  }
  ~LeavesBySignal() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::signal(kSignals.at(i), before_.at(i));
  }
  LeavesBySignal(const LeavesBySignal&) = delete;
  LeavesBySignal& operator=(const LeavesBySignal&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals{SIGTERM, SIGINT};
  std::array<void (*)(int), kSignals.size()> before_{};
};

}  // namespace corbd::handover
