// What happens beside an agent's steps: processes, networks, applications, other clients, the orchestrator.
#include <utility>

#include "cluster.hpp"
#include "moves.hpp"
#include "process.hpp"

namespace corbd::search {

Move& Moves::add(std::string_view what, int node) {
  Move& move = all_.emplace_back();
  move.next = *now_;
  move.what = what;
  move.node = node;
  return move;
}

Move* Moves::disturb(std::string_view what, int node) {
  if (now_->disturbances == 0) return nullptr;
  Move& move = add(what, node);
  --move.next.disturbances;
  move.is_free = false;
  return &move;
}

const std::vector<Move>& Moves::of(const World& world) {
  now_ = &world;
  all_.clear();
  const int nodes = setting_.second_node ? kNodes : 1;
  for (int node = 0; node < nodes; ++node) {
    agent_acts(node);
    operations_begin(node);
    processes(node);
    predecessor_acts(node);
    network(node);
    application(node);
  }
  for (Ref which = 1; which < kRefs; ++which) client(which);
  others();
  orchestrator();
  for (Move& move : all_) normalise(move.next);
  return all_;
}

/// Kubelet's calls, and the healer's.
void Moves::operations_begin(int node) {
  const Node& of = now_->nodes[node];
  const Process& agent = of.agent;
  if (!agent.alive || agent.op != Process::idle) return;
  if (of.predecessor.alive && of.device.link != Device::waits) return;
  const auto begin = [&](Move& move, Process::Op op) -> Process& {
    Process& next = move.next.nodes[node].agent;
    next.op = op;
    return next;
  };
  if (of.device.there && of.record.there) {
    Process would = agent;
    would.op = Process::heal;
    if (planner_.ask(node, of, would).kind != Answer::done) begin(add("its agent heals", node), Process::heal);
  }
  if (of.predecessor.alive) return;
  const bool here = now_->attachment.node == node + 1;
  if (of.record.staging != 2) {
    if (here)
      begin(add("kubelet stages", node), Process::stage);
    else if (Move* move = disturb("a late stage of kubelet begins", node))
      begin(*move, Process::stage);
  }
  if (of.record.there || of.stash.there) begin(add("kubelet unstages", node), Process::unstage);
  const Number uid = now_->attachment.uid;
  if (here && of.device.there && (of.record.uid != uid || of.record.signed_as != uid)) {
    Process would = agent;
    would.op = Process::attach;
    would.op_uid = uid;
    if (planner_.ask(node, of, would).kind != Answer::done)
      begin(add("its agent heard of its attachment, and notes it", node), Process::attach).op_uid = uid;
  }
}

void Moves::processes(int node) {
  const Node& of = now_->nodes[node];
  if (of.agent.alive) {
    const auto die = [&](std::string_view what, bool keeps) {
      Move* move = disturb(what, node);
      if (move == nullptr) return;
      Node& next = move->next.nodes[node];
      kill(move->next, next.agent);
      const bool had = next.device.link == Device::present || next.device.link == Device::waits;
      if (had) next.device.link = keeps ? Device::waits : Device::dead;
    };
    die("its agent dies", false);
    const bool serves = of.device.link == Device::present && of.agent.link == Process::serving;
    if (setting_.keeper && !of.predecessor.alive && (serves || of.device.link == Device::waits))
      die("its agent dies, and the keeper has its link", true);
    if (setting_.handover && of.agent.op == Process::idle && !of.predecessor.alive)
      if (Move* move = disturb("its next agent begins, and has its records", node)) {
        Node& next = move->next.nodes[node];
        next.predecessor = std::exchange(next.agent, Process());
        next.agent.alive = 1;
        if (next.device.link == Device::present) next.device.link = Device::old;
      }
  } else if (!of.predecessor.alive) {
    add("an agent starts", node).next.nodes[node].agent.alive = 1;
  }
  if (of.device.link == Device::waits)
    add("the link that waits ends after a minute", node).next.nodes[node].device.link = Device::dead;
  const auto learns = [&](Process Node::* which, std::string_view what) {
    const Process& agent = of.*which;
    if (!agent.alive || of.cut || !is_blocked(*now_, agent.client) || agent.lost) return;
    World& world = add(what, node).next;
    Process& next = world.nodes[node].*which;
    learn(world, node, next, setting_.faults);
    const bool called =
        next.phase == Process::taking || next.phase == Process::hanging || next.phase == Process::breaking;
    if (which == &Node::agent && called) fail_operation(world, node);
  };
  learns(&Node::agent, "its agent learns that its client is cut off");
  learns(&Node::predecessor, "its predecessor learns that its client is cut off");
}

/// As lifecycle::HandingOver and volume/release.cpp have it.
void Moves::predecessor_acts(int node) {
  const Node& of = now_->nodes[node];
  const Process& old = of.predecessor;
  if (!old.alive) return;
  const bool serves = old.link == Process::serving && old.image == Process::open && !old.lost && !of.cut &&
                      !is_blocked(*now_, old.client);
  const bool drained = old.client == kNobody || now_->clients[old.client].writes == 0;
  const auto change = [&](std::string_view what) -> World& { return add(what, node).next; };
  if (old.phase == Process::deciding && serves && drained && now_->image.owner == old.client) {
    World& world = change("its predecessor leaves the lock to the next agent");
    give_lock(world, old.client);
    world.image.kept = 1;
    world.image.lock_watcher = old.client;
    world.nodes[node].predecessor.phase = Process::kept_lock;
  }
  if (old.phase == Process::kept_lock && old.link == Process::serving) {
    Node& next = change("its predecessor gives its link to the next agent").nodes[node];
    next.predecessor.phase = Process::gave_link;
    if (!setting_.faults.has(Fault::both_agents_answer)) next.predecessor.link = Process::no_link;
    next.device.link = next.agent.alive ? Device::waits : Device::dead;
  }
  const bool reaches = !of.cut && !is_blocked(*now_, old.client);
  if (old.phase == Process::gave_link && old.image == Process::open && reaches && drained) {
    World& world = change("its predecessor closes the image");
    close(world, old.client);
    world.nodes[node].predecessor.image = Process::shut;
  }
  if (old.image == Process::shut && old.link == Process::no_link && reaches) {
    World& world = change("its predecessor has ended");
    if (old.client != kNobody) world.clients[old.client].state = Client::fenced;
    world.nodes[node].predecessor = Process();
  }
  // Whatever it could not give away is healed as after a crash.
  Move* dies = serves ? disturb("its predecessor dies", node) : &add("its predecessor ends as if it had crashed", node);
  if (dies == nullptr) return;
  Node& next = dies->next.nodes[node];
  kill(dies->next, next.predecessor);
  if (next.device.link == Device::old) next.device.link = Device::dead;
}

void Moves::network(int node) {
  const Node& of = now_->nodes[node];
  if (setting_.cuts && !of.cut)
    if (Move* move = disturb("it is cut off from the cluster", node)) move->next.nodes[node].cut = 1;
  if (of.cut) {
    World& world = add("it reaches the cluster again", node).next;
    Node& next = world.nodes[node];
    next.cut = 0;
    for (Ref client = first_of(node); client < first_of(node) + kSlots; ++client) {
      if (world.clients[client].state != Client::live || is_blocked(world, client)) continue;
      const auto has_it = [&](const Process& one) { return one.client == client && one.image == Process::open; };
      if (has_it(next.agent) || has_it(next.predecessor))
        world.clients[client].watches = 1;
      else
        close(world, client);
    }
  }
  if (setting_.taints && of.cut && !of.tainted)
    if (Move* move = disturb("somebody taints it as out of service", node)) move->next.nodes[node].tainted = 1;
  if (of.tainted && !of.cut) add("its taint is removed", node).next.nodes[node].tainted = 0;
}

void Moves::application(int node) {
  const Node& of = now_->nodes[node];
  if (of.device.mounted && of.device.pending == 0 && now_->writes > 0) {
    World& world = add("its application writes", node).next;
    --world.writes;
    world.nodes[node].device.pending = new_write(world);
  }
  if (of.device.pending == 0) return;
  const Process* server = server_of(of);
  // A predecessor that is planted to serve on.
  if (server == nullptr && of.predecessor.phase == Process::gave_link) server = &of.predecessor;
  if (server == nullptr || server->link != Process::serving) return;
  if (server->image == Process::tombstone)
    add("its application gets an I/O error", node).next.nodes[node].device.pending = 0;
  const bool drains = server->phase == Process::kept_lock;
  if (server->image != Process::open || of.cut || drains || now_->clients[server->client].writes != 0) return;
  add("its agent sends the write", node).next.clients[server->client].writes = of.device.pending;
}

/// An entry of an hour ends. By then nothing of its client is under way, and its agent has learnt of it
/// (Cluster::take_entries_away).
bool Moves::can_end(Ref entry) const {
  const Client& client = now_->clients[entry];
  const int node = node_of(entry);
  if (client.blocked == Client::no_entry || node < 0) return false;
  if (setting_.faults.has(Fault::entries_end_early)) return true;
  if (client.blocked == Client::for_good) return false;
  if (now_->nodes[node].cut || client.writes != 0 || client.asks) return false;
  const auto serves = [&](const Process& one) { return one.alive && one.client == entry && !one.lost; };
  return !serves(now_->nodes[node].agent) && !serves(now_->nodes[node].predecessor);
}

void Moves::client(Ref which) {
  const Client& client = now_->clients[which];
  const int node = node_of(which);
  if (client.writes != 0) {
    Move& move = add("a write arrives of a client", which);
    move.of_client = true;
    move.broken = land(move.next, which, setting_.faults);
  }
  if (client.asks) {
    World& world = add("a late call for the lock arrives of a client", which).next;
    all_.back().of_client = true;
    world.clients[which].asks = 0;
    if (!client.blocked && world.image.owner == kNobody) {
      give_lock(world, which);
      world.clients[which].locked_late = 1;
    }
  }
  const bool gone = client.state != Client::live || (node >= 0 && now_->nodes[node].cut);
  if (client.watches && gone) {
    add("the watch ends of a client", which).next.clients[which].watches = 0;
    all_.back().of_client = true;
  }
  const bool watches_lock = now_->image.lock_watcher == which;
  const bool taken = now_->image.owner != kNobody && now_->image.owner != which;
  if (watches_lock && (gone || taken)) {
    Image& image = add("the watch of the kept lock ends").next.image;
    image.lock_watcher = kNobody;
    if (taken) image.break_from = 0;
  }
  if (setting_.entries_end && can_end(which))
    if (Move* move = disturb("the blocklist forgets a client", which)) {
      move->of_client = true;
      move->next.clients[which].blocked = Client::no_entry;
    }
}

/// A tool of the cluster, and a rescue host: they take the lock wherever librbd lets them.
void Moves::others() {
  for (const Ref which : {kTool, kRescue}) {
    const bool writes = which == kRescue;
    if (!(writes ? setting_.rescue : setting_.tool)) continue;
    const Client& client = now_->clients[which];
    const auto come = [&](std::string_view what) {
      Move* move = disturb(what);
      if (move == nullptr) return;
      if (now_->image.owner != kNobody) block(move->next, now_->image.owner, Client::for_an_hour);
      give_lock(move->next, which);
      move->next.clients[which].state = Client::live;
      open(move->next, which);
    };
    if (client.state == Client::none && !owner_lives(*now_))
      come(writes ? "a rescue host opens the image, and takes its lock" : "a tool opens the image, and takes its lock");
    if (client.state == Client::none && owner_lives(*now_) && writes && setting_.by_force)
      come("an operator has the lock's owner cut off for a rescue host, which takes the lock");
    if (client.state != Client::live) continue;
    if (client.blocked) {
      add(writes ? "the rescue host learns that it is cut off" : "the tool learns that it is cut off")
          .next.clients[which]
          .state = Client::dead;
      continue;
    }
    if (client.writes == 0) {
      World& world = add(writes ? "the rescue host leaves" : "the tool leaves").next;
      close(world, which);
      world.clients[which] = Client();
    }
    if (writes && client.writes == 0 && now_->writes > 0) {
      World& world = add("the rescue host writes").next;
      --world.writes;
      world.clients[which].writes = new_write(world);
    }
    if (Move* move = disturb(writes ? "the rescue host dies" : "the tool dies"))
      move->next.clients[which].state = Client::dead;
  }
}

void Moves::orchestrator() {
  if (!setting_.moves) return;
  const Attachment& now = now_->attachment;
  const auto attach = [&](std::string_view what, int node) {
    if (Move* move = disturb(what)) move->next.attachment = {static_cast<std::uint8_t>(node), Number(now.uid + 1)};
  };
  if (setting_.second_node) attach("the volume is attached to the other node", now.node == 1 ? 2 : 1);
  attach("the volume's attachment is made again", now.node);
}

}  // namespace corbd::search
