#include "corbd/plan/holder.hpp"

#include <algorithm>

#include "adopt.hpp"
#include "holders.hpp"
#include "proof.hpp"

namespace corbd::plan {
namespace {

using NodeState = HolderNode::State;

std::string state_text(const HolderNode& node) {
  const std::string since = node.since.empty() ? "" : " since " + node.since;
  switch (node.state) {
    case NodeState::ready:
      return "ready" + since;
    case NodeState::not_ready:
      return "not ready" + since;
    case NodeState::out_of_service:
      return "tainted out-of-service";
    case NodeState::gone:
      return "no such node any more";
    case NodeState::unknown:
      break;
  }
  return node.why.empty() ? "its state is not known" : "its state is not known: " + node.why;
}

std::string what_it_has(const Holder& holder) {
  if (holder.watches) return holder.locks ? "has it open and locked" : "has it open";
  return holder.locks ? "has its lock" : "had it";
}

/// Says what a person can do about the holders.
std::string remedy(const Situation& view, const std::vector<Holder>& holders) {
  const bool lockless = !view.seen.exclusive_lock;
  const auto& who = *view.seen.facts.ownership;
  bool dead = false, ready = false, unknown = false;
  for (const auto& holder : holders) {
    if (holder.blocked) continue;
    dead |= is_proven_dead(holder);
    ready |= holder.node.state == NodeState::ready;
    unknown |= holder.node.name.empty();
  }
  const std::string by_hand = "`corbd take " + view.id + "` shows what it would cut off";
  if (!who.writer.empty() && !who.writer_signed && !watches(who, who.writer))
    return "its writer's mark is not signed with the Ceph key that this volume has here, so nobody is cut off for it: "
           "if that client is dead, " +
           by_hand;
  if (ready) return "end its pods there; if that node does not answer all the same, " + by_hand;
  if (dead && lockless)
    return "the image has no exclusive-lock feature, so it is not taken over by itself: fence the node, or " + by_hand;
  if (dead && !view.policy.fence_out_of_service)
    return "the agent takes it over by itself with --fence-out-of-service; by hand, " + by_hand;
  if (dead) return "it is taken over when the volume is attached to this node";
  if (unknown) return "wait until that client is gone; if it is dead, " + by_hand;
  return "if that node is off for good, taint it with node.kubernetes.io/out-of-service, or fence it; " + by_hand;
}

bool may_take(const Situation& view, const Holder& holder) {
  if (holder.blocked) return true;
  // If only its lock or its mark is left, Ceph has dropped its watch, 30 s after its last sign of life. The last read
  // of the image decides: what is known of the holder may be older, and its watch be back. Anybody who may write the
  // image can write a mark with any address.
  const auto& who = *view.seen.facts.ownership;
  const bool left_lock = who.lock == image::Ownership::Lock::other && who.owner == holder.address;
  const bool left_mark = who.writer == holder.address && who.writer_signed;
  if ((left_lock || left_mark) && !watches(who, holder.address)) return true;
  const auto& attachment = view.seen.facts.attachment;
  // This very node lives, whatever the API server says about it.
  if (image::host_of(holder.address) == image::host_of(view.seen.client)) return false;
  return view.policy.fence_out_of_service && view.seen.exclusive_lock && is_proven_dead(holder) && attachment &&
         attachment->state == Attachment::State::here;
}

Decision in_use(const Situation& view, const std::vector<Holder>& holders) {
  std::string who;
  for (const auto& holder : holders) who += (who.empty() ? "" : "; ") + text(holder) + " " + what_it_has(holder);
  std::string waited;
  if (view.seen.in_use_for)
    waited = "It has waited for " +
             std::to_string(std::chrono::duration_cast<std::chrono::seconds>(*view.seen.in_use_for).count()) + " s: ";
  return refuse(errc::in_use, image_of(view) + " is in use: " + who + ". " + waited + remedy(view, holders));
}

}  // namespace

std::string_view name(NodeState state) {
  switch (state) {
    case NodeState::ready:
      return "ready";
    case NodeState::not_ready:
      return "not-ready";
    case NodeState::out_of_service:
      return "out-of-service";
    case NodeState::gone:
      return "gone";
    case NodeState::unknown:
      break;
  }
  return "unknown";
}

std::string text(const Holder& holder) {
  std::string said = (holder.client.empty() ? "the client" : holder.client) + " at " + holder.address;
  std::string known;
  const auto add = [&](const std::string& more) { known += (known.empty() ? "" : ", ") + more; };
  if (holder.blocked) add("fenced");
  if (holder.node.name.empty()) {
    add(holder.node.why.empty() ? "of no known node" : "of no known node: " + holder.node.why);
  } else {
    said += " on node " + holder.node.name;
    add(state_text(holder.node));
    if (holder.node.attached)
      add(*holder.node.attached ? "the volume is attached there" +
                                      (holder.node.attached_since.empty() ? "" : " since " + holder.node.attached_since)
                                : "the volume is not attached there");
  }
  return said + " (" + known + ")";
}

bool is_proven_dead(const Holder& holder) {
  return holder.node.state == NodeState::out_of_service ||
         (holder.node.state == NodeState::gone && holder.node.attached == false);
}

std::optional<Decision> take_left_lock(const Situation& view) {
  const auto& facts = view.seen.facts;
  const auto& who = *facts.ownership;
  if (who.lock != image::Ownership::Lock::other || watches(who, who.owner)) return std::nullopt;
  if (!facts.holders) return look(Fact::holders);
  const auto owner = std::ranges::find(*facts.holders, who.owner, &Holder::address);
  if (owner == facts.holders->end()) return std::nullopt;
  return step::Evict{{*owner}};
}

std::optional<Decision> wait_for_writers(const Situation& view) {
  const auto& facts = view.seen.facts;
  if (facts.ownership->foreign_watchers.empty()) return std::nullopt;
  if (!facts.holders) return look(Fact::holders);
  const auto may_write = [&](const std::string& watcher) {
    const auto holder = std::ranges::find(*facts.holders, watcher, &Holder::address);
    return holder == facts.holders->end() || !holder->blocked;
  };
  if (std::ranges::none_of(facts.ownership->foreign_watchers, may_write)) return std::nullopt;
  return in_use(view, *facts.holders);
}

std::optional<Decision> take_from_holders(const Situation& view) {
  const auto& facts = view.seen.facts;
  const auto& who = *facts.ownership;
  std::vector<std::string> left;
  const auto add = [&](const std::string& address) {
    if (std::ranges::find(left, address) == left.end()) left.push_back(address);
  };
  for (const auto& watcher : who.foreign_watchers)
    if (!facts.evicted.contains(watcher)) add(watcher);
  // A writer that ended cleanly removed its mark.
  if (!who.writer.empty() && !facts.evicted.contains(who.writer)) add(who.writer);
  // librbd, or the kernel, would break its lock, and cut it off for an hour only.
  if (who.lock == image::Ownership::Lock::other) add(who.owner);
  if (left.empty()) return std::nullopt;
  if (!facts.holders) return look(Fact::holders);
  const auto& holders = *facts.holders;
  const auto dead = [](const Holder& holder) { return !holder.blocked && is_proven_dead(holder); };
  if (view.policy.fence_out_of_service && std::ranges::any_of(holders, dead) && !facts.attachment)
    return look(Fact::attachment);
  // Evict only those that have it open now, and not those that left since the look.
  step::Evict evict;
  for (const auto& address : left) {
    const auto holder = std::ranges::find(holders, address, &Holder::address);
    if (holder == holders.end() || !may_take(view, *holder)) return in_use(view, holders);
    evict.holders.push_back(*holder);
  }
  return evict;
}

}  // namespace corbd::plan
