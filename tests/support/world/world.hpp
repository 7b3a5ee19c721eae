// A node and a cluster that obey the rules of the real ones, for running the whole control plane on a virtual clock.
// Each outside thing is a fake of its own; this wires them.
#pragma once

#include <string>
#include <vector>

#include "support/world/agent.hpp"
#include "support/world/calls.hpp"
#include "support/world/ceph_csi.hpp"
#include "support/world/cluster.hpp"
#include "support/world/disk.hpp"
#include "support/world/kernel.hpp"

namespace corbd::test {

class World {
 public:
  explicit World(Loop& loop) : loop_(loop) {}

  Cluster cluster{*this};
  Kernel kernel{*this};
  Disk disk{*this};
  CephCsi ceph_csi{*this};
  Calls calls{*this};
  plan::Attachment attachment;                    ///< what the orchestrator says of every volume
  std::map<std::string, plan::HolderNode> nodes;  ///< other nodes, by the address of their clients
  std::vector<std::pair<std::string, volume::Notice>> notices;
  Hazards* hazards = nullptr;
  std::vector<std::string> broken_rules;  ///< what must never happen, and did
  Agent agent{*this};                     ///< goes first

  void reboot();
  void broke(std::string rule);
  void trace(const std::string& event) {
    if (hazards != nullptr) hazards->trace(event);
  }
  Loop& loop() { return loop_; }
  /// Of a link, an open image, a mount.
  int new_serial() { return ++serials_; }
  /// What a write into a block puts there.
  std::uint64_t new_number() { return ++numbers_; }

 private:
  Loop& loop_;
  int serials_ = 0;
  std::uint64_t numbers_ = 0;
};

}  // namespace corbd::test
