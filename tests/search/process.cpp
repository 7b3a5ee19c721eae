#include "process.hpp"

namespace corbd::search {

void end_operation(Process& agent) {
  const Process was = agent;
  agent = Process();
  agent.alive = 1;
  agent.image = was.image;
  agent.client = was.client;
  agent.closing = was.closing;
  agent.lost = was.lost;
  agent.right = was.right;
  agent.took = was.took;
  agent.modified = was.modified;
  agent.seen = was.seen;
  agent.link = was.link;
  agent.connected = was.connected;
  agent.was_lost = was.was_lost;
  agent.access_lost = was.access_lost;
  agent.lockers = was.lockers;
  agent.late_lockers = was.late_lockers;
}

bool yields(const Node& node, Ref client) { return node.predecessor.alive && node.predecessor.client == client; }

void forget_image(Process& agent) {
  agent.image = Process::shut;
  agent.closing = agent.lost = agent.right = agent.connected = 0;
  agent.took = Process::in_time;
  agent.modified = agent.seen = 0;
  // ImageSteps::forget_facts
  agent.fenced = agent.header = agent.owned = agent.unused = 0;
  agent.header_version = agent.header_break_from = agent.version = agent.stamp = 0;
  agent.lock = agent.lock_call_late = 0;
  agent.owner = kNobody;
  agent.watchers = 0;
}

void forget_owner(Process& agent) {
  agent.owned = agent.lock = agent.lock_call_late = 0;
  agent.owner = kNobody;
  agent.version = agent.stamp = 0;
  agent.watchers = 0;
}

void forget_attachment(Process& agent) { agent.attachment = agent.uid = 0; }

void fail_operation(World& world, int node) {
  Process& agent = world.nodes[node].agent;
  end_operation(agent);
  if (!world.nodes[node].device.there && agent.image == Process::open) agent.op = Process::leave;
}

}  // namespace corbd::search
