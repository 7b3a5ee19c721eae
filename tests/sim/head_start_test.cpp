// What the next agent opens before it takes over, and what the present one says to that.
#include "corbd/volume/condition.hpp"
#include "scene.hpp"

using namespace corbd;
using Catch::Matchers::ContainsSubstring;
using test::kId;
using test::Scene;
using test::staged;
using namespace std::chrono_literals;

namespace {

using Found = std::map<std::string, std::string>;

std::vector<std::string> unopened(Scene& scene) {
  const auto opened = scene.loop.run(scene.world.agent.shell().preopen({}));
  REQUIRE(opened);
  return *opened;
}

Found not_again(Scene& scene, std::vector<std::string> ids = {kId}) {
  return scene.loop.run(scene.world.agent.shell().not_again(std::move(ids), {scene.loop.clock.now() + 30s}));
}

/// Two other clusters are mapped to it.
void lose_cluster_id(Scene& scene) {
  scene.world.disk.clusters.clear();
  scene.world.disk.strangers = {"other", "third"};
  scene.world.disk.mapped = {{"other", 1}, {"third", 1}};
}

std::vector<std::string> stage_four(Scene& scene) {
  std::vector<std::string> ids;
  for (const char* id : {"image-2", "image-3", "image-4", "image-5"}) {
    scene.world.cluster.images[id].id = std::string("id of ") + id;
    REQUIRE(scene.want(test::staged_wish(id), id) == errc::ok);
    ids.emplace_back(id);
  }
  return ids;
}

int asked(Scene& scene, const std::string& what, const std::function<void()>& during) {
  int times = 0;
  scene.world.calls.before_call = [&](const std::string& call) { times += call == what ? 1 : 0; };
  during();
  scene.world.calls.before_call = nullptr;
  return times;
}

/// Another agent's record: of another node or driver.
void rename_record(Scene& scene, bool node) {
  auto& record = scene.world.disk.records.front();
  (node ? record.names.node : record.names.driver) = "another";
}

}  // namespace

TEST_CASE("a next agent of another driver or node leaves to its predecessor what only a VolumeAttachment proves",
          "[failure:193]") {
  Scene scene;
  const bool locked_when_staged = GENERATE(false, true);
  scene.image().exclusive = locked_when_staged;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.image().exclusive = false;
  rename_record(scene, GENERATE(true, false));
  scene.world.attachment.maybe_away = true;
  CHECK(unopened(scene) == std::vector<std::string>{kId});
}

TEST_CASE("a volume that was staged under another name is opened ahead if its lock proves it, or no API server answers",
          "[failure:193]") {
  Scene scene;
  const bool locks = GENERATE(true, false);
  scene.image().exclusive = locks;
  REQUIRE(scene.want(staged()) == errc::ok);
  rename_record(scene, GENERATE(true, false));
  scene.world.attachment = {};
  scene.world.attachment.maybe_away = locks;
  CHECK(unopened(scene).empty());
}

TEST_CASE("a next agent of another name asks an API server that is slow again before it takes over what has no lock") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged()) == errc::ok);
  rename_record(scene, GENERATE(true, false));
  scene.world.attachment = {};
  scene.world.loop().outside_in(3s, [&] { scene.world.attachment.maybe_away = true; });
  CHECK(unopened(scene) == std::vector<std::string>{kId});
}

TEST_CASE("an image that is gone from its cluster, or whose user has lost its rights, could not be opened again",
          "[failure:267]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(not_again(scene).empty());
  if (GENERATE(true, false))
    scene.image().id = "of another image";
  else
    scene.world.cluster.without_caps.insert("node");
  CHECK(not_again(scene).contains(kId));
}

TEST_CASE("a served image that gets a feature that nobody serves, or is demoted, could not be opened again",
          "[failure:232]") {
  Scene scene;
  scene.filled();
  auto wish = test::staged_wish(kId);
  wish.capability.read_only = GENERATE(false, true);
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(not_again(scene).empty());
  constexpr std::uint64_t unknown = 1 << 13;
  if (GENERATE(true, false))
    scene.image().secondary = true;
  else
    scene.image().features |= wish.capability.read_only ? test::FakeImage::kDirtyCache : unknown;
  CHECK(unopened(scene) == std::vector<std::string>{kId});
  CHECK(not_again(scene).contains(kId));
  const auto status = scene.world.agent.shell().status(kId);
  CHECK_FALSE(status->unserved);
  CHECK(volume::condition_of(*status).reason == "NotServedAgain");
}

