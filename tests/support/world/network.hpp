// A node's way to the cluster, which can be cut: nothing is asked and nothing answered then, and messages that were
// under way may arrive when the network is back.
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
  /// Whether messages under way at the cut had reached the cluster, where their answers are held. Unset: some of them
  /// had.
  std::optional<bool> sent_arrives;

  // Used by the ports.
  /// Whether a message that was sent then is in the cluster now.
  bool carries(time_point sent) const;
  /// Holds work for the time when the network is back.
  void hold(std::function<void()> work) { held_.push_back(std::move(work)); }

 private:
  World& world_;
  std::optional<time_point> cut_since_;
  std::vector<std::function<void()>> held_;
};

}  // namespace corbd::test
