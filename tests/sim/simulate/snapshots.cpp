// Snapshots by other clients, before which the agent freezes the filesystem. Snapshotters are slow, and die.
#include <boost/asio/post.hpp>

#include "node.hpp"
#include "support/world/ports.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using Freezer = test::KernelDevice::Freezer;

/// librbd gives a snapshot up after this.
constexpr Millis kGivenUpAfter = 10s;

}  // namespace

bool Node::stands_still(const Volume& volume, const test::KernelDevice& device) const {
  if (!volume.block) return device.frozen_by == Freezer::agent;
  const auto link = world_.kernel.links.find(device.link);
  return link == world_.kernel.links.end() || (!link->second->reads() && link->second->in_flight() == 0);
}

void Node::snapshotter_comes() {
  if (!makes_snapshots(history_)) return;
  loop_.outside_in(200ms + Millis(snapshots_random_() % 9000), [this] {
    if (faults_over_) return;
    for (const auto& [serial, image] : world_.cluster.opened) snapshot(serial, *image);
    snapshotter_comes();
  });
}

/// The process that has the image hears of it as of any other event.
void Node::snapshot(int serial, const test::FakeOpened& image) {
  if (!snapshots_.insert(serial).second) return;
  const Millis lasts = snapshots_random_() % 8 == 0 ? kGivenUpAfter : Millis(snapshots_random_() % 2000);
  asio::io_context& io = &image.node() == &world_ ? loop_.io : beside_loop_.io;
  const auto end = [this, serial, lasts, &io] {
    loop_.outside_in(lasts, [this, serial, &io] {
      snapshots_.erase(serial);
      asio::post(io, [this, serial] {
        if (const auto open = world_.cluster.opened.find(serial); open != world_.cluster.opened.end())
          open->second->unquiesce();
      });
    });
  };
  asio::post(io, [this, serial, end] {
    const auto open = world_.cluster.opened.find(serial);
    if (open == world_.cluster.opened.end()) return;
    const std::string id = open->second->key().image_id;
    open->second->quiesce([this, id, serial, end](int r) {
      trace("a snapshot of " + id + " is answered with " + std::to_string(r));
      if (r != 0) {
        snapshots_.erase(serial);
        return;
      }
      for (const Kubelet& kubelet : kubelets_)
        if (const auto* device = kubelet.image_id == id ? device_of(kubelet.volume.image) : nullptr;
            device != nullptr && !stands_still(kubelet.volume, *device))
          world_.broke("a snapshot was answered with success, and its volume does not stand still: " + id);
      end();
    });
  });
}

/// No snapshot comes any more.
void Node::look_at_frozen() {
  const auto is_frozen = [](const test::KernelDevice& device) { return device.frozen_by == Freezer::agent; };
  const auto stays = [&] { return std::ranges::any_of(world_.kernel.devices, is_frozen); };
  for (const auto end = loop_.clock.now() + 1min; stays() && loop_.clock.now() < end && world_.broken_rules.empty();)
    step(end);
  for (const Kubelet& kubelet : kubelets_)
    if (const auto* device = device_of(kubelet.volume.image);
        device != nullptr && is_frozen(*device) && served(kubelet))
      world_.broke("a filesystem stays frozen: " + kubelet.volume.image);
}

}  // namespace corbd::sim
