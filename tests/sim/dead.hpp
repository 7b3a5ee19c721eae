// A volume whose agent died with a write in the kernel.
#pragma once

#include "scene.hpp"

namespace corbd::test {

using plan::Attachment;
using State = Attachment::State;
using volume::Health;

inline const std::string kTool = "10.0.0.9:0/77";
inline const std::string kOther = "10.0.0.2:0/5";
inline const Attachment kHere{State::here, "uid-1", ""};
inline const Attachment kAway{State::away, "", "it was deleted"};

/// A volume that was served under attachment "uid-1", or without any, and whose agent died with a write in the kernel.
struct Dead : Scene {
  explicit Dead(bool attached = true) {
    filled();
    REQUIRE(want(test::staged_wish(kId)) == errc::ok);
    if (attached) REQUIRE(want(plan::Attached{"uid-1"}) == errc::ok);
    world.agent.kill();
    world.kernel.application_writes(device(), 0);
  }
  ~Dead() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  void start(Attachment told, bool with_healer = true) {
    world.attachment = std::move(told);
    world.agent.start(with_healer);
  }
  Health health() { return world.agent.shell().status(kId)->health; }
  bool watched() { return image().watchers.contains(world.agent.client()); }
  /// The watches of our dead client are over.
  void forgotten() {
    loop.advance(std::chrono::seconds(31));
    image().watchers.clear();
  }
};

}  // namespace corbd::test
