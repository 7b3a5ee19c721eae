// Volumes with encrypted files: their folder and its key survive the agent's death at any step, and no key stays
// behind.
#include "encrypted.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

struct EncryptedFiles : Encrypted {
  explicit EncryptedFiles(const std::string& kms_id = "default") : Encrypted(kms_id) { as_files(); }
  errc publish() { return want(published(wish, "/target")); }
  errc unpublish() { return want(plan::Unpublished{"/target"}); }
  /// A filesystem with a folder, as an earlier stage left it.
  void staged_before(const std::string& secret = "canary-passphrase") {
    filled();
    image().encrypts = true;
    image().folder = FakeFolder{secret, wish.kms_id == "own"};
  }
  bool nothing_left() const { return all_gone() && world.kernel.keys_left == 0; }
};

void once(Encrypted& scene) {
  CHECK(scene.image().generation == 1);
  CHECK(scene.image().folder);
  CHECK_FALSE(scene.image().luks);
  CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
}

}  // namespace

TEST_CASE(
    "a volume with encrypted files gets a folder with a key, which pods see, and unstaged it leaves no key in the "
    "kernel") {
  EncryptedFiles scene(GENERATE("default", "own"));
  REQUIRE(scene.stage() == errc::ok);
  once(scene);
  CHECK(scene.device().folder_key);
  REQUIRE(scene.publish() == errc::ok);
  CHECK(scene.world.kernel.mounts.back().root == "/ceph-csi-encrypted");
  CHECK(scene.unpublish() == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.nothing_left());
  REQUIRE(scene.stage() == errc::ok);
  once(scene);
  CHECK(scene.device().folder_key);
}

TEST_CASE("the passphrase of a KMS that wraps keys opens the folder itself, as ceph-csi has it") {
  const std::string kms_id = GENERATE("default", "own");
  EncryptedFiles scene(kms_id);
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.image().folder->secret == "canary-passphrase");
  CHECK(scene.image().folder->passphrase == (kms_id == "own"));
}

TEST_CASE("the stage of a volume with encrypted files survives the agent's death at every step", "[failure:180]") {
  sweep(
      GENERATE("default", "own"),
      [&](Encrypted& scene, auto arm) {
        scene.as_files();
        arm();
        CHECK(scene.insist(scene.wish) == errc::ok);
        CHECK(scene.insist(published(scene.wish, "/target")) == errc::ok);
      },
      [](Encrypted& scene) {
        once(scene);
        CHECK(scene.device().folder_key);
        CHECK(scene.world.kernel.mounts.size() == 2);
      });
}

TEST_CASE(
    "the unstage of a volume with encrypted files survives the agent's death at every step, without a secret, and "
    "leaves no key",
    "[failure:180]") {
  sweep(
      "default",
      [&](Encrypted& scene, auto arm) {
        scene.as_files();
        REQUIRE(scene.stage() == errc::ok);
        arm();
        CHECK(scene.insist(plan::Unstaged{scene.wish.path}) == errc::ok);
      },
      [](Encrypted& scene) {
        CHECK(scene.all_gone());
        CHECK(scene.world.kernel.keys_left == 0);
      });
}

TEST_CASE("a stage opens the folder that an unstage had locked before it was interrupted", "[failure:180]") {
  EncryptedFiles scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.calls.crash_in = "unmount";
  CHECK_THROWS_AS(scene.unstage(), Crash);
  scene.kill_and_start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK_FALSE(scene.device().folder_key);
  CHECK(scene.publish() == errc::failed_precondition);
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.publish() == errc::ok);
}

TEST_CASE("an unstage at one of two staging paths leaves the folder open for the other") {
  EncryptedFiles scene;
  REQUIRE(scene.stage() == errc::ok);
  auto other = scene.wish;
  other.path = "/kubelet/staging/other";
  REQUIRE(scene.want(other) == errc::ok);
  REQUIRE(scene.unstage() == errc::ok);
  CHECK(scene.device().folder_key);
  CHECK(scene.want(plan::Unstaged{other.path}) == errc::ok);
  CHECK(scene.nothing_left());
}

