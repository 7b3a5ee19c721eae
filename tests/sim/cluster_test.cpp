// What fails in the cluster, or at its other clients, while volumes are in use. docs/failures.md has the number of each
// story.
#include <algorithm>
#include <cerrno>

#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::Scene;
using test::staged;
using namespace std::chrono_literals;

namespace {

/// A staged volume with a healer and an application.
struct Used : Scene {
  Used() {
    world.hazards = &calm;
    world.agent.kill();
    world.agent.start(true);
    filled();
    REQUIRE(want(test::staged_wish(kId)) == errc::ok);
  }
  ~Used() {
    if (world.agent.running()) world.agent.kill();
    world.hazards = nullptr;
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  void writes(std::size_t block) { world.kernel.application_writes(device(), block); }
  volume::Health health() const { return world_status().health; }
  volume::Status world_status() const { return *const_cast<Used*>(this)->world.agent.shell().status(kId); }
  test::Calm calm;
};

const std::string kVisitor = "10.0.0.2:0/5";

}  // namespace

TEST_CASE("while the cluster answers nothing requests wait without an error, and a new stage is told so in time",
          "[failure:13][failure:14]") {
  Used scene;
  scene.world.cluster.dead = true;
  scene.writes(0);
  scene.world.cluster.images["image-2"].id = "id-2";
  CHECK(scene.want(test::staged_wish("image-2"), "image-2") == errc::unreachable);
  scene.loop.advance(10min);
  CHECK(scene.device().requests.size() == 1);
  CHECK(scene.health() == volume::Health::staged);
  scene.world.cluster.revive();
  scene.loop.advance(1s);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("an agent that starts while the cluster answers nothing serves again soon after it does", "[failure:13]") {
  Used scene;
  scene.writes(0);
  scene.world.agent.kill();
  scene.world.cluster.dead = true;
  scene.world.agent.start(true);
  scene.loop.advance(10min);
  CHECK_FALSE(scene.device().alive);
  scene.world.cluster.revive();
  scene.loop.advance(2min);
  CHECK(scene.device().alive);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE(
    "requests that the cluster takes longer for than the kernel's timer are answered once, without an error or a new "
    "link",
    "[failure:5][rule:5]") {
  Used scene;
  const int link = scene.device().link;
  scene.world.cluster.slow = 45s;
  for (const std::size_t block : {0, 1, 2}) scene.writes(block);
  scene.loop.advance(44s);
  CHECK(scene.world.kernel.answered == 0);
  scene.loop.advance(2s);
  CHECK(scene.world.kernel.answered == 3);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.device().link == link);
}

TEST_CASE("an unknown error is held back from the application until it has passed, and the volume's status names it",
          "[failure:131]") {
  Used scene;
  scene.world.cluster.odd_error = EBADE;
  scene.writes(0);
  scene.loop.advance(10min);
  CHECK(scene.device().requests.size() == 1);
  CHECK(scene.world.kernel.errors == 0);
  const auto timeline = scene.world.agent.shell().timeline(kId);
  const auto told = [](const volume::Change& change) { return change.why.find("errno 52") != std::string::npos; };
  CHECK(std::ranges::any_of(timeline, told));
  // Not as fast as the requests fail.
  CHECK(scene.world_status().counts.links_lost < 60);
  scene.world.cluster.odd_error = 0;
  scene.loop.advance(2min);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume whose image does not open because its pool is full says so, and is served once there is room",
          "[failure:131]") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.cluster.full_pools = {1};
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::pool_full);
  CHECK(scene.error().find("pool pool is full") != std::string::npos);
  scene.world.cluster.full_pools.clear();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("a cluster that does not answer is not called full, even if it was", "[failure:131]") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.kill_and_start();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "fence") scene.world.cluster.full_pools = {1};
    if (call == "why full") scene.world.cluster.dead = true;
  };
  CHECK(scene.want(plan::Healed{}) == errc::unreachable);
}

