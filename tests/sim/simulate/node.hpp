// A history being lived: the agent on its fakes, kubelet and an application above it, and the faults.
#pragma once

#include <optional>
#include <random>

#include "changes.hpp"
#include "history.hpp"
#include "processes.hpp"
#include "support/world/world.hpp"

namespace corbd::sim {

/// What kubelet knows of one volume.
struct Kubelet {
  Volume volume;
  std::string image_id;
  bool wants_up = true, asking = false, staged = false, published = false;
  bool refused = false;  ///< its last unstage failed: there may be something to unpublish still
};

/// The volume's image, as a history begins.
test::FakeImage& make_image(test::Cluster& cluster, const Volume& volume);
plan::Staged stage_wish(const Volume& volume);
plan::Published publish_wish(const Volume& volume);

class Node final : public test::Hazards {
 public:
  Node(const History& history, bool trace);
  Outcome live();

  test::Fate fate(const std::string& call) override;
  duration until_seen_dead() override;
  std::optional<duration> until_told_dead() override;
  duration any(duration limit) override;
  void trace(const std::string& event) override;

 private:
  // node.cpp: lives and time
  void go_until(time_point end);
  void step(time_point end);
  void lifecycle();
  void agent_dies();
  void hand_over();
  void tool_comes();
  void look_at_handover();
  void before_ends();
  test::Agent& agent() const { return processes_.serving().agent; }
  void start_agent();
  void end_freeze();
  void converge();
  void take_down();
  result<> want(const std::string& id, const plan::Wish& wish);
  // faults.cpp
  void schedule_faults();
  void happen(const Fault& fault);
  void die_under_load();
  void keeper_dies(const Fault& fault);
  void grow_under_load(const Fault& fault);
  void happen_to_image(const Fault& fault);
  void happen_to_device(const Fault& fault);
  void there_and_back(const Fault& fault);
  void ceph_csi_heals(std::uint32_t what);
  void override_proof(std::size_t i);
  void leave_in_call(Millis comes_back_in);
  void stop_faults();
  Error error_of(const std::string& call, std::uint32_t what) const;
  // others.cpp: other nodes
  bool is_between_break_and_lock(const test::FakeImage& image) const;
  std::string new_nonce();
  bool shows_later_writes(const std::string& name) const;
  void visit(const Fault& fault, bool by_force);
  void visit_with_cache(const Fault& fault);
  void visit_here(const Fault& fault);
  void works_here(const Fault& fault);
  void leaves_later(const std::string& visitor, const std::string& image, bool cleanly, Millis in);
  void attach_again();
  void moves_away(test::FakeImage& image);
  void maintain(const Fault& fault);
  void agent_waits(const Fault& fault);
  bool is_fenced() const;
  void fence_node(const Fault& fault);
  void dead_holder(const Fault& fault);
  void renamed_holder(const Fault& fault, const std::string& client);
  void stage_what_the_dead_left();
  void the_dead_return();
  // kubelet.cpp: those above
  void kubelet_looks(std::size_t i);
  void ask(std::size_t i, plan::Wish wish);
  bool attach(Kubelet& kubelet);
  static task<> asking(Node& node, std::size_t i, plan::Wish wish);
  void answered(std::size_t i, const plan::Wish& wish, const result<>& done);
  void application_works(std::size_t i);
  void application_hurries(std::size_t i, time_point end);
  void application_asks(std::size_t i);
  // snapshots.cpp
  void snapshotter_comes();
  void snapshot(int serial, const test::FakeOpened& image);
  bool stands_still(const Volume& volume, const test::KernelDevice& device) const;
  void look_at_frozen();
  // rules.cpp
  void look_at_rules();
  void look_at_success(const Kubelet& kubelet, const plan::Wish& wish);
  bool provably_ours(const Kubelet& kubelet) const;
  bool stayed_here(const plan::Record& record, const test::FakeImage& image) const;
  void wait_for_agents();
  bool served(const Kubelet& kubelet) const;
  void look_at_what_is_left();

  bool one_in(std::uint32_t n) { return random_() % n == 0; }
  Millis below(Millis limit) {
    return Millis(
        static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(std::max<std::int64_t>(limit.count(), 1))));
  }
  test::KernelDevice* device_of(const std::string& id);
  bool owes(const std::string& id) {
    const auto* device = device_of(id);
    return device != nullptr && !device->requests.empty();
  }

  const History& history_;
  const bool trace_;
  std::mt19937_64 random_;
  test::Loop loop_, beside_loop_;
  test::World world_{loop_};
  test::World beside_{beside_loop_, world_};  ///< the node's other process, while there is one
  Processes processes_{world_, beside_, {[this] { return one_in(2); }, [this] { before_ends(); }}};
  Changes changes_{history_, {loop_, world_.cluster, {&world_}, [this](duration limit) { return any(limit); }}};
  std::size_t handovers_ = 0;
  time_point start_;
  std::vector<Kubelet> kubelets_;
  std::vector<Fault> armed_;        ///< of calls; `what` counts down to the call
  std::optional<Millis> down_for_;  ///< the agent is to end, and come back after that
  bool leaves_well_ = false, hands_over_ = false, reboots_ = false, faults_over_ = false;
  std::optional<Millis> suspended_for_;
  time_point slow_death_until_, untold_until_, disk_full_until_, slow_until_, dead_until_;
  std::uint32_t nonces_ = 0;                                      ///< of other nodes' clients
  std::map<std::string, std::pair<std::string, bool>> visitors_;  ///< image, and whether it leaves cleanly
  std::map<std::string, std::string> waiting_;                    ///< image by other nodes' agents that wait for one
  std::set<std::string> overridden_;                 ///< images whose operator sees to it that nobody comes meanwhile
  std::set<std::string> left_by_dead_;               ///< images that a dead node had
  std::map<std::string, std::string> dead_holders_;  ///< the clients of that node, and the ID of the image of each
  std::optional<time_point> moved_at_;               ///< since when the volume is attached elsewhere
  int attachments_ = 1;
  std::mt19937_64 snapshots_random_{history_.seed};  ///< of its own: what a seed had without snapshots stays
  std::set<int> snapshots_;                          ///< images that one is being made of, by their serial numbers
};

}  // namespace corbd::sim
