// A manager that dies, or a call that fails, at every point of a mount and an unmount. Whatever follows converges.
#include "world.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

using Act = std::function<bool(Process&)>;

bool do_mount(Process& process) { return process.mount(wanted()).has_value(); }
bool do_unmount(Process& process) {
  const auto done = process.unmount("/srv/a");
  return done || done.error().code == errc::not_found;
}

/// With another user, the plugin has its mount below the staging path, as ceph-csi has.
World fresh(bool mounted, bool with_other) {
  World world;
  if (with_other) world.inside = "/vol-1";
  world.folders.insert("/srv/a");
  if (with_other) REQUIRE(Process(world).mount(wanted("b")));
  if (mounted) REQUIRE(Process(world).mount(wanted()));
  world.made = 0;
  return world;
}

void check_up(const World& world) {
  const auto claim = world.claims.find("/srv/a");
  REQUIRE(claim != world.claims.end());
  CHECK(claim->second.phase == Claim::Phase::mounted);
  REQUIRE(world.is_mounted("/srv/a"));
  CHECK(world.mounts.at("/srv/a") == world.mounts.at(claim->second.staging + world.inside));
}

void check_down(const World& world, bool with_other) {
  CHECK_FALSE(world.claims.contains("/srv/a"));
  CHECK_FALSE(world.is_mounted("/srv/a"));
  CHECK(world.folders.contains("/srv/a"));
  CHECK(world.mounts.size() == (with_other ? 2 : 0));
  CHECK(world.is_mounted("/srv/b") == with_other);
}

/// Returns whether the fault came to pass.
bool with_fault(World& world, int at, const Fault& fault, const Act& act) {
  world.fault_at = at;
  world.fault = fault;
  world.made = 0;
  Process process(world);
  try {
    act(process);
  } catch (const Crash&) {
  }
  world.fault_at = -1;
  return world.made > at;
}

void sweep(const Fault& fault) {
  for (const bool with_other : {false, true})
    for (const bool mounted : {false, true})
      for (const bool then_up : {true, false}) {
        int at = 0;
        for (bool came = true; came; ++at) {
          World world = fresh(mounted, with_other);
          came = with_fault(world, at, fault, mounted ? Act(do_unmount) : Act(do_mount));
          CAPTURE(with_other, mounted, then_up, at, fault.when == Fault::When::after);
          Process next(world);
          REQUIRE((then_up ? do_mount(next) : do_unmount(next)));
          then_up ? check_up(world) : check_down(world, with_other);
          CHECK(world.broken.empty());
          if (then_up) {
            REQUIRE(do_unmount(next));
            check_down(world, with_other);
          }
        }
        CHECK(at > 5);
      }
}

}  // namespace

TEST_CASE("a manager that is killed before or after any step leaves a state that the next one completes") {
  sweep({Fault::When::before, {}});
  sweep({Fault::When::after, {}});
}

TEST_CASE("whichever call fails, with or without its effect, the next operation ends well") {
  for (const auto code : {errc::internal, errc::unavailable, errc::busy, errc::not_found}) {
    sweep({Fault::When::before, Error{code, "as asked for"}});
    sweep({Fault::When::after, Error{code, "as asked for"}});
  }
}

TEST_CASE("a manager that is killed while it replaces a dead mount leaves a state that the next one completes") {
  int at = 0;
  for (bool came = true; came; ++at) {
    World world = fresh(true, false);
    const std::string dead = world.mounts.at("/srv/a");
    world.kill_device("/srv/a");
    world.kill_device(world.claims.at("/srv/a").staging);
    came = with_fault(world, at, {}, do_mount);
    CAPTURE(at);
    Process next(world);
    REQUIRE(do_mount(next));
    check_up(world);
    CHECK(world.mounts.at("/srv/a") != dead);
    CHECK(world.broken.empty());
  }
  CHECK(at > 8);
}

TEST_CASE("a manager that is killed while it sets a mount down never forgets to mount it again") {
  for (const auto when : {Fault::When::before, Fault::When::after}) {
    int at = 0;
    for (bool came = true; came; ++at) {
      World world = fresh(true, false);
      came = with_fault(world, at, {when, {}}, [](Process& process) { return process.set_down("/srv/a").has_value(); });
      CAPTURE(at);
      REQUIRE(world.claims.contains("/srv/a"));
      const Claim& claim = world.claims.at("/srv/a");
      CHECK((claim.again || claim.phase == Claim::Phase::mounted));
      Process next(world);
      REQUIRE(next.set_down("/srv/a"));
      CHECK(world.mounts.empty());
      REQUIRE(do_mount(next));
      check_up(world);
      CHECK(world.broken.empty());
    }
    CHECK(at > 5);
  }
}
