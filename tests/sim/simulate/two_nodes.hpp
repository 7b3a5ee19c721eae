// A history of two nodes being lived: a whole agent on each, a kubelet and an application above it, and somebody who
// says on which of them the volume is to be.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <random>

#include "changes.hpp"
#include "history.hpp"
#include "node.hpp"
#include "processes.hpp"
#include "support/world/pair.hpp"

namespace corbd::sim {

class TwoNodes {
 public:
  TwoNodes(const History& history, bool trace);
  Outcome live();

 private:
  /// A node, or the cluster.
  struct Side final : test::Hazards {
    test::Fate fate(const std::string& call) override { return all->fate(*this, call); }
    duration until_seen_dead() override;
    std::optional<duration> until_told_dead() override;
    duration any(duration limit) override { return all->any(limit); }
    void trace(const std::string& event) override { all->trace(name, event); }

    TwoNodes* all = nullptr;
    test::World* world = nullptr;  ///< of a node: the process that serves, or served last
    // Of a node: its other process.
    std::unique_ptr<test::Loop> beside_loop;
    std::unique_ptr<test::World> beside;
    std::unique_ptr<Processes> processes;
    bool hands_over = false;
    std::string name = "cluster";
    std::vector<Fault> armed;  ///< of calls; `what` counts down to the call
    time_point cut_until, slow_death_until, untold_until;
    bool tainted = false;
    // What its kubelet knows.
    bool wants_up = false, staged = false, published = false;
    bool uncertain = false;         ///< it has asked for a stage, and unstaged nothing since
    bool may_be_published = false;  ///< the same of a publish: no unstage without an unpublish then
    std::optional<int> asking;      ///< the life of the agent that it asks
  };

  // two_nodes.cpp: time, and those above the agents
  void go_until(time_point end);
  void kubelet_looks(Side& side);
  void ask(Side& side, plan::Wish wish);
  static task<> asking(Side& side, std::string id, plan::Wish wish);
  void application_works(Side& side);
  void look_at_handover(std::size_t node);
  void hand_over(std::size_t node);
  void somebody_moves();
  void attach();
  void tell_attachments();
  bool is_left(const Side& side) const;
  bool is_up(const Side& side) const;
  test::KernelDevice* device_of(const Side& side) const;
  // two_faults.cpp
  void schedule_faults();
  void happen(const Fault& fault);
  void happen_to_node(const Fault& fault, Side& side);
  void move_to(std::size_t node, duration forced_in);
  void stop_faults();
  test::Fate fate(Side& side, const std::string& call);
  // two_rules.cpp: what must be true at the end
  void converge();
  void operator_gives_up();
  void take_down();
  void look_at_what_is_left();
  bool broken() const { return !pair_.broken_rules().empty(); }

  void trace(const std::string& who, const std::string& event);
  duration any(duration limit);
  bool one_in(std::uint32_t n) { return random_() % n == 0; }
  test::FakeImage& image() { return pair_.cluster.images.at(volume_.image); }

  const History& history_;
  const Volume& volume_;
  const bool trace_;
  std::mt19937_64 random_;
  test::Pair pair_;
  time_point start_;
  Side cluster_;
  std::array<Side, 2> sides_;
  Changes changes_{history_,
                   {pair_.loop_a, pair_.cluster, {&pair_.a, &pair_.b}, [this](duration limit) { return any(limit); }}};
  std::size_t attached_ = 0, wanted_ = 0;  ///< the node that has the volume, and the one that its pod is to run on
  time_point forced_at_;                   ///< then it moves, whatever its node says
  int attachments_ = 1;
  bool faults_over_ = false, unwanted_ = false;
};

}  // namespace corbd::sim
