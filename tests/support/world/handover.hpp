// Two agents beside each other on one node: the one that serves gives its devices to the next one. Both are real
// shells; the conversation between them is played (the real one: src/handover, src/agent/takeover.cpp, hand_over() in
// src/agent/agent.cpp). Who has come to its end stays until somebody kills it.
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
  void begin();

  World& before;
  World& next;
  bool refused = false;       ///< the one before goes on, and the next one must end
  bool before_ended = false;  ///< its process does
  bool next_ended = false;
  bool next_serves = false;  ///< alone
  bool lock_said = false, next_has_lock = false;
  /// As by SIGTERM: a rollout is undone in the middle. Before anything began the next one ends, and the one before goes
  /// on. After that it takes what it is given, and gives it back to whoever asks.
  void tell_next_to_end();
  bool next_told = false;
  /// Nobody hears the other any more, as after the death of one. `lost`: nor what was said already.
  void end(bool lost);
  /// What is said from now on arrives that much later.
  duration late{};

 private:
  struct Word {
    enum class What { ready, begins, lock, loaded, link, served, end } what;
    std::string volume_id = {};
    std::uint32_t device = 0;
  };
  struct Way {
    std::deque<Word> heard;
    int under_way = 0;
    time_point last{};
  };
  enum class Heard { word, nothing, ended };

  void say(Way& way, Word word);
  task<Heard> hear(World& by, Way& way, Word& word, duration within);
  task<bool> answers(Word::What question, Word::What answer, duration within);
  task<> give();
  task<volume::Taken> give_one(device::LinkSocket one);
  task<> take();
  task<bool> follow(Word word);
  task<> serve(Word word);
  task<bool> lock_alone();
  void discard(std::uint32_t device);
  void take_in_answers();

  Way to_next_, to_before_;
  bool ended_ = false, begun_ = false;
  int generation_ = 0;
  std::vector<std::string> cold_;
  std::set<Word::What> answered_;
  std::set<std::uint32_t> served_;
  int serving_ = 0;
};

}  // namespace corbd::test
