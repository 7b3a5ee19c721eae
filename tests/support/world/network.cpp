// The cut of a node's network, and its end.
#include "support/world/network.hpp"

#include "support/world/ports.hpp"

namespace corbd::test {

void Network::cut() {
  if (is_cut()) return;
  world_.trace("the network of " + world_.name + " is cut");
  cut_since_ = world_.loop().clock.now();
  world_.loop().outside_in(kWatch, [this, since = *cut_since_] {
    if (cut_since_ == since) world_.cluster.end_watches_of(world_.agent.node_address);
  });
}

void Network::mend() {
  if (!is_cut()) return;
  world_.trace("the network of " + world_.name + " is back");
  cut_since_.reset();
  for (auto held = std::exchange(held_, {}); auto& work : held) work();
  world_.cluster.watch_again(world_);
  for (const auto& device : world_.kernel.devices) world_.calls.wake_helpers(device.index);
}

bool Network::carries(time_point sent) const {
  if (!is_cut()) return true;
  if (sent >= *cut_since_) return false;
  if (sent_arrives || world_.hazards == nullptr) return sent_arrives.value_or(false);
  return world_.hazards->any(duration(2)).count() == 0;
}

}  // namespace corbd::test
