// One agent on one node with one image, and the rules looked after at every wish.
#pragma once

#include "support/catch.hpp"
#include "support/world/world.hpp"

namespace corbd::test {

inline const std::string kId = "image-1";
inline const std::string kPath = staged_wish(kId).path;
inline const plan::Unstaged kUnstaged{kPath};
/// An image of ceph-csi's provisioner.
inline const std::string kUuid = "50d53503-9da1-11ed-847e-bacf8f2f1297";
inline const std::string kHandle = "0001-0003-lab-0000000000000001-" + kUuid;

inline plan::Staged staged(const std::string& path = kPath) {
  auto wish = staged_wish(kId);
  wish.path = path;
  return wish;
}

inline plan::Staged block_wish() {
  auto wish = staged_wish(kId);
  wish.capability = {};
  wish.capability.block = true;
  return wish;
}

inline plan::Published published(const plan::Staged& at, const std::string& target) {
  plan::Published wish;
  wish.path = at.path;
  wish.target = target;
  wish.capability = at.capability;
  return wish;
}

/// Nothing goes wrong, but helpers wait as long as their device has no server.
struct Calm : Hazards {
  Fate fate(const std::string&) override { return {}; }
  duration until_seen_dead() override { return {}; }
  std::optional<duration> until_told_dead() override { return duration(); }
  duration any(duration) override { return {}; }
  void trace(const std::string&) override {}
};

struct Scene {
  Loop loop;
  World world{loop};
  Scene() {
    world.cluster.images[kId].id = "id-1";
    world.agent.start();
  }
  errc want(plan::Wish wish, const std::string& id = kId) {
    const auto done = world.agent.want(id, std::move(wish));
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
    return done ? errc::ok : done.error().code;
  }
  /// The agent dies, and the next one starts.
  void kill_and_start(bool with_healer = false) {
    world.agent.kill();
    world.agent.start(with_healer);
  }
  std::string error() {
    const auto status = world.agent.shell().status(kId);
    return status->last_error ? status->last_error->text : "";
  }
  /// The application writes every block of every device.
  void write_all() {
    for (auto& one : world.kernel.devices)
      for (std::size_t block = 0; block < kBlocks; ++block) world.kernel.application_writes(one, block);
  }
  /// Requests that the kernel has no answer to.
  std::size_t waiting() const {
    std::size_t count = 0;
    for (const auto& one : world.kernel.devices) count += one.requests.size();
    return count;
  }
  KernelDevice& device() { return world.kernel.devices.front(); }
  FakeImage& image() { return world.cluster.images[kId]; }
  void filled() {
    image().data = true;
    image().content = host::Probe::Kind::filesystem;
    image().fstype = "ext4";
  }
};

}  // namespace corbd::test
