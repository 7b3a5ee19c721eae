// All that can happen next in a state of the world.
#pragma once

#include <string_view>
#include <vector>

#include "asking.hpp"
#include "state.hpp"

namespace corbd::search {

/// Which of the actors and events there are.
struct Setting {
  std::string_view name;
  std::string_view what;
  bool second_node = false;
  bool handover = false;
  bool keeper = false;  ///< links may outlive their agent
  bool tool = false;
  bool rescue = false;
  bool by_force = false;    ///< an operator blocks the lock's owner for the rescue host
  bool late_locks = false;  ///< a call for the lock may hang
  bool cuts = false;
  bool moves = false;   ///< the volume's attachment goes to the other node, or is made again
  bool api = true;      ///< the API server answers
  bool aborts = false;  ///< a step may fail although it took effect
  bool taints = false;
  bool entries_end = false;
  std::uint8_t disturbances = 0;
  std::uint8_t writes = 0;
  Faults faults = {};
};

struct Move {
  World next;
  std::string_view what;  ///< for people
  int node = -1;
  bool of_client = false;   ///< `node` is a client
  bool is_free = true;      ///< no disturbance: it may be relied upon to happen
  bool told = false;        ///< the node's agent named what a person has to do
  const char* broken = "";  ///< the rule that it breaks
};

class Moves {
 public:
  Moves(const Setting& setting, Planner& planner) : setting_(setting), planner_(planner) {}

  /// Returns them, normalised.
  const std::vector<Move>& of(const World& world);
  /// Times that a move was left out because a node has too many clients that matter.
  std::size_t left_out() const { return left_out_; }

 private:
  Move& add(std::string_view what, int node = -1);
  /// Adds a move that costs a disturbance; null: none is left.
  Move* disturb(std::string_view what, int node = -1);

  // agent_moves.cpp: an agent and its operations.
  void agent_acts(int node);
  void decide(int node);
  void step(int node, const Answer& answer);
  void look(int node, const Answer& answer);
  void look_at_owner(int node);
  void look_at_attachment(int node);
  void open_image(int node);
  void close_image(int node, std::string_view what);
  // lock_moves.cpp: its steps Lock and Evict.
  void begin_lock(int node);
  void take(int node);
  void hang(int node);
  void evict(int node, const Answer& answer);
  void break_evicted(int node);
  // world_moves.cpp: everything else.
  void operations_begin(int node);
  void processes(int node);
  void predecessor_acts(int node);
  void network(int node);
  void application(int node);
  void client(Ref which);
  void others();
  void orchestrator();
  bool can_end(Ref entry) const;

  const Setting& setting_;
  Planner& planner_;
  const World* now_ = nullptr;
  std::vector<Move> all_;
  std::size_t left_out_ = 0;
};

/// Gives equal states equal bytes: forgets what nothing depends on, and renumbers the rest.
void normalise(World& world);

/// Returns the rule that a state breaks by itself; empty: none.
const char* broken_rule(const World& world);
/// Whether nothing is left to do for the volume on that node: it is served, or was given up, or is not there.
bool is_settled(const World& world, int node);

}  // namespace corbd::search