TEST_CASE("a cache that a pool switched on is found by whoever asks whether an image could be opened again",
          "[failure:232]") {
  Scene scene;
  scene.image().exclusive = GENERATE(true, false);
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.cluster.pools_cache = true;
  CHECK(unopened(scene) == std::vector<std::string>{kId});
  CHECK(not_again(scene).contains(kId));
}

TEST_CASE("a volume that was given up keeps no next agent from taking over, although nobody could open its image") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  scene.image().id = "of another image";
  CHECK(unopened(scene).empty());
  CHECK(not_again(scene).empty());
}

TEST_CASE("a malformed config.json is no reason to hand over without a served volume", "[failure:267]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.config_malformed = true;
  CHECK(unopened(scene) == std::vector<std::string>{kId});
  CHECK(not_again(scene).empty());
}

TEST_CASE("a volume whose clusterID is gone for good could not be opened again, and the reason names the clusterID",
          "[failure:269]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const std::string cluster = scene.world.agent.shell().status(kId)->cluster_id;
  scene.world.disk.clusters.clear();
  // None of several is the volume's own.
  const bool mapped = GENERATE(false, true);
  if (mapped) {
    scene.world.disk.strangers = {"other", "third"};
    scene.world.disk.mapped = {{"other", 1}, {"third", 1}};
  }
  CHECK(unopened(scene) == std::vector<std::string>{kId});
  const auto found = not_again(scene);
  REQUIRE(found.contains(kId));
  CHECK_THAT(found.at(kId), ContainsSubstring(cluster) && ContainsSubstring(mapped ? "third" : cluster));
  CHECK_FALSE(scene.world.agent.shell().status(kId)->unserved);
}

TEST_CASE(
    "a served volume whose clusterID is gone has a condition that says so, and a malformed config.json gives it none",
    "[failure:269]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const auto now = [&] { return volume::condition_of(*scene.world.agent.shell().status(kId)); };
  CHECK(now().reason.empty());
  scene.world.disk.config_malformed = true;
  CHECK(now().reason.empty());
  scene.world.disk.config_malformed = false;
  scene.world.disk.clusters.clear();
  CHECK(now().reason == "NotServedAgain");
  CHECK_THAT(now().message, ContainsSubstring("no cluster lab"));
  CHECK(volume::condition_of(scene.world.agent.shell().overview().volumes.front()).reason == "NotServedAgain");
  scene.world.disk.mapped = {{"other", 1}};
  scene.world.disk.clusters = {"other"};
  CHECK(now().reason.empty());
}

TEST_CASE("a cluster that does not tell whose it is is no reason to hand over without a served volume",
          "[failure:269]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  lose_cluster_id(scene);
  scene.world.cluster.dead = true;
  CHECK(not_again(scene).empty());
}

TEST_CASE("the cluster of a lost clusterID is looked for once by whoever asks what could be opened again",
          "[failure:269]") {
  Scene scene;
  const auto ids = stage_four(scene);
  lose_cluster_id(scene);
  Found found;
  CHECK(asked(scene, "connect in vain", [&] { found = not_again(scene, ids); }) == 2);
  CHECK(found.size() == ids.size());
}

TEST_CASE("a user that lacks its rights to a pool is asked about once, however many volumes it has there",
          "[failure:267]") {
  Scene scene;
  const auto ids = stage_four(scene);
  scene.world.cluster.without_caps.insert("node");
  Found found;
  CHECK(asked(scene, "may serve anew", [&] { found = not_again(scene, ids); }) == 1);
  CHECK(found.size() == ids.size());
}

TEST_CASE(
    "before a handover a user is asked once for its right to write to a pool, however many volumes it has there") {
  Scene scene;
  stage_four(scene);
  CHECK(asked(scene, "may write", [&] { CHECK(unopened(scene).empty()); }) == 1);
}

TEST_CASE("an image is opened ahead although a user that may only read serves it, if it is only read") {
  Scene scene;
  scene.filled();
  auto wish = test::staged_wish(kId);
  wish.capability.read_only = true;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.cluster.readers.insert("node");
  CHECK(unopened(scene).empty());
}

TEST_CASE("before a handover the cluster of a lost clusterID is looked for once, however many volumes it has",
          "[failure:221]") {
  Scene scene;
  const auto ids = stage_four(scene);
  lose_cluster_id(scene);
  std::vector<std::string> left;
  CHECK(asked(scene, "connect in vain", [&] { left = unopened(scene); }) == 2);
  CHECK(left.size() == ids.size());
}
