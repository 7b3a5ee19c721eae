// Says a state and a move in words.
#include "search.hpp"

namespace corbd::search {
namespace {

std::string client_text(const World& world, Ref client) {
  if (client == kNobody) return "nobody";
  if (client == kTool) return "the tool";
  if (client == kRescue) return "the rescue host";
  const Client& of = world.clients[client];
  std::string said = "node " + std::to_string(node_of(client) + 1) + "'s client " + std::to_string(client);
  if (of.state == Client::dead) said += " (dead)";
  if (of.state == Client::fenced) said += of.blocked ? " (fenced)" : " (ended)";
  if (of.state == Client::live && of.blocked) said += " (cut off)";
  return said;
}

std::string node_text(const World& world, int node) {
  const Node& of = world.nodes[node];
  std::string said = "node " + std::to_string(node + 1) + ":";
  if (of.cut) said += " cut off,";
  if (!of.agent.alive) said += " no agent,";
  if (of.predecessor.alive) said += " a predecessor,";
  if (!of.record.there) said += " no record,";
  if (of.record.failed) said += " given up,";
  if (!of.device.there) return said + " no device";
  const char* links[] = {"a device without a server", "a served device", "a device that the predecessor serves",
                         "a device whose link waits"};
  said += std::string(" ") + links[of.device.link];
  if (of.device.pending != 0) said += " with write " + std::to_string(of.device.pending) + " in it";
  return said;
}

}  // namespace

std::string text(const Move& move) {
  if (move.node < 0) return std::string(move.what);
  if (move.of_client) return std::string(move.what) + ": " + client_text(move.next, static_cast<Ref>(move.node));
  return "node " + std::to_string(move.node + 1) + ": " + std::string(move.what);
}

std::string text(const World& world) {
  std::string said = "the lock has " + client_text(world, world.image.owner) + (world.image.kept ? " (kept)" : "");
  for (Ref client = 1; client < kRefs; ++client)
    if (world.clients[client].watches) said += ", " + client_text(world, client) + " watches";
  said += "; attached to node " + std::to_string(world.attachment.node);
  for (int node = 0; node < kNodes; ++node) said += "; " + node_text(world, node);
  return said;
}

}  // namespace corbd::search
