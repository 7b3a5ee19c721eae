// Encrypted volumes: header and mapping survive the agent's death at any step, and nothing is formatted that was not
// proven empty.
#include "encrypted.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

const std::string kMarker = "corbd/format";
constexpr std::uint64_t kTwice = 2ull << 30;

}  // namespace

TEST_CASE(
    "an encrypted volume gets a header and a filesystem on its mapping, and unstaged it leaves neither mapping nor "
    "device") {
  Encrypted scene(GENERATE("default", "own", "kept"));
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.mounted_from_mapping());
  CHECK(scene.image().luks->keys.size() == 1);
  CHECK(scene.image().metadata[kState] == "encrypted");
  CHECK_FALSE(scene.image().metadata.contains(kMarker));
  CHECK(scene.image().generation == 1);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.all_gone());
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.image().generation == 1);
}

TEST_CASE(
    "the stage of an encrypted volume survives the agent's death at every step, for a filesystem and for a block "
    "volume",
    "[failure:102]") {
  const bool block = GENERATE(false, true);
  const std::string kms_id = GENERATE("default", "own", "kept");
  sweep(
      kms_id,
      [&](Encrypted& scene, auto arm) {
        if (block) scene.as_block();
        scene.world.cluster.provision_encrypted(kId, kms_id);
        arm();
        CHECK(scene.insist(scene.wish) == errc::ok);
      },
      [&](Encrypted& scene) {
        CHECK(scene.device().mapping);
        CHECK(scene.world.kernel.mounts.size() == 1);
        CHECK(scene.image().generation == (block ? 0u : 1u));
        CHECK(scene.image().metadata[kState] == "encrypted");
        CHECK_FALSE(scene.image().metadata.contains(kMarker));
      });
}

TEST_CASE("the unstage of an encrypted volume survives the agent's death at every step, without a secret") {
  sweep(
      "default",
      [&](Encrypted& scene, auto arm) {
        REQUIRE(scene.stage() == errc::ok);
        arm();
        CHECK(scene.insist(plan::Unstaged{scene.wish.path}) == errc::ok);
      },
      [](Encrypted& scene) { CHECK(scene.all_gone()); });
}

TEST_CASE("an encrypted volume is unstaged without the cluster") {
  Encrypted scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.calls.before_call = [](const std::string& call) {
    for (const char* asked : {"set metadata", "get metadata", "ownership", "open image", "unwrap key"})
      CHECK(call != asked);
  };
  CHECK(scene.unstage() == errc::ok);
}

TEST_CASE("an expansion of an encrypted volume survives the agent's death at every step, and fills the mapping") {
  sweep(
      "default",
      [&](Encrypted& scene, auto arm) {
        REQUIRE(scene.stage() == errc::ok);
        scene.image().size = kTwice;
        arm();
        CHECK(scene.insist(plan::Expanded{scene.wish.path, kTwice}) == errc::ok);
      },
      [](Encrypted& scene) {
        CHECK(scene.device().mapping == kTwice - kLuksHeader);
        CHECK(scene.image().filesystem_bytes == kTwice - kLuksHeader);
      });
}

TEST_CASE("an image with unencrypted data is neither opened nor formatted, whatever its metadata says",
          "[failure:103]") {
  Encrypted scene;
  scene.filled();
  scene.image().metadata[kState] = GENERATE("encryptionPrepared", "encrypted", "");
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  CHECK_FALSE(scene.image().luks);
}

TEST_CASE("an image without a signature but with data gets no header", "[failure:103]") {
  Encrypted scene;
  scene.image().data = true;
  scene.image().metadata[kState] = "encryptionPrepared";
  CHECK(scene.stage() == errc::not_empty);
  CHECK_FALSE(scene.image().luks);
}

TEST_CASE("an image that its metadata calls encrypted and that has no header is not formatted") {
  Encrypted scene;
  scene.image().metadata[kState] = "encrypted";
  CHECK(scene.stage() == errc::not_empty);
  CHECK_FALSE(scene.image().luks);
}

