// Two agents side by side on one node: the serving one hands its devices to the next one. Both are real shells, and the
// real lifecycle::next() decides their actions; the conversation between them is played (the real one: src/handover).
// An agent that has come to its end stays until somebody kills it.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/world/world.hpp"

namespace corbd::test {

class Handover {
 public:
  /// Begins the second process of a node beside the first one. Outlives both lives.
  Handover(World& before, World& next);
  bool accepts_refused = false;  ///< the next one has --accept-refused
  void begin();

  World& before;
  World& next;
  bool refused = false;       ///< the predecessor serves on, and the next one must end
  bool before_ended = false;  ///< the predecessor's process has ended
  bool next_ended = false;
  bool next_serves = false;  ///< it serves alone
  bool lock_said = false;
  /// Whether the next agent said that it serves that device.
  bool said_served(std::uint32_t device) const { return served_.contains(device); }
  bool next_has_lock() const { return next_life_.has_lock; }
  /// Sends SIGTERM to the next agent: a rollout is undone in the middle. Before anything began it ends, and its
  /// predecessor goes on. After that it takes what it is handed, and hands it back to an agent that asks.
  void tell_next_to_end();
  /// Lets the serving next agent, which was told to end, call the pod in reserve, its predecessor's.
  bool next_calls_reserve();
  /// Ends the conversation, as after the death of one agent. `lost`: messages under way are lost, too.
  void end(bool lost);
  /// Delay of messages sent from now on.
  duration late{};

 private:
  using PeerMessage = handover::PeerMessage;
  struct Way {
    std::deque<PeerMessage> heard;
    int under_way = 0;
    time_point last{};
  };
  void say(Way& way, PeerMessage peer_message);
  task<lifecycle::Event> hear(duration within);
  task<bool> answers(PeerMessage::What question, PeerMessage::What answer, duration within);
  task<> hand_over();
  task<lifecycle::Event> serve_step(lifecycle::ServingAction action);
  task<lifecycle::Event> hand_over_step(lifecycle::HandingOverAction action);
  task<volume::Taken> hand_over_one(device::LinkSocket one);
  task<> take();
  task<lifecycle::Event> take_step(lifecycle::TakingOverAction action);
  task<lifecycle::Event> lock_alone(duration pause);
  task<> serve(PeerMessage peer_message);
  void discard(std::uint32_t device);
  void take_in_answers();

  Way to_next_, to_before_;
  lifecycle::State before_life_, next_life_;
  PeerMessage heard_;  ///< last message of the next agent
  bool ended_ = false;
  int generation_ = 0;
  std::vector<std::string> unopened_images_;
  std::set<PeerMessage::What> answered_;
  std::set<std::uint32_t> served_;
  int serving_ = 0;
};

}  // namespace corbd::test
