// Walks one way through the search, move by move.
#pragma once

#include <string>
#include <string_view>

#include "search.hpp"

namespace corbd::search {

class Story {
 public:
  explicit Story(bool second_node = false);

  World now;
  /// The outcome of the last operation.
  errc outcome = errc::ok;

  /// Makes that move; throws if it is not possible now.
  void happens(std::string_view what, int node = -1);
  /// Lets the agent end its operation.
  void ends(int node = 0);
  /// Lets the agent go on until it has made that move.
  void ends_with(std::string_view what, int node = 0);

  void stage(int node = 0);
  void attach(int node = 0);
  void heal(int node = 0);
  void unstage(int node = 0);
  void kill_and_start(int node = 0);
  void hand_over(int node = 0);

 private:
  bool step(int node, std::string_view& made);
  const Setting setting_;
  Planner planner_;
  Moves moves_;
};

}  // namespace corbd::search
