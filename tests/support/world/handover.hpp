// Two agents beside each other on one node: the one that serves gives its devices to the next one. Both are real
// shells, and what they do next is decided by the real lifecycle::next(); the conversation between them is played (the
// real one: src/handover). Who has come to its end stays until somebody kills it.
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
  /// The second process of a node begins beside the first one. Outlives both lives.
  Handover(World& before, World& next);
  bool accepts_refused = false;  ///< the next one has --accept-refused
  void begin();

  World& before;
  World& next;
  bool refused = false;       ///< the predecessor goes on, and the next one must end
  bool before_ended = false;  ///< its process does
  bool next_ended = false;
  bool next_serves = false;  ///< alone
  bool lock_said = false;
  /// The next one, of that device.
  bool said_served(std::uint32_t device) const { return served_.contains(device); }
  bool next_has_lock() const { return next_life_.has_lock; }
  /// As by SIGTERM: a rollout is undone in the middle. Before anything began the next one ends, and its predecessor
  /// goes on. After that it takes what it is given, and gives it back to whoever asks.
  void tell_next_to_end();
  /// Once it serves: it was told to end, and calls the pod in reserve, its predecessor's.
  bool next_calls_reserve();
  /// Nobody hears the other any more, as after the death of one. `lost`: nor what was said already.
  void end(bool lost);
  /// What is said from now on arrives that much later.
  duration late{};

 private:
  using Word = handover::Word;
  struct Way {
    std::deque<Word> heard;
    int under_way = 0;
    time_point last{};
  };
  void say(Way& way, Word word);
  task<lifecycle::Event> hear(duration within);
  task<bool> answers(Word::What question, Word::What answer, duration within);
  task<> hand_over();
  task<lifecycle::Event> hand_over_step(lifecycle::Action action);
  task<volume::Taken> hand_over_one(device::LinkSocket one);
  task<> take();
  task<lifecycle::Event> take_step(lifecycle::Action action);
  task<lifecycle::Event> lock_alone(duration pause);
  task<> serve(Word word);
  void discard(std::uint32_t device);
  void take_in_answers();

  Way to_next_, to_before_;
  lifecycle::State before_life_, next_life_;
  Word heard_;  ///< last, by the next one
  bool ended_ = false;
  int generation_ = 0;
  std::vector<std::string> unopened_images_;
  std::set<Word::What> answered_;
  std::set<std::uint32_t> served_;
  int serving_ = 0;
};

}  // namespace corbd::test
