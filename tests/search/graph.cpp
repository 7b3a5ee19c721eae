#include "graph.hpp"

#include <utility>

namespace corbd::search {

Graph::Graph() : slots_(1 << 16), indexes_(1 << 16, kNone) {}

Graph::Added Graph::add(const Hash& hash, Index parent, std::uint16_t number) {
  if (from_.size() * 2 > slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash.low & mask;
  for (; indexes_[at] != kNone; at = (at + 1) & mask)
    if (slots_[at] == hash) return {indexes_[at], false};
  slots_[at] = hash;
  indexes_[at] = static_cast<Index>(from_.size());
  from_.push_back({parent, number, 0});
  return {indexes_[at], true};
}

void Graph::grow() {
  const auto slots = std::exchange(slots_, std::vector<Hash>(slots_.size() * 2));
  const auto indexes = std::exchange(indexes_, std::vector<Index>(slots_.size(), kNone));
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t old = 0; old < slots.size(); ++old) {
    if (indexes[old] == kNone) continue;
    std::size_t at = slots[old].low & mask;
    while (indexes_[at] != kNone) at = (at + 1) & mask;
    slots_[at] = slots[old];
    indexes_[at] = indexes[old];
  }
}

void Graph::begin(Index from) {
  while (begins_.size() <= from) begins_.push_back(leads_.size());
}

void Graph::settle(Index state, int node) { from_[state].settled |= static_cast<std::uint16_t>(1u << node); }

std::vector<Graph::Index> Graph::without_exit(int node) const {
  const std::size_t size = from_.size();
  // The moves, turned around.
  std::vector<std::uint64_t> begins(size + 2);
  for (const Index to : leads_) ++begins[to + 2];
  for (std::size_t at = 2; at < begins.size(); ++at) begins[at] += begins[at - 1];
  std::vector<Index> backwards(leads_.size());
  for (std::size_t state = 0; state + 1 < begins_.size(); ++state)
    for (auto lead = begins_[state]; lead < begins_[state + 1]; ++lead)
      backwards[begins[leads_[lead] + 1]++] = static_cast<Index>(state);
  std::vector<bool> exits(size);
  std::vector<Index> todo;
  const auto reach = [&](Index state) {
    if (exits[state]) return;
    exits[state] = true;
    todo.push_back(state);
  };
  for (std::size_t state = 0; state < size; ++state)
    if ((from_[state].settled & (1u << node)) != 0) reach(static_cast<Index>(state));
  while (!todo.empty()) {
    const Index state = todo.back();
    todo.pop_back();
    for (auto lead = begins[state]; lead < begins[state + 1]; ++lead) reach(backwards[lead]);
  }
  std::vector<Index> without;
  for (std::size_t state = 0; state < size; ++state)
    if (!exits[state]) without.push_back(static_cast<Index>(state));
  return without;
}

}  // namespace corbd::search
