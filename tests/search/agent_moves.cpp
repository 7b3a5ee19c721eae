// What an agent does: plan decides, and each step has the effect that src/volume and the cluster give it.
#include "cluster.hpp"
#include "moves.hpp"
#include "process.hpp"

namespace corbd::search {
namespace {

using Lock = image::Ownership::Lock;
using namespace plan;

void note_outcome(const Node& node, Process& agent, const Answer& answer) {
  if (agent.was_lost && node.record.there && !answer.tells) return;
  agent.was_lost = answer.kind == Answer::refused && answer.code == errc::lost;
}

/// DeviceSteps::connect and reconfigure, up to the shared part.
void connect(Node& node) {
  node.device.link = Device::present;
  node.agent.connected = 1;
}

}  // namespace

void Moves::agent_acts(int node) {
  const Node& of = now_->nodes[node];
  const Process& agent = of.agent;
  if (!agent.alive || agent.op == Process::idle) return;
  if (setting_.aborts && agent.op != Process::leave)
    if (Move* move = disturb("a step of the agent fails", node)) fail_operation(move->next, node);
  const bool mute = of.cut || (is_blocked(*now_, agent.client) && !agent.lost);
  if (agent.op == Process::leave) {
    if (!mute) close_image(node, "its agent closes the image");
  } else if (agent.phase == Process::deciding) {
    decide(node);
  } else if (agent.phase == Process::hanging) {
    hang(node);
  } else if (mute) {
    return;
  } else if (agent.phase == Process::taking) {
    take(node);
  } else if (agent.phase == Process::breaking) {
    break_evicted(node);
  }
}

void Moves::decide(int node) {
  const Node& of = now_->nodes[node];
  const Answer& answer = planner_.ask(node, of, of.agent);
  if (answer.kind == Answer::step) {
    const bool asks_image = answer.asks_cluster && !(answer.is<step::Look>() && answer.fact == Fact::attachment);
    // A client that is cut off cannot even close: it learns of that first. One that knows it closes all the same.
    const bool mute = of.cut || (is_blocked(*now_, of.agent.client) && !of.agent.lost);
    // A volume that was given up waits for no cluster.
    const bool in_background = of.record.failed && (answer.is<step::CloseImage>() || answer.is<step::StopSession>());
    if (asks_image && mute && !in_background) return;
    return step(node, answer);
  }
  Move& move = add(answer.kind == Answer::refused ? "its agent refuses" : "its agent is done", node);
  Process& agent = move.next.nodes[node].agent;
  note_outcome(of, agent, answer);
  move.told = answer.kind == Answer::refused && answer.names_action;
  end_operation(agent);
  if (answer.kind == Answer::refused && answer.leaves) agent.op = Process::leave;
}

void Moves::step(int node, const Answer& answer) {
  const std::string_view what = step_names[answer.which];
  const Node& of = now_->nodes[node];
  if (answer.is<step::Look>()) return look(node, answer);
  if (answer.is<step::OpenImage>()) return open_image(node);
  if (answer.is<step::CloseImage>()) return close_image(node, what);
  if (answer.is<step::Lock>()) return begin_lock(node);
  if (answer.is<step::Evict>()) return evict(node, answer);
  // The operations of the NBD link have to end first; so has a write that an unmount waits for.
  const bool under_way = of.agent.client != kNobody && now_->clients[of.agent.client].writes != 0;
  if (answer.is<step::StopSession>() && under_way && !of.record.failed) return;
  if (answer.is<step::Umount>() && of.device.pending != 0) return;

  Move& move = add(what, node);
  World& world = move.next;
  Node& next = world.nodes[node];
  Process& agent = next.agent;
  if (answer.is<step::WriteRecord>()) {
    next.record = answer.record;
  } else if (answer.is<step::DropRecord>()) {
    next.record = Record();
  } else if (answer.is<step::Fence>()) {
    fence_dead(world, node, setting_.faults);
    agent.fenced = 1;
  } else if (answer.is<step::OpenTombstone>()) {
    agent.image = Process::tombstone;
  } else if (answer.is<step::StartSession>()) {
    agent.link = Process::serving;
    agent.connected = 0;
    if (next.device.link == Device::waits) next.device.link = Device::present;  // it goes on with that link
  } else if (answer.is<step::StopSession>()) {
    const bool broken = agent.link == Process::held;
    if (broken) agent.access_lost = 1;
    if (broken && agent.image == Process::open) agent.lost = 1;
    if (next.device.link == Device::present) next.device.link = Device::dead;
    agent.link = Process::no_link;
    agent.connected = 0;
    // The planner closes a broken image, or that of a volume that was given up, next. The real step does that itself.
  } else if (answer.is<step::KernelConnect>()) {
    next.device = Device();
    next.device.there = 1;
    connect(next);
  } else if (answer.is<step::KernelReconfigure>()) {
    connect(next);
    agent.access_lost = 0;
    agent.late_lockers = 0;
  } else if (answer.is<step::Disconnect>()) {
    if (next.device.pending != 0 && !next.record.failed) move.broken = "a device was disconnected with a write in it";
    next.device = Device();
    if (agent.link != Process::no_link) agent.link = Process::closed;
    agent.connected = 0;
  } else if (answer.is<step::Tune>()) {
    next.device.tuned = 1;
  } else if (answer.is<step::Mount>()) {
    next.device.mounted = 1;
  } else if (answer.is<step::Umount>()) {
    next.device.mounted = 0;
  } else if (answer.is<step::WriteStash>()) {
    next.stash = answer.stash;
  } else if (answer.is<step::DropStash>()) {
    next.stash = Stash();
  } else {
    move.broken = "the planner takes a step that the search does not know";
  }
}

void Moves::look(int node, const Answer& answer) {
  if (answer.fact == Fact::ownership) return look_at_owner(node);
  if (answer.fact == Fact::attachment) return look_at_attachment(node);
  Move& move = add("looks", node);
  Process& agent = move.next.nodes[node].agent;
  switch (answer.fact) {
    case Fact::header:
      move.what = "its agent looks at the header";
      agent.header = 1;
      agent.header_version = now_->image.version;
      agent.header_break_from = now_->image.break_from;
      break;
    case Fact::holders: {
      move.what = "its agent asks who holds the image";
      agent.holders = 1;
      const Set all = agent.watchers | (static_cast<Lock>(agent.lock) == Lock::other ? bit(agent.owner) : Set{0});
      for (Ref client = 1; client < kRefs; ++client) {
        if ((all & bit(client)) == 0) continue;
        if (is_blocked(*now_, client)) agent.blocked |= bit(client);
        if (node_of(client) >= 0 && now_->nodes[node_of(client)].tainted) agent.tainted |= bit(client);
      }
      break;
    }
    case Fact::unused:
      move.what = "its agent finds the device unused";
      agent.unused = 1;
      break;
    default:
      move.broken = "the planner asks for a fact that the search does not know";
  }
}

/// FakeOpened::ownership
void Moves::look_at_owner(int node) {
  const Node& of = now_->nodes[node];
  const Image& image = now_->image;
  const Ref self = of.agent.client;
  Set watchers = 0;
  for (Ref client = 1; client < kRefs; ++client)
    if (now_->clients[client].watches) watchers |= bit(client);
  const bool keeps = owner_lives(*now_) && image.kept;
  if (image.lock_watcher != kNobody && !(keeps && yields(of, image.lock_watcher))) watchers |= bit(image.lock_watcher);
  const bool owner_is_live = image.owner != self && node_of(image.owner) == node && !yields(of, image.owner) &&
                             now_->clients[image.owner].state == Client::live;
  if (owner_is_live || (of.predecessor.alive && (watchers & bit(of.predecessor.client)) != 0))
    return fail_operation(add("its predecessor still has the image open", node).next, node);

  Move& move = add("its agent looks at the owner", node);
  Process& agent = move.next.nodes[node].agent;
  agent.owned = 1;
  agent.owner = image.owner;
  agent.version = agent.seen = image.version;
  agent.stamp = image.modified;
  agent.watchers = static_cast<Set>(watchers & ~clients_of(node));
  Lock lock = Lock::none;
  if (image.owner == self && self != kNobody)
    lock = image.kept ? Lock::our_dead : Lock::mine;
  else if (node_of(image.owner) == node)
    lock = Lock::our_dead;
  else if (image.owner != kNobody)
    lock = Lock::other;
  if (setting_.faults.has(Fault::foreign_lock_is_own) && lock == Lock::other && agent.watchers == 0)
    lock = Lock::our_dead;
  agent.lock = static_cast<std::uint8_t>(lock);
  const bool by_call = lock == Lock::our_dead && of.record.there && of.record.lock_call == image.owner;
  if (!by_call) return;
  agent.lock_call_late = now_->clients[image.owner].locked_late;
  if (!setting_.late_locks || agent.lock_call_late) return;
  // The agent that asked died long ago, or a moment ago.
  const World later = move.next;
  add("its agent looks at the owner, more than 5 s after the call for the lock", node).next = later;
  all_.back().next.nodes[node].agent.lock_call_late = 1;
}

void Moves::look_at_attachment(int node) {
  using State = plan::Attachment::State;
  const auto say = [](State state) { return static_cast<std::uint8_t>(static_cast<int>(state) + 1); };
  if (setting_.api) {
    const bool here = now_->attachment.node == node + 1;
    Move& move = add(
        here ? "its agent hears that the volume is attached here" : "its agent hears that the volume is away", node);
    Process& agent = move.next.nodes[node].agent;
    agent.attachment = say(here ? State::here : State::away);
    if (here) agent.uid = now_->attachment.uid;
  }
  add("no API server answers its agent", node).next.nodes[node].agent.attachment = say(State::unknown);
}

void Moves::open_image(int node) {
  const Node& of = now_->nodes[node];
  const auto is_dead = [&](Ref client) {
    return (clients_of(node) & bit(client)) != 0 && now_->clients[client].state == Client::dead;
  };
  bool unfenced = false;
  for (Ref client = 1; client < kRefs; ++client) unfenced |= is_dead(client);
  if (unfenced) return fail_operation(add("a dead client of its agent is not fenced yet", node).next, node);
  Ref client = of.agent.client;
  if (client == kNobody) client = free_client(*now_, node);
  if (client == kNobody) {
    ++left_out_;
    return;
  }
  Move& move = add("open_image", node);
  Process& agent = move.next.nodes[node].agent;
  move.next.clients[client].state = Client::live;
  agent.client = client;
  agent.image = Process::open;
  forget_owner(agent);
  open(move.next, client);
}

void Moves::close_image(int node, std::string_view what) {
  Move& move = add(what, node);
  World& world = move.next;
  Process& agent = world.nodes[node].agent;
  const bool leaves = agent.op == Process::leave;
  if (agent.image == Process::open) {
    const bool reaches = !now_->nodes[node].cut;
    if (agent.lost && reaches) fence_dead(world, node, setting_.faults);
    if (reaches) close(world, agent.client);
    if (world.clients[agent.client].state != Client::live) agent.client = kNobody;
  }
  agent.link = leaves ? std::uint8_t{Process::no_link} : agent.link;
  forget_image(agent);
  if (leaves) end_operation(agent);
}

}  // namespace corbd::search
