// What calls do to the shared image, by the rules of the simulator's cluster (tests/support/world/image.cpp and
// cluster.cpp). Each function takes effect at one moment.
#pragma once

#include <span>

#include "faults.hpp"
#include "state.hpp"

namespace corbd::search {

/// Returns a client number that nothing refers to any more; nobody: all of them may still matter.
Ref free_client(const World& world, int node);
bool is_blocked(const World& world, Ref client);
/// Whether librbd takes the lock's owner for alive.
bool owner_lives(const World& world);
void block(World& world, Ref client, Client::Entry entry);
/// Every change of the lock changes the header.
void give_lock(World& world, Ref client, Number break_from = 0);
void open(World& world, Ref client);
/// Releases the lock, unless the client is blocked or has left the lock to the next agent.
void close(World& world, Ref client);
/// Blocks the dead clients of a node.
void fence_dead(World& world, int node, Faults faults);

/// Whether a process of the node serves its device with a client that may write.
Ref writer_of(const World& world, int node);
/// The process that has the device's link; null: none.
const Process* server_of(const Node& node);

/// Lets the write that is under way take effect. Returns which rule that breaks; empty: none.
const char* land(World& world, Ref client, Faults faults);
/// Returns a number for a write that is newer than all others.
Number new_write(const World& world);

/// The agent learns that its client is blocked: it holds the link, and serves nobody by that client.
void learn(World& world, int node, Process& agent, Faults faults);
/// Ends a process at once.
void kill(World& world, Process& agent);

}  // namespace corbd::search
