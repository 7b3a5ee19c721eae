// Asks the real planner about an agent of the search.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "corbd/plan/outcome.hpp"
#include "corbd/plan/planner.hpp"
#include "faults.hpp"
#include "state.hpp"

namespace corbd::search {

/// plan::Decision in small numbers.
struct Answer {
  enum Kind : std::uint8_t { done, wait, refused, step } kind = done;
  errc code = errc::ok;
  bool leaves = false;        ///< plan::Refusal::leaves
  bool names_action = false;  ///< its error says what a person has to do
  bool tells = false;         ///< plan::tells_of_ownership
  bool asks_cluster = false;  ///< plan::asks_cluster
  std::size_t which = 0;      ///< index of the step in plan::Step
  plan::Fact fact = {};       ///< Look
  Record record = {};         ///< WriteRecord
  Stash stash = {};           ///< WriteStash
  Set evicts = 0;             ///< Evict

  template <class Step>
  bool is() const {
    return kind == step && which == plan::Step(Step{}).index();
  }
};

class Planner {
 public:
  struct Settings {
    bool takes_tainted = false;  ///< --fence-out-of-service
    Faults faults = {};
  };
  explicit Planner(Settings settings);
  ~Planner();

  /// Returns what plan::decide answers for that agent. Each question is asked once, and remembered.
  const Answer& ask(int node, const Node& of, const Process& agent);
  /// Asks again, for people.
  plan::Decision decide(int node, const Node& of, const Process& agent) const;
  std::size_t asked() const;

 private:
  const Settings settings_;
  struct Known;
  std::unique_ptr<Known> known_;
};

/// Returns "look at the owner", "write the record", or the text of an error.
std::string text(const plan::Decision& decision);

}  // namespace corbd::search
