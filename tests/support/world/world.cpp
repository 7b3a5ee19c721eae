// The machine, and the rules that must never be broken.
#include "support/world/world.hpp"

#include <algorithm>

namespace corbd::test {

World::World(Loop& loop)
    : own_cluster_(std::make_unique<Cluster>(loop)),
      own_machine_(std::make_unique<Machine>(*this)),
      machine_(*own_machine_),
      cluster(*own_cluster_),
      calls(*this),
      agent(*this),
      loop_(loop) {
  cluster.joined(*this);
  kernel.processes.push_back(this);
}

World::World(Loop& loop, World& first, std::string called, const std::string& address)
    : own_machine_(std::make_unique<Machine>(*this)),
      machine_(*own_machine_),
      cluster(first.cluster),
      name(std::move(called)),
      calls(*this),
      agent(*this),
      loop_(loop) {
  agent.node_address = address;
  cluster.joined(*this);
  kernel.processes.push_back(this);
}

World::World(Loop& loop, World& first)
    : machine_(first.machine_),
      cluster(first.cluster),
      name(first.name),
      calls(*this, &first.calls),
      agent(*this, &first.agent),
      loop_(loop) {
  agent.node_address = first.agent.node_address;
  cluster.joined(*this);
  kernel.processes.push_back(this);
}

void World::reboot() {
  if (agent.running()) agent.kill();
  trace("the machine boots");
  cluster.expire_watches({kernel.rbd_client()});
  disk.keys.clear();
  calls.end_helpers();
  kernel.boot();
}

std::optional<time_point> World::lost_since(const std::string& image_id) const {
  const auto lost = cluster.lost_since(image_id, agent.node_address);
  return lost && moved_away ? std::min(lost, moved_away) : lost ? lost : moved_away;
}

void World::broke(std::string rule) {
  trace("BROKEN " + rule);
  broken_rules.push_back(std::move(rule));
}

}  // namespace corbd::test
