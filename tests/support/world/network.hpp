// A node's way to the cluster, which can be cut: nothing is asked and nothing answered then, and what was on its way
// may arrive when the network is back.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "support/loop.hpp"

namespace corbd::test {

class World;

class Network {
 public:
  explicit Network(World& world) : world_(world) {}

  /// The cluster ends the node's watches 30 s later.
  void cut();
  void mend();
  bool is_cut() const { return cut_since_.has_value(); }
  /// Whether what was on its way at the cut had reached the cluster, where its answer is held. Unset: some of it had.
  std::optional<bool> sent_arrives;

  // For the ports.
  /// Whether what was sent then is in the cluster now.
  bool carries(time_point sent) const;
  /// What happens when it is back.
  void hold(std::function<void()> work) { held_.push_back(std::move(work)); }

 private:
  World& world_;
  std::optional<time_point> cut_since_;
  std::vector<std::function<void()>> held_;
};

}  // namespace corbd::test
