// The machine, and what must never happen.
#include "support/world/world.hpp"

namespace corbd::test {

void World::reboot() {
  if (agent.running()) agent.kill();
  trace("the machine boots");
  cluster.expire_watches({kernel.rbd_client()});
  disk.keys.clear();
  calls.end_helpers();
  kernel.boot();
}

void World::broke(std::string rule) {
  trace("BROKEN " + rule);
  broken_rules.push_back(std::move(rule));
}

}  // namespace corbd::test
