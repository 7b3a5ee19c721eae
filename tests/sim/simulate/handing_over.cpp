// Two agents on the node: the next one begins beside the one that serves, and either may die.
#include <algorithm>

#include "node.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;

}  // namespace

void Node::hand_over() {
  test::World& next = serving_ == &world_ ? beside_ : world_;
  handovers_.push_back(std::make_unique<test::Handover>(*serving_, next));
  handover_ = handovers_.back().get();
  handover_->begin();
  const auto later = [this](duration in, std::function<void(test::Handover&)> happens) {
    loop_.outside_in(in, [this, of = handover_, happens = std::move(happens)] {
      if (handover_ == of && !faults_over_) happens(*of);
    });
  };
  // Mostly a hundredth of a second passes between two of its steps.
  const auto sometime = [this] { return one_in(3) ? any(3s) : any(150ms); };
  if (one_in(2))
    for (std::size_t i = 0; i < kubelets_.size(); ++i) application_hurries(i, loop_.clock.now() + 1s);
  if (one_in(4))
    later(sometime(), [](test::Handover& of) {
      if (of.before.agent.running()) of.before.loop().crash();
    });
  if (one_in(4))
    later(sometime(), [](test::Handover& of) {
      if (of.next.agent.running()) of.next.loop().crash();
    });
  for (int tools = 0; tools < 8; ++tools)
    if (one_in(2)) later(any(600ms), [this](test::Handover&) { tool_comes(); });
  if (one_in(6)) later(sometime(), [lost = one_in(2)](test::Handover& of) { of.end(lost); });
  if (one_in(4)) later(sometime(), [by = any(12s)](test::Handover& of) { of.late = by; });
  // A rollout that is undone. It is not drawn, so that it changes no other draw of a history.
  const auto now = static_cast<std::uint64_t>(loop_.clock.now().time_since_epoch() / 1ms) + handovers_.size();
  if (now % 4 == 0)
    later(Millis(now / 4 % 300), [](test::Handover& of) {
      if (of.next.agent.running() && !of.next_serves) of.tell_next_to_end();
    });
}

/// To an image that is on its way between the agents, if there is one.
void Node::tool_comes() {
  Fault fault{Fault::Kind::maintain, std::chrono::duration_cast<Millis>(loop_.clock.now().time_since_epoch()),
              Millis(any(3s) / 1ms), 0};
  for (; fault.what < history_.volumes.size(); ++fault.what) {
    const auto image = world_.cluster.images.find(history_.volumes[fault.what].image);
    if (image != world_.cluster.images.end() && image->second.lock_handle == test::FakeImage::kKept)
      return maintain(fault);
  }
}

/// Ends in one of three ways: the next one serves, the one before goes on, or both are gone.
void Node::look_at_handover() {
  test::Handover& now = *handover_;
  const auto& before = now.before.agent;
  const auto& next = now.next.agent;
  if (before.running() && (now.before_ended || now.before.loop().crashed())) before_dies();
  if (next.running() && (now.next_ended || now.refused || now.next.loop().crashed())) next_dies();
  const bool goes_on = before.running() && !next.running() && now.refused;
  const bool handed_over = !before.running() && next.running() && now.next_serves;
  const bool both_gone = !before.running() && !next.running();
  if (!goes_on && !handed_over && !both_gone) return;
  trace(goes_on ? "the agent before goes on" : handed_over ? "the next agent serves alone" : "both agents are gone");
  if (handed_over || (both_gone && now.next_has_lock())) serving_ = &now.next;
  handover_ = nullptr;
  if (both_gone && !down_for_) down_for_ = Millis(any(5s) / 1ms);
  // It serves until the one in reserve asks, which it calls.
  if (handed_over && now.next_calls_reserve()) hands_over_ = true;
  // Who lives may have been told to leave meanwhile.
  if (!both_gone && !leaves_well_) down_for_.reset();
}

/// By itself or not. Its keeper starts it again if it died, and lets its links go if the next one has the lock.
void Node::before_dies() {
  test::Handover& now = *handover_;
  trace("the agent before ends");
  now.end(false);
  for (auto& kubelet : kubelets_) kubelet.asking = false;
  overridden_.clear();
  const bool comes_again = !now.before_ended && !now.lock_said && one_in(2);
  if (!comes_again || !now.before.agent.keeper) return now.before.agent.kill(true);
  if (!now.before.agent.die()) return;
  // It has the lock before the next one looks for that again.
  now.before.agent.start(true);
  now.refused = true;
}

/// With the lock of the state folder it has a keeper's links, or some of them.
void Node::next_dies() {
  test::Handover& now = *handover_;
  trace("the next agent ends");
  now.end(false);
  if (now.next_ended || !now.next_has_lock()) return now.next.agent.kill(true);
  if (const auto by_keeper = now.next.agent.die()) down_for_ = std::chrono::ceil<Millis>(*by_keeper);
}

/// A blow strikes whoever is there.
void Node::crash() {
  test::World* process = serving_;
  if (!process->agent.running() && handover_ != nullptr) process = &handover_->next;
  if (process->agent.running()) process->loop().crash();
}

/// With the machine.
void Node::end_handover() {
  if (handover_ == nullptr) return;
  for (test::World* process : {&handover_->before, &handover_->next})
    if (process->agent.running()) process->agent.kill(true);
  handover_ = nullptr;
}

}  // namespace corbd::sim
