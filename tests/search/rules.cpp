// What must hold in each state, and where a volume is settled.
#include "cluster.hpp"
#include "moves.hpp"

namespace corbd::search {

const char* broken_rule(const World& world) {
  int writers = world.clients[kRescue].writes != 0 && !is_blocked(world, kRescue) ? 1 : 0;
  for (int node = 0; node < kNodes; ++node) {
    const Ref writer = writer_of(world, node);
    if (writer == kNobody) continue;
    ++writers;
    if (world.image.owner != writer) return "a server that may write does not hold the lock";
    if (world.nodes[node].device.stale) return "a device is served again above what another client wrote since";
  }
  return writers > 1 ? "two clients may write at once" : "";
}

bool is_settled(const World& world, int node) {
  const Node& of = world.nodes[node];
  if (!of.record.there && !of.device.there) return true;
  const Process* server = server_of(of);
  if (!of.device.there || server != &of.agent || server->link != Process::serving || !server->connected) return false;
  return of.record.failed ? server->image == Process::tombstone : writer_of(world, node) != kNobody;
}

}  // namespace corbd::search
