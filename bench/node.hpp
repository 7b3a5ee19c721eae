// Any CSI driver's node service, as kubelet uses it: each call on a connection of its own, and one try each.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "corbd/manager/values.hpp"

namespace corbd::bench {

struct NodeAsk {
  std::string endpoint;                 ///< unix:///path/to.sock
  std::string root;                     ///< staging paths and targets are made below it, and removed
  std::vector<manager::Mount> volumes;  ///< read_volumes()
  int at_once = 8;                      ///< volumes under way together
  pid_t driver = 0;                     ///< whose cost counts, with that of its children; 0: who listens
  std::string words;                    ///< also processes whose command line has them cost, as daemons are no children
  std::string subject;                  ///< the driver's name in the figures; empty: what it says itself
  std::string bench = "node";           ///< whose figures these are
  std::string json;                     ///< where the figures go; empty: nowhere
  std::vector<std::string> command;     ///< runs while all are published; see below
  std::chrono::seconds settle{1};       ///< before a look at the cost
  std::chrono::seconds one_call{120};   ///< as kubelet has it
  std::chrono::seconds taking_down{60};  ///< for all tries of one volume
};

/// Stages and publishes all volumes, asks for their statistics, looks at the driver's cost, and takes all down again.
/// The command finds the targets in $CORBD_BENCH_TARGETS, one a line. A call that fails counts as failed, and in no
/// percentile. What was begun is taken down whatever happens, also after SIGINT and SIGTERM; a second one ends the
/// process at once. Returns 0; 1 if a call or the command failed or a volume is left; 130 after a signal.
int node(const NodeAsk& ask);

}  // namespace corbd::bench
