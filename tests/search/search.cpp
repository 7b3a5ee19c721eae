#include "search.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "graph.hpp"

namespace corbd::search {
namespace {

using Index = Graph::Index;

Planner::Settings planner_of(const Setting& setting) { return {setting.taints, setting.faults}; }

/// Finds the nearest state that is wanted.
template <class Wanted>
World reach(const World& from, const Setting& setting, Wanted wanted) {
  Planner planner(planner_of(setting));
  Moves moves(setting, planner);
  Graph known;
  known.add(hash_of(from), Graph::kNone, 0);
  std::vector<World> all{from};
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (wanted(all[at])) return all[at];
    const World now = all[at];
    for (const Move& move : moves.of(now))
      if (known.add(hash_of(move.next), static_cast<Index>(at), 0).is_new) all.push_back(move.next);
  }
  return from;
}

class Run {
 public:
  Run(const Setting& setting, const Limits& limits)
      : setting_(setting), limits_(limits), planner_(planner_of(setting)), moves_(setting, planner_) {}

  Report run() {
    const auto began = std::chrono::steady_clock::now();
    for (const World& root : {served_world(setting_), fresh_world(setting_)}) begin(root);
    while (!next_.empty() && report_.broken.empty() && !is_full()) {
      ++report_.depth;
      level_ = std::exchange(next_, {});
      for (const auto& [index, world] : level_)
        if (!expand(index, world)) break;
    }
    report_.states = graph_.size();
    report_.questions = planner_.asked();
    report_.left_out = moves_.left_out();
    report_.complete = next_.empty() && report_.broken.empty() && !stopped_ && report_.left_out == 0;
    if (limits_.exits && report_.broken.empty()) look_for_exits();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return std::move(report_);
  }

 private:
  struct Reached {
    Index index;
    World world;
  };

  bool is_full() const { return stopped_ || (limits_.depth != 0 && report_.depth >= limits_.depth); }

  void begin(const World& root) {
    const auto added = graph_.add(hash_of(root), Graph::kNone, 0);
    roots_.push_back({added.index, root});
    if (added.is_new) next_.push_back({added.index, root});
    note_settled(added.index, root);
  }

  void note_settled(Index index, const World& world) {
    for (int node = 0; node < kNodes; ++node)
      if (is_settled(world, node)) graph_.settle(index, node);
  }

  /// False: it ends here.
  bool expand(Index from, const World& world) {
    graph_.begin(from);
    std::uint16_t number = 0;
    for (const Move& move : moves_.of(world)) {
      ++report_.moves;
      const auto added = graph_.add(hash_of(move.next), from, number);
      if (limits_.exits && move.is_free) graph_.lead(added.index);
      if (limits_.exits && move.told) graph_.settle(from, move.node);
      const char* broken = *move.broken != 0 ? move.broken : added.is_new ? broken_rule(move.next) : "";
      if (*broken != 0) {
        report_.broken = broken;
        const Move last = move;
        report_.trace = trace_to(from);
        report_.trace.push_back(text(last));
        return false;
      }
      ++number;
      if (!added.is_new) continue;
      note_settled(added.index, move.next);
      next_.push_back({added.index, move.next});
    }
    stopped_ = limits_.states != 0 && graph_.size() >= limits_.states;
    return !stopped_;
  }

  /// Plays the way to that state again.
  std::vector<std::string> trace_to(Index last) {
    std::vector<std::uint16_t> numbers;
    while (graph_.parent(last) != Graph::kNone) {
      numbers.push_back(graph_.number(last));
      last = graph_.parent(last);
    }
    std::ranges::reverse(numbers);
    World world = std::ranges::find(roots_, last, &Reached::index)->world;
    std::vector<std::string> lines{"begins with: " + text(world)};
    for (const auto number : numbers) {
      const Move move = moves_.of(world).at(number);
      lines.push_back(text(move));
      world = move.next;
    }
    lines.push_back("now: " + text(world));
    return lines;
  }

  /// States that were reached and not looked at count as having one.
  void look_for_exits() {
    const std::size_t expanded = graph_.expanded();
    graph_.begin(static_cast<Index>(graph_.size()));
    for (int node = 0; node < (setting_.second_node ? kNodes : 1); ++node) {
      for (std::size_t state = expanded; state < graph_.size(); ++state) graph_.settle(static_cast<Index>(state), node);
      const auto without = graph_.without_exit(node);
      report_.dead_ends += without.size();
      if (without.empty() || !report_.trace.empty()) continue;
      report_.trace = trace_to(without.front());
      report_.trace.push_back("nothing serves the volume on node " + std::to_string(node + 1) + " any more");
    }
  }

  const Setting& setting_;
  const Limits limits_;
  Planner planner_;
  Moves moves_;
  Graph graph_;
  std::vector<Reached> roots_, level_, next_;
  bool stopped_ = false;
  Report report_;
};

}  // namespace

World fresh_world(const Setting& setting) {
  World world{};
  for (Node& node : world.nodes) node.agent.alive = 1;
  if (!setting.second_node) world.nodes[1].agent.alive = 0;
  world.disturbances = setting.disturbances;
  world.writes = setting.writes;
  return world;
}

World served_world(const Setting& setting) {
  Setting calm{.name = "calm", .what = "nothing happens"};
  World world = fresh_world(setting);
  world.disturbances = world.writes = 0;
  world = reach(world, calm, [](const World& at) {
    const Node& node = at.nodes[0];
    return is_settled(at, 0) && node.record.staging == 2 && node.record.signed_as == at.attachment.uid &&
           node.record.lock_call == kNobody && node.agent.op == Process::idle && node.device.tuned;
  });
  world.disturbances = setting.disturbances;
  world.writes = setting.writes;
  return world;
}

Report search(const Setting& setting, const Limits& limits) { return Run(setting, limits).run(); }

}  // namespace corbd::search