TEST_CASE("a LUKS header without a key is formatted anew only by the record whose format did not end",
          "[failure:102][rule:10]") {
  Encrypted scene;
  scene.world.calls.crash_in = "luks format";
  CHECK_THROWS_AS(scene.want(scene.wish), Crash);
  scene.kill_and_start();
  REQUIRE(scene.image().luks);
  REQUIRE(scene.image().luks->keys.empty());
  enum { own, of_another, nobodys };
  const auto whose = GENERATE(own, of_another, nobodys);
  if (whose != own) scene.image().metadata[kMarker] = "luksFormat by 10.0.0.2:0/5";
  if (whose == nobodys) scene.image().metadata.erase(kMarker);
  CHECK(scene.stage() == (whose == own ? errc::ok : whose == of_another ? errc::not_empty : errc::failed_precondition));
  CHECK(scene.image().luks->keys.size() == (whose == own ? 1u : 0u));
}

TEST_CASE("a stage opens a LUKS header whose metadata are missing, and writes them") {
  Encrypted scene;
  scene.encrypted_before("canary-passphrase");
  scene.image().metadata[kState] = "encryptionPrepared";
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.image().metadata[kState] == "encrypted");
}

TEST_CASE("a read-only stage of an encrypted volume opens it read-only and writes nothing") {
  Encrypted scene("own");
  scene.encrypted_before("right");
  scene.image().metadata = {{".rbd.csi.ceph.com/encrypted", "encrypted"},
                            {".rbd.csi.ceph.com/dek", "wrapped by canary-passphrase for image-1: right"}};
  const auto before = scene.image().metadata;
  scene.wish.capability.read_only = true;
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.mounted_from_mapping());
  CHECK(scene.image().metadata == before);
}

TEST_CASE("an encrypted volume that many nodes write is opened, but two nodes never make its header or its key") {
  Calm calm;
  Encrypted scene;
  scene.world.hazards = &calm;
  scene.as_block();
  scene.wish.capability.shared = scene.image().shared = true;
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  CHECK_FALSE(scene.image().luks);
  scene.encrypted_before("canary-passphrase");
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::failed_precondition);
  CHECK(scene.unstage() == errc::ok);
  scene.world.agent.kill();
  scene.world.hazards = nullptr;
}

TEST_CASE(
    "an encrypted volume that ceph-csi staged with rbd-nbd is adopted with its mapping, and one that the request calls "
    "otherwise is not") {
  Encrypted scene;
  const auto index = scene.world.ceph_csi.stages(kId, scene.wish.path);
  scene.world.ceph_csi.opens_luks(index, scene.wish.path, kId, "canary-passphrase");
  scene.world.disk.stashes[scene.wish.path].encrypted = false;
  CHECK(scene.stage() == errc::failed_precondition);
  scene.world.disk.stashes[scene.wish.path].encrypted = true;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.ceph_csi.daemons.contains(index));
  CHECK(scene.world.disk.records.front().encryption == plan::Encryption{plan::DeviceKms{"default"}});
  scene.world.ceph_csi.ends(index, false);
  scene.loop.advance(std::chrono::seconds(40));
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.all_gone());
}

TEST_CASE("an encrypted volume that ceph-csi staged is unstaged without a record: its mapping goes before its device") {
  Encrypted scene;
  const auto index = scene.world.ceph_csi.stages(kId, scene.wish.path);
  scene.world.ceph_csi.opens_luks(index, scene.wish.path, kId, "x");
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.all_gone());
  CHECK(scene.world.disk.stashes.empty());
}

TEST_CASE(
    "encryptionDiscard lets discards through from each opening on, and neither a death nor a repeated stage ends it") {
  Encrypted scene;
  scene.wish.luks.discard = true;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.device().mapping_discards);
  CHECK(scene.want(plan::Trimmed{scene.wish.path}) == errc::ok);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.device().mapping_discards);
  CHECK(scene.want(plan::Trimmed{scene.wish.path}) == errc::ok);
}

TEST_CASE("a mapping that is open without discards stays so at a repeated stage, and gets them with its next stage") {
  Encrypted scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK_FALSE(scene.device().mapping_discards);
  CHECK(scene.want(plan::Trimmed{scene.wish.path}) == errc::unimplemented);
  CHECK_THAT(scene.error(), ContainsSubstring("encryptionDiscard"));
  scene.wish.luks.discard = true;
  REQUIRE(scene.stage() == errc::ok);
  CHECK_FALSE(scene.device().mapping_discards);
  REQUIRE(scene.unstage() == errc::ok);
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.device().mapping_discards);
}