TEST_CASE("a write that a full cluster or a quota refuses waits until there is room", "[failure:131][rule:9]") {
  for (const int refused : {ENOSPC, EDQUOT}) {
    INFO(refused);
    Used scene;
    scene.world.cluster.odd_error = refused;
    scene.writes(0);
    scene.loop.advance(10min);
    CHECK(scene.world.kernel.errors == 0);
    scene.world.cluster.odd_error = 0;
    scene.loop.advance(2min);
    CHECK(scene.world.kernel.answered == 1);
    CHECK(scene.world.kernel.errors == 0);
  }
}

TEST_CASE("an operator can give up a volume whose requests fail with an unknown error", "[failure:131]") {
  Used scene;
  scene.world.cluster.odd_error = EBADE;
  scene.writes(0);
  scene.loop.advance(1min);
  CHECK(scene.want(plan::GivenUp{}) == errc::ok);
  scene.loop.advance(10s);
  CHECK(scene.health() == volume::Health::failed);
  CHECK(scene.world.kernel.errors == 1);
}

TEST_CASE("a client that the cluster cuts off while it writes is replaced, and nothing of it reaches the application",
          "[failure:15][rule:9]") {
  Used scene;
  const std::string first = scene.world.agent.client();
  scene.writes(0);
  scene.world.cluster.blocklist(first);
  scene.loop.advance(30s);
  CHECK(scene.device().alive);
  CHECK(scene.world.agent.client() != first);
  CHECK(scene.image().lock_owner == scene.world.agent.client());
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE(
    "a lock that another node takes by force ends the writing at once; its requests get their errors after a minute",
    "[failure:16][rule:2b]") {
  Used scene;
  REQUIRE(scene.world.cluster.visit(scene.image(), kVisitor, true));
  scene.writes(0);
  scene.loop.advance(50s);
  CHECK(scene.health() == volume::Health::lost);
  CHECK(scene.device().requests.size() == 1);
  CHECK(scene.world.kernel.errors == 0);
  scene.loop.advance(3min);
  CHECK(scene.health() == volume::Health::failed);
  CHECK(scene.world.kernel.errors == 1);
  CHECK(scene.image().lock_owner == kVisitor);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
}

TEST_CASE(
    "an image that was removed while its agent was down is lost, and its requests get their errors after a minute",
    "[failure:17]") {
  Used scene;
  scene.writes(0);
  scene.world.agent.kill();
  scene.loop.advance(1min);
  scene.world.cluster.remove_image(kId);
  REQUIRE_FALSE(scene.world.cluster.images.contains(kId));
  scene.world.agent.start(true);
  scene.loop.advance(50s);
  CHECK(scene.health() == volume::Health::lost);
  CHECK(scene.world.kernel.errors == 0);
  scene.loop.advance(3min);
  CHECK(scene.health() == volume::Health::failed);
  CHECK(scene.world.kernel.errors == 1);
}

TEST_CASE("a key that the cluster refuses ends the stage for good, and nothing is left of it", "[failure:31]") {
  Scene scene;
  scene.world.cluster.users.at("node") = Secret("another key");
  CHECK(scene.want(test::staged_wish(kId)) == errc::unauthenticated);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.disk.keys.empty());
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE(
    "a key that was changed, or lost, while the agent was down comes with the next stage; until then the device "
    "waits",
    "[failure:31]") {
  Used scene;
  scene.writes(0);
  scene.world.agent.kill();
  const bool lost = GENERATE(false, true);
  auto wish = test::staged_wish(kId);
  if (lost) {
    scene.world.disk.keys.clear();
  } else {
    wish.credential.key = scene.world.cluster.users.at("node") = Secret("the new key");
  }
  scene.world.agent.start(true);
  scene.loop.advance(2min);
  CHECK_FALSE(scene.device().alive);
  CHECK(scene.want(wish) == errc::ok);
  scene.loop.advance(10s);
  CHECK(scene.device().alive);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.disk.keys.at(kId) == wish.credential.key);
}

TEST_CASE(
    "a wrong key that comes with a stage of a volume that is served does not keep it from being healed by the right "
    "one") {
  Used scene;
  auto wish = test::staged_wish(kId);
  wish.credential.key = Secret("a key of a secret that was edited badly");
  CHECK(scene.want(wish) == errc::ok);
  scene.world.cluster.blocklist(scene.world.agent.client());
  scene.writes(0);
  scene.loop.advance(10s);
  CHECK(scene.world.kernel.answered == 1);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.keys.at(kId) == scene.world.cluster.users.at("node"));
}

