// Two agents on the node: the next one begins beside the one that serves, and either may die.
#include <algorithm>

#include "node.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;

}  // namespace

void Node::hand_over() {
  test::Handover& begun = processes_.begin();
  ++handovers_;
  const auto schedule = [this, of = &begun](duration in, std::function<void(test::Handover&)> happens) {
    loop_.outside_in(in, [this, of, happens = std::move(happens)] {
      if (processes_.handover() == of && !faults_over_) happens(*of);
    });
  };
  // Mostly a hundredth of a second passes between two of its steps.
  const auto sometime = [this] { return one_in(3) ? any(3s) : any(150ms); };
  if (one_in(2))
    for (std::size_t i = 0; i < kubelets_.size(); ++i) application_hurries(i, loop_.clock.now() + 1s);
  if (one_in(4))
    schedule(sometime(), [](test::Handover& of) {
      if (of.before.agent.running()) of.before.loop().crash();
    });
  if (one_in(4))
    schedule(sometime(), [](test::Handover& of) {
      if (of.next.agent.running()) of.next.loop().crash();
    });
  for (int tools = 0; tools < 8; ++tools)
    if (one_in(2)) schedule(any(600ms), [this](test::Handover&) { tool_comes(); });
  if (one_in(6)) schedule(sometime(), [lost = one_in(2)](test::Handover& of) { of.end(lost); });
  if (one_in(4)) schedule(sometime(), [by = any(12s)](test::Handover& of) { of.late = by; });
  if (history_.meddled) {
    begun.next.agent.fence_out_of_service = one_in(2);
    if (one_in(4))
      schedule(sometime(), [this](test::Handover& of) {
        if (of.next.agent.running() && !of.next_serves && !of.next.agent.client().empty())
          world_.cluster.blocklist(of.next.agent.client());
      });
  }
  // A rollout that is undone. It is not drawn, so that it changes no other draw of a history.
  const auto now = static_cast<std::uint64_t>(loop_.clock.now().time_since_epoch() / 1ms) + handovers_;
  if (now % 4 == 0)
    schedule(Millis(now / 4 % 300), [](test::Handover& of) {
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

void Node::before_ends() {
  for (auto& kubelet : kubelets_) kubelet.asking = false;
  overridden_.clear();
}

void Node::look_at_handover() {
  const auto ended = processes_.look();
  if (!ended) return;
  const bool both_gone = ended->how == Processes::How::both_gone;
  if (ended->back_in) down_for_ = std::chrono::ceil<Millis>(*ended->back_in);
  if (both_gone && !down_for_) down_for_ = Millis(any(5s) / 1ms);
  // It serves until the one in reserve asks, which it calls.
  if (ended->calls_reserve) hands_over_ = true;
  // Who lives may have been told to leave meanwhile.
  if (!both_gone && !leaves_well_) down_for_.reset();
}

}  // namespace corbd::sim
