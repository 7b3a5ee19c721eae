// ceph-csi's own command line, so that its DaemonSet starts this agent unchanged (docs/sources.md#command-line).
#pragma once

#include <functional>

#include "flags.hpp"

namespace corbd::cli {

/// Facts about the node that the command needs.
struct Node {
  std::function<std::string(const char* name)> variable;     ///< reads the environment; empty: unset
  std::function<bool(const std::string& folder)> in_memory;  ///< whether the folder exists and is on tmpfs
};

/// Returns Run or Liveness. invalid_argument: the command line is wrong; unimplemented: it starts a part of ceph-csi
/// that this agent does not replace; failed_precondition: the node lacks something.
result<Command> cephcsi_command(const std::vector<Given>& given, const Node& node);

/// Takes main()'s arguments; prints help, version and errors itself.
Command parse_cephcsi(std::span<const std::string> arguments, const std::string& version);

}  // namespace corbd::cli