TEST_CASE("a wrong key that comes while nobody serves the volume fails that stage, and the right one heals") {
  Used scene;
  scene.world.agent.kill();
  scene.world.agent.start();
  auto wish = test::staged_wish(kId);
  wish.credential.key = Secret("a key of a secret that was edited badly");
  CHECK(scene.want(wish) == errc::unauthenticated);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
  CHECK(scene.world.disk.keys.at(kId) == scene.world.cluster.users.at("node"));
}

TEST_CASE(
    "a new key from a stage of a served volume heals it once the cluster refuses the old one, even after a restart") {
  Used scene;
  auto wish = test::staged_wish(kId);
  wish.credential.key = Secret("the new key");
  CHECK(scene.want(wish) == errc::ok);
  scene.world.cluster.users.at("node") = wish.credential.key;
  scene.world.cluster.blocklist(scene.world.agent.client());
  scene.writes(0);
  scene.loop.advance(10s);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.disk.keys.at(kId) == wish.credential.key);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

// changes X7
TEST_CASE("a client that is still denied what its user has got back is replaced, and no request gets an error",
          "[failure:222]") {
  Used scene;
  const std::string first = scene.world.agent.client();
  scene.world.cluster.denied.insert(first);
  scene.writes(0);
  scene.loop.advance(1min);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.image().lock_owner != first);
  CHECK(scene.world.cluster.cut_off_clients().contains(first));
  CHECK(scene.world.cluster.retired == std::set{first});
}

TEST_CASE("a client that is denied what a new one would be denied too is not given up", "[failure:222]") {
  Used scene;
  const std::string first = scene.world.agent.client();
  scene.world.cluster.denied.insert(first);
  (GENERATE(true, false) ? scene.world.cluster.without_caps : scene.world.cluster.readers).insert("node");
  scene.writes(0);
  scene.loop.advance(10min);
  CHECK(scene.image().lock_owner == first);
  CHECK(scene.world.kernel.errors == 0);
  scene.world.cluster.denied.clear();
  scene.loop.advance(2min);
  CHECK(scene.world.kernel.answered == 1);
}

// field report 13
TEST_CASE("a user who may not fence dead clients is told of while the volume is staged", "[failure:222]") {
  Scene scene;
  scene.kill_and_start(true);
  scene.world.cluster.cannot_fence["node"] = "user node may not";
  auto wish = staged();
  wish.mounter = GENERATE(plan::Mounter::nbd, plan::Mounter::krbd);
  REQUIRE(scene.want(wish) == errc::ok);
  REQUIRE(scene.world.notices.size() == 1);
  CHECK(scene.world.notices.front().second.reason == "FencingNotAllowed");
  CHECK_THAT(scene.world.notices.front().second.message, ContainsSubstring("user node may not"));
}

TEST_CASE("the successor of an agent that ended cleanly answers the requests sent in between", "[failure:48]") {
  Used scene;
  scene.world.agent.stop();
  scene.writes(0);
  scene.loop.advance(10s);
  scene.world.agent.start(true);
  scene.loop.advance(10s);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume whose client is cut off between opening the image and serving it opens the image again",
          "[failure:15]") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  scene.world.agent.start();
  scene.world.calls.fail_at = 4;  // after fence, open and quiesce mode: the look at its owner
  REQUIRE(scene.want(plan::Healed{}) == errc::unreachable);
  scene.world.cluster.blocklist(scene.world.agent.client());
  CHECK(scene.want(plan::Healed{}) == errc::fenced);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().alive);
}

TEST_CASE("an agent may go by a blocklist entry that was taken away only if it ran then, until a further entry comes") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const auto client = scene.world.agent.client();
  auto& cluster = scene.world.cluster;
  cluster.blocklist(client);
  CHECK_FALSE(cluster.had_entry(client, scene.world));
  cluster.take_entries_away();
  CHECK_FALSE(cluster.has_entry(client));
  CHECK(cluster.had_entry(client, scene.world));
  scene.kill_and_start();
  CHECK_FALSE(cluster.had_entry(client, scene.world));
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(cluster.has_entry(client));
  CHECK_FALSE(cluster.had_entry(client, scene.world));
}
