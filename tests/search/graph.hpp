// The states that were reached, by their hashes, and the moves between them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hash.hpp"
#include "state.hpp"

namespace corbd::search {

class Graph {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = ~Index{0};
  struct Added {
    Index index;
    bool is_new;
  };

  Graph();
  /// `number`: the move's number among those of its parent.
  Added add(const Hash& hash, Index parent, std::uint16_t number);
  std::size_t size() const { return from_.size(); }
  Index parent(Index of) const { return from_[of].parent; }
  std::uint16_t number(Index of) const { return from_[of].number; }

  /// The next moves are of that state. States are expanded in the order of their indexes.
  void begin(Index from);
  std::size_t expanded() const { return begins_.empty() ? 0 : begins_.size() - 1; }
  /// That state may be relied upon to follow.
  void lead(Index to) { leads_.push_back(to); }
  void settle(Index state, int node);
  /// Returns the states from which no way leads to a settled one.
  std::vector<Index> without_exit(int node) const;

 private:
  void grow();
  struct From {
    Index parent;
    std::uint16_t number;
    std::uint16_t settled;
  };
  std::vector<Hash> slots_;
  std::vector<Index> indexes_;
  std::vector<From> from_;
  std::vector<std::uint64_t> begins_;  ///< of each state's moves in leads_
  std::vector<Index> leads_;
};

}  // namespace corbd::search
