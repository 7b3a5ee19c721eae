#include "processes.hpp"

namespace corbd::sim {

Processes::Processes(test::World& first, test::World& second, Hooks hooks)
    : first_(first), second_(second), hooks_(std::move(hooks)), serving_(&first) {}

test::Handover& Processes::begin() {
  test::World& next = serving_ == &first_ ? second_ : first_;
  handovers_.push_back(std::make_unique<test::Handover>(*serving_, next));
  handover_ = handovers_.back().get();
  back_in_.reset();
  handover_->begin();
  return *handover_;
}

/// Ends in one of three ways: the next one serves, its predecessor goes on, or both are gone.
std::optional<Processes::End> Processes::look() {
  test::Handover& now = *handover_;
  const auto& before = now.before.agent;
  const auto& next = now.next.agent;
  if (before.running() && (now.before_ended || now.before.loop().crashed())) before_dies();
  if (next.running() && (now.next_ended || now.refused || now.next.loop().crashed())) next_dies();
  const bool goes_on = before.running() && !next.running() && now.refused;
  const bool handed_over = !before.running() && next.running() && now.next_serves;
  const bool both_gone = !before.running() && !next.running();
  if (!goes_on && !handed_over && !both_gone) return std::nullopt;
  now.before.trace(goes_on       ? "the predecessor goes on"
                   : handed_over ? "the next agent serves alone"
                                 : "both agents are gone");
  if (handed_over || (both_gone && now.next_has_lock())) serving_ = &now.next;
  handover_ = nullptr;
  return End{goes_on       ? How::goes_on
             : handed_over ? How::handed_over
                           : How::both_gone,
             back_in_, handed_over && now.next_calls_reserve()};
}

/// By itself or not. Its keeper starts it again if it died, and lets its links go if the next one has the lock.
void Processes::before_dies() {
  test::Handover& now = *handover_;
  now.before.trace("the predecessor ends");
  now.end(false);
  hooks_.before_ends();
  const bool comes_again = !now.before_ended && !now.lock_said && hooks_.comes_again();
  if (!comes_again || !now.before.agent.keeper) return now.before.agent.kill(true);
  if (!now.before.agent.die()) return;
  // It has the lock before the next one looks for that again.
  if (now.before.agent.try_to_start(true))
    now.refused = true;
  else
    now.before.agent.kill(true);
}

/// With the lock of the state directory it has a keeper's links, or some of them.
void Processes::next_dies() {
  test::Handover& now = *handover_;
  now.before.trace("the next agent ends");
  now.end(false);
  if (now.next_ended || !now.next_has_lock()) return now.next.agent.kill(true);
  back_in_ = now.next.agent.die();
}

void Processes::crash() {
  test::World* process = serving_;
  if (!process->agent.running() && handover_ != nullptr) process = &handover_->next;
  if (process->agent.running()) process->loop().crash();
}

void Processes::end() {
  if (handover_ == nullptr) return;
  for (test::World* process : {&handover_->before, &handover_->next})
    if (process->agent.running()) process->agent.kill(true);
  handover_ = nullptr;
}

}  // namespace corbd::sim
