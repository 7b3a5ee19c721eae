// Volumes that the kernel's own RBD client serves: in use, without the agent, after a reboot, and unmapped.
#include <algorithm>

#include "corbd/volume/condition.hpp"
#include "krbd.hpp"

using namespace corbd;
using namespace corbd::test;
using Catch::Matchers::ContainsSubstring;
using plan::Wish;

TEST_CASE("a kernel's device is served on without the agent, and the next one finds it well") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.kill_and_start(true);
  scene.loop.advance(std::chrono::minutes(2));
  const auto status = *scene.world.agent.shell().status(kId);
  CHECK(status.health == volume::Health::staged);
  CHECK(status.kind == device::Kind::krbd);
  CHECK_FALSE(status.unserved);
  const int calls = scene.world.calls.made;
  CHECK(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.world.calls.made == calls);
}

TEST_CASE("a kernel's device keeps the user that mapped it, and tells that it is to have the rotated one", "[krbd]") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  const auto keys = [&] { return scene.world.agent.shell().status(kId)->keys; };
  CHECK(keys().present == volume::shown("node", krbd_staged().credential.key));
  auto again = krbd_staged();
  again.credential = {"node.1", Secret("the rotated key")};
  scene.world.cluster.users[again.credential.user] = again.credential.key;
  REQUIRE(scene.want(again) == errc::ok);
  CHECK(keys().present->user == "node");
  REQUIRE(keys().next);
  CHECK(keys().next->user == "node.1");
  CHECK_THAT(keys().why_not, ContainsSubstring("unstaged"));
  // Another agent cannot know the key that an earlier one gave to the kernel.
  scene.kill_and_start(true);
  CHECK(keys().present->user == "node");
  CHECK(keys().present->fingerprint.empty());
  CHECK(keys().next->user == "node.1");
}

TEST_CASE("a kernel's device is unstaged without a key and without the cluster") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.world.disk.keys.clear();
  scene.kill_and_start();
  scene.world.cluster.dead = true;
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("after a reboot the volume is staged again once the old kernel's watch is gone") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.world.reboot();
  scene.world.agent.start();
  CHECK(scene.want(krbd_staged()) == errc::in_use);
  scene.loop.advance(std::chrono::seconds(40));
  CHECK(scene.want(krbd_staged()) == errc::ok);
}

TEST_CASE("after a reboot, and when somebody unmapped it, a kernel's device is absent, not staged", "[failure:113]") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  const auto health = [&] { return scene.world.agent.shell().status(kId)->health; };
  if (GENERATE(false, true)) {
    scene.world.reboot();
    scene.world.agent.start();
  } else {
    scene.world.kernel.devices.clear();
    CHECK(scene.want(plan::Healed{}) == errc::ok);
  }
  CHECK(health() == volume::Health::absent);
}

TEST_CASE("a kernel's device does not count as unserved after the agent was away") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.kill_and_start();
  CHECK_FALSE(scene.world.agent.shell().status(kId)->unserved_since);
}

TEST_CASE("a volume whose kernel client the cluster cut off says so until it is mapped anew, whoever cut it off",
          "[failure:268]") {
  Scene scene;
  scene.kill_and_start(true);
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  const auto client = scene.world.kernel.rbd_client();
  const auto status = [&] { return *scene.world.agent.shell().status(kId); };
  scene.loop.advance(std::chrono::minutes(5));
  REQUIRE(condition_of(status()).kind == volume::Condition::Kind::healthy);
  const bool whole_node = GENERATE(false, true);
  if (whole_node)
    scene.world.cluster.fenced_hosts.insert(scene.world.agent.node_address);
  else
    scene.world.cluster.blocklist(client, std::chrono::hours(1));
  scene.loop.advance(std::chrono::minutes(5));
  CHECK(condition_of(status()).reason == "ClientFenced");
  CHECK(condition_of(status()).kind == volume::Condition::Kind::inaccessible);
  CHECK_THAT(condition_of(status()).message, ContainsSubstring(client));
  CHECK(status().last_error->code == errc::fenced);
  CHECK(std::ranges::count_if(scene.world.notices,
                              [](const auto& one) { return one.second.reason == "ClientFenced"; }) == 1);
  scene.world.cluster.fenced_hosts.clear();
  scene.loop.advance(std::chrono::hours(2));
  CHECK(condition_of(status()).reason == "ClientFenced");
  REQUIRE(scene.want(unstaged()) == errc::ok);
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK(condition_of(status()).kind == volume::Condition::Kind::healthy);
}

TEST_CASE("a blocklist that cannot be read says nothing of a kernel's device", "[failure:268]") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.world.cluster.blocklist(scene.world.kernel.rbd_client(), std::chrono::hours(1));
  scene.world.cluster.dead = true;
  scene.loop.advance(std::chrono::minutes(5));
  CHECK(condition_of(*scene.world.agent.shell().status(kId)).kind == volume::Condition::Kind::healthy);
}

TEST_CASE("a kernel's device is not given up") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.want(Wish(plan::GivenUp{})) == errc::failed_precondition);
  CHECK_FALSE(scene.world.disk.records.front().failed);
}

TEST_CASE("an expansion of a kernel's device waits until the kernel has seen it") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.want(plan::Expanded{krbd_staged().path, kGrown}) == errc::unavailable);
}

TEST_CASE("a format that the kernel's device was in is repeated only while its lock stayed the kernel's", "[rule:10]") {
  Scene scene;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, krbd_staged()), Crash);
  scene.kill_and_start();
  const int what = GENERATE(range(0, 5));
  CAPTURE(what);
  if (what == 1) scene.image().changed();  // the lock went to another client and came back
  if (what == 2) scene.image().lock_owner = kStranger;
  if (what == 3) scene.world.disk.records.front().format->version.reset();  // an earlier version's
  if (what == 4) scene.image().data = scene.image().only_formatted = false;
  if (what == 4) scene.image().changed();
  scene.kill_and_start();
  const bool repeated = what == 0 || what == 4;
  CHECK(scene.want(krbd_staged()) == (repeated ? errc::ok : errc::not_empty));
  CHECK(scene.image().generation == (repeated ? 1u : 0u));
}

TEST_CASE("without the exclusive lock a format by the kernel's client is not repeated unless the image is empty") {
  Scene scene;
  scene.image().exclusive = false;
  scene.world.calls.crash_in = "mkfs";
  CHECK_THROWS_AS(scene.world.agent.want(kId, krbd_staged()), Crash);
  scene.kill_and_start();
  CHECK(scene.want(krbd_staged()) == errc::not_empty);
  CHECK(scene.image().generation == 0);
}
