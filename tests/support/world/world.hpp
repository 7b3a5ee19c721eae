// A node and a cluster that obey the rules of the real ones, for running the whole control plane on a virtual clock.
// Each outside part is a fake of its own; this joins them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/world/agent.hpp"
#include "support/world/calls.hpp"
#include "support/world/ceph_csi.hpp"
#include "support/world/cluster.hpp"
#include "support/world/disk.hpp"
#include "support/world/kernel.hpp"
#include "support/world/network.hpp"
#include "support/world/nodes.hpp"

namespace corbd::test {

class World {
 public:
  explicit World(Loop& loop);
  /// Makes a second node of the first one's cluster, whose loop stands beside that one's. Destroyed first.
  World(Loop& loop, World& first, std::string name, const std::string& address);
  /// Makes a second process of the first one's node, whose loop stands beside that one's. Destroyed first.
  World(Loop& loop, World& first);

 private:
  /// State that the processes of a node share.
  struct Machine {
    explicit Machine(World& world) : network(world), kernel(world), ceph_csi(world) {}
    Network network;
    Kernel kernel;
    Disk disk;
    CephCsi ceph_csi;
    plan::Attachment attachment;
    plan::StageSecret stage_secret;
    int secret_asked = 0;
    duration secret_takes{};
    std::optional<time_point> moved_away;
    FakeNodes nodes;
    std::string mkfs_beyond_oldest;
    std::vector<std::pair<std::string, volume::Notice>> notices;
    Hazards* hazards = nullptr;
    std::vector<std::string> broken_rules;
  };
  std::unique_ptr<Cluster> own_cluster_;
  std::unique_ptr<Machine> own_machine_;
  Machine& machine_;

 public:
  Cluster& cluster;
  const std::string name = "node-1";
  Network& network = machine_.network;
  Kernel& kernel = machine_.kernel;
  Disk& disk = machine_.disk;
  CephCsi& ceph_csi = machine_.ceph_csi;
  plan::Attachment& attachment = machine_.attachment;           ///< the orchestrator's answer about every volume
  std::chrono::seconds trim_every{0};                           ///< volume::Config::trim_every
  std::chrono::seconds secrets_every{300};                      ///< volume::Config::secrets_every
  plan::StageSecret& stage_secret = machine_.stage_secret;      ///< its answer about every volume's Secret
  int& secret_asked = machine_.secret_asked;                    ///< number of questions about that
  duration& secret_takes = machine_.secret_takes;               ///< time of that answer
  std::optional<time_point>& moved_away = machine_.moved_away;  ///< since when it says that they are attached elsewhere
  FakeNodes& nodes = machine_.nodes;                            ///< other nodes, as the orchestrator knows them
  std::string& mkfs_beyond_oldest = machine_.mkfs_beyond_oldest;  ///< output of a mkfs that is newer than the agent
  std::vector<std::pair<std::string, volume::Notice>>& notices = machine_.notices;
  Hazards*& hazards = machine_.hazards;
  std::vector<std::string>& broken_rules = machine_.broken_rules;  ///< rules that were broken
  Calls calls;
  Agent agent;  ///< destroyed first

  void reboot();
  void broke(std::string rule);
  void trace(const std::string& event) {
    if (hazards != nullptr) hazards->trace(event);
  }
  Loop& loop() const { return loop_; }
  /// Returns since when it is proven that the image is not this node's.
  std::optional<time_point> lost_since(const std::string& image_id) const;

 private:
  Loop& loop_;
};

}  // namespace corbd::test
