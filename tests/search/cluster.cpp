#include "cluster.hpp"

#include <algorithm>
#include <utility>

namespace corbd::search {

Ref free_client(const World& world, int node) {
  for (Ref client = first_of(node); client < first_of(node) + kSlots; ++client)
    if (world.clients[client].state == Client::none) return client;
  return kNobody;
}

bool is_blocked(const World& world, Ref client) {
  return client != kNobody && world.clients[client].blocked != Client::no_entry;
}

bool owner_lives(const World& world) {
  const Image& image = world.image;
  if (image.owner == kNobody) return false;
  return image.kept ? image.lock_watcher == image.owner : world.clients[image.owner].watches != 0;
}

/// An agent adds its own entry when one ends that is shorter: here at once, as in the simulator.
void block(World& world, Ref client, Client::Entry entry) {
  world.clients[client].blocked = std::max(world.clients[client].blocked, std::uint8_t{entry});
  world.clients[client].watches = 0;
  if (world.image.lock_watcher == client) world.image.lock_watcher = kNobody;
}

void give_lock(World& world, Ref client, Number break_from) {
  Image& image = world.image;
  if (image.owner != kNobody) world.clients[image.owner].locked_late = 0;
  image.owner = client;
  image.kept = 0;
  ++image.version;
  image.break_from = break_from;
}

void open(World& world, Ref client) {
  world.clients[client].watches = 1;
  world.image.break_from = 0;
}

void close(World& world, Ref client) {
  world.clients[client].watches = 0;
  world.clients[client].asks = 0;
  if (is_blocked(world, client) || world.image.owner != client || world.image.kept) return;
  give_lock(world, kNobody);
}

void fence_dead(World& world, int node, Faults faults) {
  for (Ref client = first_of(node); client < first_of(node) + kSlots; ++client) {
    if (world.clients[client].state != Client::dead) continue;
    if (!faults.has(Fault::fence_blocks_nobody)) block(world, client, Client::for_good);
    world.clients[client].state = Client::fenced;
  }
}

const Process* server_of(const Node& node) {
  if (node.device.link == Device::present) return &node.agent;
  return node.device.link == Device::old ? &node.predecessor : nullptr;
}

Ref writer_of(const World& world, int node) {
  const Process* server = server_of(world.nodes[node]);
  const bool writes = server != nullptr && server->link == Process::serving && server->image == Process::open;
  return writes && !is_blocked(world, server->client) ? server->client : kNobody;
}

Number new_write(const World& world) {
  Number newest = std::max(world.image.value, world.image.acked);
  for (const Client& client : world.clients) newest = std::max(newest, client.writes);
  for (const Node& node : world.nodes) newest = std::max(newest, node.device.pending);
  return newest + 1;
}

const char* land(World& world, Ref client, Faults faults) {
  const Number number = std::exchange(world.clients[client].writes, Number{0});
  if (is_blocked(world, client)) return "";
  Image& image = world.image;
  const char* broken = "";
  if (image.owner != kNobody && image.owner != client) broken = "a write landed beside the owner of the lock";
  if (number < image.acked) broken = "an acknowledged write was overwritten by an older one";
  image.value = number;
  const int of = node_of(client);
  for (int node = 0; node < kNodes; ++node)
    if (node != of && world.nodes[node].device.mounted) world.nodes[node].device.stale = 1;
  if (client == kRescue && !faults.has(Fault::writes_leave_no_stamp)) ++image.modified;
  if (client == kRescue) image.acked = std::max(image.acked, number);
  if (of < 0) return broken;
  Node& node = world.nodes[of];
  const Process* server = server_of(node);
  const bool heard = server != nullptr && server->link == Process::serving && server->client == client && !node.cut;
  if (!heard || node.device.pending != number) return broken;
  node.device.pending = 0;
  image.acked = std::max(image.acked, number);
  return broken;
}

void learn(World& world, int node, Process& agent, Faults faults) {
  world.clients[agent.client].state = Client::dead;
  if (agent.image != Process::open) {
    agent.client = kNobody;
    return;
  }
  agent.lost = 1;
  if (faults.has(Fault::cut_off_client_serves)) return;
  agent.right = 0;
  if (agent.link != Process::serving) return;
  agent.link = Process::held;
  Device& device = world.nodes[node].device;
  if (server_of(world.nodes[node]) == &agent) device.link = Device::dead;
}

void kill(World& world, Process& agent) {
  if (agent.client != kNobody && world.clients[agent.client].state == Client::live)
    world.clients[agent.client].state = Client::dead;
  agent = Process();
}

}  // namespace corbd::search
