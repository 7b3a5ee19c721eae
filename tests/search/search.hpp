// Searches all states of a setting, breadth first, so that the first trace to a broken rule is a shortest one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hash.hpp"
#include "moves.hpp"

namespace corbd::search {

struct Limits {
  std::size_t states = 0;  ///< 0: all
  int depth = 0;           ///< moves from the start; 0: any number
  bool exits = true;       ///< looks for states without an exit too
};

struct Report {
  std::size_t states = 0, moves = 0, questions = 0, left_out = 0;
  int depth = 0;          ///< of the last state that was reached
  bool complete = false;  ///< no limit was met, and no move left out
  double seconds = 0;
  std::string broken = {};  ///< rule; empty: none
  std::vector<std::string> trace = {};
  /// States from which a volume gets neither served nor given up, and whose agent names no action of a person, if
  /// nothing disturbs it any more.
  std::size_t dead_ends = 0;
};

/// The volume is attached to the first node, and nothing of it is there.
World fresh_world(const Setting& setting);
/// The same, and it is staged, served, and its attachment is noted.
World served_world(const Setting& setting);

Report search(const Setting& setting, const Limits& limits);

/// "node 1: its agent takes the lock"
std::string text(const Move& move);
/// One line: who has the lock, who watches, and what each node has.
std::string text(const World& world);

}  // namespace corbd::search
