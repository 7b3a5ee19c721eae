// How an agent gets the lock: its dead client's, a free one, or that of a client that it cuts off.
#include <algorithm>
#include <utility>

#include "cluster.hpp"
#include "moves.hpp"
#include "process.hpp"

namespace corbd::search {
namespace {

using Lock = image::Ownership::Lock;

/// Takes the lock that is free, or is its own already.
void take_lock(World& world, int node, bool in_time) {
  Node& of = world.nodes[node];
  Process& agent = of.agent;
  if (world.image.owner != agent.client) give_lock(world, agent.client);
  agent.seen = 0;
  agent.took = in_time ? Process::in_time : Process::unknown;
  if (in_time && !agent.lost) agent.late_lockers &= static_cast<Set>(~bit(agent.client));
  if (!in_time) forget_attachment(agent);
  agent.modified = agent.stamp;
  if (!of.record.device || !of.device.there) agent.modified = ++world.image.modified;
  if (!agent.lost) agent.right = 1;
  agent.phase = Process::deciding;
  forget_owner(agent);
}

}  // namespace

/// ImageSteps::lock, until the dead lock is broken.
void Moves::begin_lock(int node) {
  const Process& agent = now_->nodes[node].agent;
  if (static_cast<Lock>(agent.lock) != Lock::our_dead) return take(node);
  const bool broken = now_->image.owner == agent.owner && (agent.owner != agent.client || now_->image.kept);
  if (!broken) return fail_operation(add("the dead lock has changed", node).next, node);
  Move& move = add("its agent breaks its dead lock", node);
  give_lock(move.next, kNobody, agent.version);
  Process& next = move.next.nodes[node].agent;
  next.seen = move.next.image.version;
  next.phase = Process::taking;
}

/// ImageSteps::take_lock. The look at the header and the lock are one moment here, or the lock comes late.
void Moves::take(int node) {
  const Process& agent = now_->nodes[node].agent;
  const auto begin = [&](std::string_view what) -> World& {
    World& world = add(what, node).next;
    Process& next = world.nodes[node].agent;
    next.lockers |= bit(next.client);
    next.late_lockers |= bit(next.client);
    next.took = Process::unknown;
    return world;
  };
  const bool same =
      agent.seen == 0 || now_->image.version == agent.seen || setting_.faults.has(Fault::lock_skips_header);
  if (!same) {
    Process& next = begin("the header has changed since its agent looked").nodes[node].agent;
    next.phase = Process::deciding;
    forget_attachment(next);
    forget_owner(next);
    return;
  }
  const bool has = now_->image.owner == agent.client && !now_->image.kept;
  if (now_->image.owner != kNobody && !has) {
    World& world = begin("somebody else has the lock");
    world.nodes[node].agent.took = agent.took;
    return fail_operation(world, node);
  }
  take_lock(begin("its agent takes the lock"), node, true);
  const bool visited = setting_.faults.has(Fault::visit_beside_the_lock) && setting_.rescue && !has &&
                       now_->writes > 0 && now_->clients[kRescue].state == Client::none && now_->disturbances > 0;
  if (visited) {
    World& world = begin("a rescue host takes the lock, writes, and gives it back; then its agent takes the lock");
    --world.disturbances;
    --world.writes;
    give_lock(world, kRescue);
    world.clients[kRescue].writes = new_write(world);
    land(world, kRescue, setting_.faults);
    give_lock(world, kNobody);
    take_lock(world, node, true);
  }
  if (!setting_.late_locks || has || now_->disturbances == 0) return;
  World& world = begin("its agent calls for the lock, and the call hangs");
  --world.disturbances;
  all_.back().is_free = false;
  world.nodes[node].agent.phase = Process::hanging;
  world.clients[agent.client].asks = 1;
}

void Moves::hang(int node) {
  const Process& agent = now_->nodes[node].agent;
  fail_operation(add("its agent waits no longer for the lock", node).next, node);
  if (now_->clients[agent.client].asks || now_->nodes[node].cut || is_blocked(*now_, agent.client)) return;
  const bool has = now_->image.owner == agent.client && !now_->image.kept;
  if (has)
    take_lock(add("its agent hears that it has the lock", node).next, node, false);
  else
    fail_operation(add("its agent hears that it did not get the lock", node).next, node);
}

/// HolderSteps::evict
void Moves::evict(int node, const Answer& answer) {
  Move& move = add("its agent cuts off the clients that have the image", node);
  World& world = move.next;
  Process& agent = world.nodes[node].agent;
  bool one_is_back = false;
  for (Ref client = 1; client < kRefs; ++client)
    one_is_back |= (answer.evicts & bit(client)) != 0 && (agent.blocked & bit(client)) == 0 &&
                   (agent.watchers & bit(client)) == 0 && now_->clients[client].watches;
  agent.seen = now_->image.version;
  forget_owner(agent);
  if (one_is_back) return;
  for (Ref client = 1; client < kRefs; ++client)
    if ((answer.evicts & bit(client)) != 0 && !setting_.faults.has(Fault::eviction_blocks_nobody))
      block(world, client, Client::for_good);
  agent.holders = 0;
  agent.blocked = agent.tainted = 0;
  agent.evicted |= answer.evicts;
  const Ref owner = now_->image.owner;
  if (owner == kNobody || node_of(owner) == node || (agent.evicted & bit(owner)) == 0) return;
  agent.owner = owner;
  agent.phase = Process::breaking;
}

void Moves::break_evicted(int node) {
  Move& move = add("its agent breaks the lock of the client that it cut off", node);
  Process& agent = move.next.nodes[node].agent;
  if (move.next.image.owner == agent.owner) {
    give_lock(move.next, kNobody);
    agent.seen = move.next.image.version;
  }
  agent.owner = kNobody;
  agent.phase = Process::deciding;
}

}  // namespace corbd::search
