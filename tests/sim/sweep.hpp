// Sweeps: each blow hits each call of each story.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scene.hpp"

namespace corbd::test {

enum class Blow { crash_before, crash_after, fail, fail_after };

inline int& counter(World& world, Blow blow) {
  switch (blow) {
    case Blow::crash_before:
      return world.calls.crash_at;
    case Blow::crash_after:
      return world.calls.crash_after_at;
    case Blow::fail:
      return world.calls.fail_at;
    case Blow::fail_after:
      break;
  }
  return world.calls.fail_after_at;
}

/// As kubelet and the healer do.
inline result<> insist(Scene& scene, const plan::Wish& wish) {
  result<> done = Error{errc::internal, "never asked"};
  for (int tries = 0; tries < 5 && !done; ++tries) try {
      done = scene.world.agent.want(kId, wish);
    } catch (const Crash&) {
      scene.kill_and_start();
      CHECK(scene.world.agent.want(kId, plan::Wish(plan::Healed{})));
    }
  return done;
}

/// The wish is carried out, whatever falls on it, and then `check` holds. Whether the blow fell. `name` of the story.
inline bool survives(Scene& scene, const std::string& name, const plan::Wish& wish,
                     const std::function<void(const World&)>& check, Blow blow, int at, errc code) {
  scene.world.calls.error = {code, "made to fail"};
  counter(scene.world, blow) = at;
  const auto done = insist(scene, wish);
  const bool fell = counter(scene.world, blow) == 0;
  INFO(name << ", blow " << static_cast<int>(blow) << " at call " << at << (done ? "" : ": " + done.error().text));
  CHECK(done);
  check(scene.world);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  return fell;
}

/// `tell` tells a story with one blow, and whether that fell.
template <class Story>
void sweep(const std::vector<Story>& stories, bool (*tell)(const Story&, Blow, int at, errc code)) {
  for (const auto& story : stories)
    for (const Blow blow : {Blow::crash_before, Blow::crash_after, Blow::fail, Blow::fail_after})
      for (const errc code : {errc::unavailable, errc::failed_precondition}) {
        int at = 1;
        while (tell(story, blow, at, code) && at < 200) ++at;
        INFO(story.name);
        CHECK(at > 1);
        CHECK(at < 200);
      }
}

}  // namespace corbd::test
