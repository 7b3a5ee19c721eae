// The two processes of a node: the agent that serves, and beside it the next one while a handover is under way.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "support/world/handover.hpp"
#include "support/world/world.hpp"

namespace corbd::sim {

class Processes {
 public:
  struct Hooks {
    std::function<bool()> comes_again;  ///< whether the keeper of a dead predecessor starts it in time
    std::function<void()> before_ends;
  };
  Processes(test::World& first, test::World& second, Hooks hooks);

  /// Whose agent serves, or served last.
  test::World& serving() const { return *serving_; }
  /// That is under way.
  test::Handover* handover() const { return handover_; }
  test::Handover& begin();

  enum class How { goes_on, handed_over, both_gone };
  struct End {
    How how;
    std::optional<duration> back_in;  ///< of the next one's keeper
    bool calls_reserve = false;       ///< it was told to end, and wants to hand over again
  };
  /// Lives end here, of those that came to their end. Nothing: the handover goes on.
  std::optional<End> look();
  /// A blow strikes whoever is there.
  void crash();
  /// With the machine.
  void end();

 private:
  void before_dies();
  void next_dies();

  test::World& first_;
  test::World& second_;
  const Hooks hooks_;
  test::World* serving_;
  /// Those that were, too: what they said may still be under way.
  std::vector<std::unique_ptr<test::Handover>> handovers_;
  test::Handover* handover_ = nullptr;
  std::optional<duration> back_in_;
};

}  // namespace corbd::sim
