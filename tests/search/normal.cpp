// Forgets clients that nothing refers to any more, and renumbers what is only compared.
#include <algorithm>
#include <array>
#include <vector>

#include "moves.hpp"

namespace corbd::search {
namespace {

template <class Each>
void each_process(World& world, Each each) {
  for (Node& node : world.nodes) {
    each(node.agent);
    each(node.predecessor);
  }
}

/// Keeps the order of numbers, and makes them the smallest.
class Ranks {
 public:
  void see(Number number) { seen_[number] = number != 0; }
  void rank() {
    Number next = 0;
    for (std::size_t number = 1; number < seen_.size(); ++number)
      if (seen_[number]) to_[number] = ++next;
  }
  void change(Number& number) const { number = to_[number]; }

 private:
  std::array<bool, 256> seen_{};
  std::array<Number, 256> to_{};
};

template <class Fields>
void renumber(World& world, Fields fields) {
  Ranks ranks;
  fields(world, [&](Number& number) { ranks.see(number); });
  ranks.rank();
  fields(world, [&](Number& number) { ranks.change(number); });
}

void versions(World& world, auto&& on) {
  on(world.image.version);
  on(world.image.break_from);
  for (Node& node : world.nodes) {
    on(node.record.break_before);
    on(node.record.break_after);
  }
  each_process(world, [&](Process& agent) {
    on(agent.header_version);
    on(agent.header_break_from);
    on(agent.version);
    on(agent.seen);
  });
}

void stamps(World& world, auto&& on) {
  on(world.image.modified);
  for (Node& node : world.nodes) on(node.record.modified);
  each_process(world, [&](Process& agent) {
    on(agent.modified);
    on(agent.stamp);
  });
}

void uids(World& world, auto&& on) {
  on(world.attachment.uid);
  for (Node& node : world.nodes) {
    on(node.record.uid);
    on(node.record.signed_as);
    on(node.stash.uid);
  }
  each_process(world, [&](Process& agent) {
    on(agent.op_uid);
    on(agent.uid);
  });
}

void writes(World& world, auto&& on) {
  on(world.image.value);
  on(world.image.acked);
  for (Node& node : world.nodes) on(node.device.pending);
  for (Client& client : world.clients) on(client.writes);
}

void refs(World& world, auto&& on) {
  on(world.image.owner);
  on(world.image.lock_watcher);
  for (Node& node : world.nodes) on(node.record.lock_call);
  each_process(world, [&](Process& agent) {
    on(agent.client);
    on(agent.owner);
  });
}

void sets(Process& agent, auto&& on) {
  on(agent.lockers);
  on(agent.late_lockers);
  on(agent.watchers);
  on(agent.blocked);
  on(agent.tainted);
  on(agent.evicted);
}

/// A client that is gone, and of which nothing can come any more, has no name.
void forget_clients(World& world) {
  Set used = 0;
  refs(world, [&](Ref& client) { used |= bit(client); });
  each_process(world, [&](Process& agent) { used |= agent.watchers; });
  Set known = 0;
  for (Ref client = 1; client < kRefs; ++client) {
    Client& of = world.clients[client];
    const bool matters = of.state == Client::live || of.watches || of.asks || of.writes != 0;
    if (!matters && (used & bit(client)) == 0) of = Client();
  }
  for (Ref client = 1; client < kRefs; ++client)
    if (world.clients[client].state != Client::none) known |= bit(client);
  each_process(world, [&](Process& agent) { sets(agent, [&](Set& set) { set &= known; }); });
}

/// What tells a client of a node from its others.
std::uint64_t signature(World& world, Ref client) {
  const Client& of = world.clients[client];
  std::uint64_t sign = of.state;
  const auto also = [&](std::uint64_t value, int bits) { sign = (sign << bits) | value; };
  also(of.blocked, 2);
  also(of.watches, 1);
  also(of.asks, 1);
  also(of.locked_late, 1);
  also(of.writes, 4);
  refs(world, [&](Ref& ref) { also(ref == client, 1); });
  each_process(world, [&](Process& agent) { sets(agent, [&](Set& set) { also((set & bit(client)) != 0, 1); }); });
  return sign;
}

void order_clients(World& world, int node) {
  std::array<std::pair<std::uint64_t, Ref>, kSlots> order;
  for (int slot = 0; slot < kSlots; ++slot) {
    const Ref client = client_of(node, slot);
    order[slot] = {signature(world, client), client};
  }
  std::ranges::sort(order, [](const auto& one, const auto& other) { return one.first > other.first; });
  std::array<Ref, kRefs> to{};
  for (Ref client = 0; client < kRefs; ++client) to[client] = client;
  bool moved = false;
  for (int slot = 0; slot < kSlots; ++slot) {
    to[order[slot].second] = client_of(node, slot);
    moved |= order[slot].second != client_of(node, slot);
  }
  if (!moved) return;
  const auto before = world.clients;
  for (int slot = 0; slot < kSlots; ++slot) world.clients[client_of(node, slot)] = before[order[slot].second];
  refs(world, [&](Ref& ref) { ref = to[ref]; });
  each_process(world, [&](Process& agent) {
    sets(agent, [&](Set& set) {
      Set renamed = 0;
      for (Ref client = 1; client < kRefs; ++client)
        if ((set & bit(client)) != 0) renamed |= bit(to[client]);
      set = renamed;
    });
  });
}

}  // namespace

void normalise(World& world) {
  forget_clients(world);
  for (int node = 0; node < kNodes; ++node) order_clients(world, node);
  renumber(world, [](World& of, auto&& on) { versions(of, on); });
  renumber(world, [](World& of, auto&& on) { stamps(of, on); });
  renumber(world, [](World& of, auto&& on) { uids(of, on); });
  renumber(world, [](World& of, auto&& on) { writes(of, on); });
}

}  // namespace corbd::search
