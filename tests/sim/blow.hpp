// What hits one call of a story: the tests that sweep over all calls count them down to it.
#pragma once

#include "support/world/world.hpp"

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

}  // namespace corbd::test
