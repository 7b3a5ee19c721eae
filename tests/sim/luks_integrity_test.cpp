// Encrypted volumes with integrityMode: two mappings, one above the other, of which a death may leave either.
#include "encrypted.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

struct WithIntegrity : Encrypted {
  explicit WithIntegrity(const std::string& kms_id = "default") : Encrypted(kms_id) {
    wish.luks.integrity = "hmac-sha256";
  }
};

/// sweep() for such volumes.
template <class Story, class Look>
void sweep_integrity(Story story, Look look) {
  sweep(
      "default",
      [&](Encrypted& scene, auto arm) {
        scene.wish.luks.integrity = "hmac-sha256";
        story(scene, arm);
      },
      look);
}

}  // namespace

TEST_CASE("a volume with integrity is staged on two mappings, and unstaged it leaves neither of them nor its device") {
  WithIntegrity scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.mounted_from_mapping());
  CHECK(scene.device().integrity);
  CHECK(scene.image().luks->integrity);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.all_gone());
  scene.wish.luks = {};
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.device().integrity);
  CHECK(scene.image().generation == 1);
}

TEST_CASE(
    "the stage of a volume with integrity survives the agent's death at every step, for a filesystem and for a block "
    "volume",
    "[failure:102]") {
  const bool block = GENERATE(false, true);
  sweep_integrity(
      [&](Encrypted& scene, auto arm) {
        if (block) scene.as_block();
        scene.image().metadata[kState] = "encryptionPrepared";
        arm();
        CHECK(scene.insist(scene.wish) == errc::ok);
      },
      [&](Encrypted& scene) {
        CHECK(scene.device().mapping);
        CHECK(scene.device().integrity);
        CHECK(scene.world.kernel.mounts.size() == 1);
        CHECK(scene.image().luks->keys.size() == 1);
        CHECK(scene.image().generation == (block ? 0u : 1u));
        CHECK(scene.image().metadata[kState] == "encrypted");
        CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
      });
}

TEST_CASE("the unstage of a volume with integrity survives the agent's death at every step, without a secret") {
  sweep_integrity(
      [&](Encrypted& scene, auto arm) {
        REQUIRE(scene.stage() == errc::ok);
        arm();
        CHECK(scene.insist(plan::Unstaged{scene.wish.path}) == errc::ok);
      },
      [](Encrypted& scene) { CHECK(scene.all_gone()); });
}

TEST_CASE("an unstage after a death in the middle of the first stage leaves no mapping of a volume with integrity",
          "[failure:102]") {
  sweep_integrity(
      [&](Encrypted& scene, auto arm) {
        arm();
        try {
          const errc staged = scene.stage();
          CHECK(staged == errc::ok);
        } catch (const Crash&) {
          scene.kill_and_start();
        }
        CHECK(scene.insist(plan::Unstaged{scene.wish.path}) == errc::ok);
      },
      [](Encrypted& scene) { CHECK(scene.all_gone()); });
}

TEST_CASE("a volume with integrity is healed below both its mappings") {
  WithIntegrity scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.kill_and_start(true);
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(scene.device().alive);
  CHECK(scene.device().mapping);
  CHECK(scene.device().integrity);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume with integrity is not expanded, and it is staged as it is when its image has grown") {
  WithIntegrity scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.image().size = 2ull << 30;
  CHECK(scene.want(plan::Expanded{scene.wish.path, 2ull << 30}) == errc::failed_precondition);
  REQUIRE(scene.unstage() == errc::ok);
  scene.world.calls.before_call = [](const std::string& call) { CHECK(call != "luks resize"); };
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("a volume with integrity is not opened for many nodes, which would spoil each other's tags") {
  Calm calm;
  WithIntegrity scene;
  scene.world.hazards = &calm;
  scene.as_block();
  scene.wish.capability.shared = scene.image().shared = true;
  scene.encrypted_before("canary-passphrase");
  scene.image().luks->integrity = true;
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE("an option that is not allowed is told at the first stage, which leaves nothing behind") {
  Encrypted scene;
  scene.wish.luks.refused = "integrityMode 'crc32' is not allowed: use one of hmac-sha256, hmac-sha512";
  CHECK(scene.stage() == errc::invalid_argument);
  CHECK(scene.all_gone());
  CHECK_FALSE(scene.image().luks);
  scene.encrypted_before("canary-passphrase");
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("a volume with integrity that ceph-csi staged is unstaged without a record: both mappings go first") {
  WithIntegrity scene;
  const auto index = scene.world.ceph_csi.stages(kId, scene.wish.path);
  scene.world.disk.stashes[scene.wish.path].encrypted = true;
  scene.image().luks = FakeLuks{.keys = {{0, "x"}}, .passphrase = {}, .integrity = true};
  scene.device().map_as(plan::mapping_name(kId), scene.device().size - kLuksHeader - kLuksTags, true);
  scene.world.kernel.mounts.front().dev_major = kMappingMajor;
  scene.world.kernel.mounts.front().dev_minor = index;
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.all_gone());
}

TEST_CASE("a format that does not end keeps the turn from no volume of another cluster", "[failure:205]") {
  WithIntegrity scene;
  scene.world.disk.clusters.insert("other");
  std::map<std::string, errc> ended;
  for (const char* id : {"a", "b", "c"}) {
    scene.world.cluster.images[id].id = id;
    auto wish = encrypted_wish(id);
    wish.luks.integrity = "hmac-sha256";
    if (*id == 'c') wish.source.cluster_id = "other";
    asio::co_spawn(
        scene.loop.io, scene.world.agent.shell().want(id, wish, {}),
        [&ended, id](std::exception_ptr, result<> outcome) { ended[id] = outcome ? errc::ok : outcome.error().code; });
    if (*id == 'a') {
      scene.world.calls.delayed = "luks format";
      scene.loop.advance(std::chrono::seconds(5));
    }
  }
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(ended == std::map<std::string, errc>{{"c", errc::ok}});
  scene.loop.advance(std::chrono::minutes(3));
  CHECK(ended.size() == 3);
}

TEST_CASE("a volume whose header has integrity is not opened with discards, and is not trimmed") {
  WithIntegrity scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.want(plan::Trimmed{scene.wish.path}) == errc::unimplemented);
  REQUIRE(scene.unstage() == errc::ok);
  scene.wish.luks = {};
  scene.wish.luks.discard = true;
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
}
