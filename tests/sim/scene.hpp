// One agent on one node with one image, and the rules looked after at every wish.
#pragma once

#include "support/catch.hpp"
#include "support/world/world.hpp"

namespace corbd::test {

inline const std::string kId = "image-1";

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
  KernelDevice& device() { return world.kernel.devices.front(); }
  FakeImage& image() { return world.cluster.images[kId]; }
  void filled() {
    image().data = true;
    image().content = host::Probe::Kind::filesystem;
    image().fstype = "ext4";
  }
};

}  // namespace corbd::test
