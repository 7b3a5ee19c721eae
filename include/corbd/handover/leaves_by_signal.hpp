// Ends a process that waits for its turn, when it is told to. It holds nothing, so it can end at once.
#pragma once

#include <unistd.h>

#include <array>
#include <csignal>

namespace corbd::handover {

/// Installs handlers. The first process of a PID namespace gets only signals that it handles.
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
