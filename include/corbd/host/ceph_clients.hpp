// Ceph clients of this node in other processes.
#pragma once

#include <string>
#include <vector>

namespace corbd::host {

/// The traces of Ceph clients that a search found.
struct CephClients {
  std::vector<std::string> programs;  ///< "rbd-nbd, process 4711"
  std::vector<std::string> unsent;    ///< sockets without an owner and with data to send: "10.0.0.7:1 to 10.0.0.1:2"
  bool cephfs = false;                ///< the kernel has one mounted, in any namespace
  std::vector<std::string> unseen;    ///< things that could not be examined, and why
};

/// Examines <root>/proc and <root>/sys; `root` is empty for this host. `own`: the process that does not count. It needs
/// the host's PID namespace and no capability. Ceph's daemons that are nobody's client do not count.
CephClients find_ceph_clients(const std::string& root, int own);

}  // namespace corbd::host