TEST_CASE("a wrong passphrase does not open a folder, is told as such, and leaves nothing on the node",
          "[failure:181]") {
  EncryptedFiles scene(GENERATE("default", "own"));
  scene.staged_before("right");
  CHECK(scene.stage() == errc::unauthenticated);
  CHECK(scene.all_gone());
  CHECK(scene.image().folder->secret == "right");
  CHECK(scene.image().generation == 0);
}

TEST_CASE("no folder is encrypted that holds files, and none on a filesystem that cannot encrypt", "[failure:181]") {
  EncryptedFiles scene;
  scene.filled();
  scene.image().encrypts = scene.image().plain_files = GENERATE(false, true);
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  CHECK_FALSE(scene.image().folder);
}

TEST_CASE("encrypted files need a filesystem that encrypts folders, which is told before anything is mapped") {
  EncryptedFiles scene;
  scene.wish.capability.fstype = "xfs";
  if (GENERATE(false, true)) scene.as_block();
  CHECK(scene.stage() == errc::invalid_argument);
  CHECK(scene.all_gone());
  CHECK(scene.image().watchers.empty());
}

TEST_CASE("a KMS that has no secret for encrypted files is told before anything is mapped") {
  EncryptedFiles scene("kmip");
  scene.world.disk.kms["kmip"] = kms::Kind::wrapped;
  CHECK(scene.stage() == errc::unimplemented);
  CHECK(scene.all_gone());
  CHECK(scene.image().watchers.empty());
  scene.as_block();
  scene.wish.encryption_type = "block";
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("a read-only stage opens the folder that is there, and makes none") {
  EncryptedFiles scene;
  const bool made = GENERATE(false, true);
  scene.staged_before();
  if (!made) scene.image().folder.reset();
  scene.wish.capability.read_only = true;
  CHECK(scene.stage() == (made ? errc::ok : errc::failed_precondition));
  CHECK(scene.image().folder.has_value() == made);
}

TEST_CASE("a volume with encrypted files is healed under its pods with neither passphrase nor KMS") {
  EncryptedFiles scene("own");
  REQUIRE(scene.stage() == errc::ok);
  REQUIRE(scene.publish() == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.agent.kill();
  scene.world.disk.kms.clear();
  scene.world.agent.start(true);
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(scene.device().alive);
  CHECK(scene.device().folder_key);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.unpublish() == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.nothing_left());
}

TEST_CASE("a volume with encrypted files is served by the kernel's own client too") {
  EncryptedFiles scene;
  scene.wish.mounter = plan::Mounter::krbd;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.device().kind == device::Kind::krbd);
  CHECK(scene.device().folder_key);
  CHECK(scene.publish() == errc::ok);
  CHECK(scene.unpublish() == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.nothing_left());
}

TEST_CASE("a volume with encrypted files that was given up is unstaged") {
  EncryptedFiles scene;
  REQUIRE(scene.stage() == errc::ok);
  REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.nothing_left());
}

TEST_CASE("a volume with encrypted files that ceph-csi staged is adopted with its open folder") {
  EncryptedFiles scene;
  const auto index = scene.world.ceph_csi.stages(kId, scene.wish.path);
  scene.staged_before();
  scene.device().folder_key = true;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.ceph_csi.daemons.contains(index));
  CHECK(scene.world.disk.records.front().encryption == plan::Encryption{plan::FilesKms{"default"}});
  CHECK_FALSE(scene.world.disk.stashes.at(scene.wish.path).encrypted);
  scene.world.ceph_csi.ends(index, false);
  scene.loop.advance(std::chrono::seconds(40));
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.publish() == errc::ok);
  CHECK(scene.unpublish() == errc::ok);
  CHECK(scene.unstage() == errc::ok);
  CHECK(scene.nothing_left());
}
