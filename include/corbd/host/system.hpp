// State of the machine as a whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::host {

/// Whether the system is going down: systemd's SystemState is "stopping", or logind delays a shutdown for programs that
/// asked for it (PreparingForShutdown). It asks over D-Bus and blocks for `patience` at most. Without a system bus it
/// returns unavailable.
result<bool> system_stopping(std::chrono::milliseconds patience);

/// PID_NS_INIT_INO of linux/nsfs.h: every kernel gives this number to the PID namespace it boots with.
inline constexpr std::string_view kHostPids = "pid:[4026531836]";
/// Returns this process's namespace, "pid:[4026531836]"; empty: it cannot be read.
std::string pid_namespace(const std::string& proc = "/proc");

/// Returns the effective capabilities, one bit each, of the process with this folder of /proc. Absent: they cannot be
/// read.
std::optional<std::uint64_t> capabilities_of(const std::string& process);

/// Returns why there is no systemd to ask, if that is certain: this process is in the host's PID namespace (the pod has
/// hostPID), and the host's init is another. A folder of systemd's would prove nothing, because a pod cannot see it in
/// either case.
std::optional<std::string> other_init(const std::string& proc = "/proc");

}  // namespace corbd::host
