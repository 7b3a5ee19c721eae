// Two nodes of one cluster, each with a whole agent: its own kernel, disk, network, lives and crashes, on one time.
#pragma once

#include <array>

#include "support/world/world.hpp"

namespace corbd::test {

class Pair {
 public:
  Loop loop_a, loop_b;
  World a{loop_a};
  World b{loop_b, a, "node-2", "10.0.0.2"};
  Cluster& cluster = a.cluster;
  /// The agents whose lives end and begin here. Null: a test handles that node's for now.
  std::array<World*, 2> serving{&a, &b};
  /// Time until the next agent starts on a node whose last one crashed.
  duration comes_back_in = std::chrono::seconds(2);

  Pair() { loop_a.stand_beside(loop_b); }
  time_point now() const { return loop_a.clock.now(); }
  /// Moves to the next event on either node, at most to `limit`. Lives end and begin here only, outside of everything
  /// else.
  void step(time_point limit);
  void advance(duration by);
  /// Kills a node's agent. From an event that is under way, use node.loop().crash().
  void kill(World& node) {
    node.loop().crash();
    step(now());
  }
  static void start(World& node);
  using Answer = std::shared_ptr<std::optional<result<>>>;
  /// Makes a wish. Its answer comes later, unless the agent dies.
  Answer ask(World& node, const std::string& id, plan::Wish wish, duration within = std::chrono::minutes(2));
  /// Makes a wish, and returns the answer, or that its agent died.
  result<> want(World& node, const std::string& id, plan::Wish wish, duration within = std::chrono::minutes(2));
  /// Returns the broken rules of either node.
  std::vector<std::string> broken_rules() const;

 private:
  void live_on(World& node);
  void look_at_rules();
};

/// Moves every volume from one node to the other, as the orchestrator does, by force if the first one does not answer.
void move_volumes(World& from, World& to, const std::string& uid);

}  // namespace corbd::test
