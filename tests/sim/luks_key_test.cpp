// The keys of encrypted volumes: where they come from, who needs them, and how they are rotated.
#include "encrypted.hpp"

using namespace corbd;
using namespace corbd::test;

TEST_CASE("a served encrypted volume is healed with neither passphrase nor KMS", "[failure:172]") {
  Encrypted scene("own");
  REQUIRE(scene.stage() == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.agent.kill();
  scene.world.disk.kms.clear();
  scene.world.agent.start(true);
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(scene.device().alive);
  CHECK(scene.device().mapping);
  CHECK(scene.world.kernel.answered == 1);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a repeated stage of an encrypted volume is done without deriving a key") {
  Encrypted scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.calls.made = 0;
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.world.calls.made == 0);
}

TEST_CASE("a wrong passphrase is told as such, and leaves the header, the data and nothing on the node",
          "[failure:101]") {
  Encrypted scene(GENERATE("default", "own"));
  scene.encrypted_before("right");
  if (scene.wish.kms_id == "own") scene.image().metadata[kKey] = "wrapped by another for image-1: right";
  CHECK(scene.stage() == errc::unauthenticated);
  CHECK(scene.all_gone());
  CHECK(scene.image().luks->keys.size() == 1);
  CHECK(scene.image().generation == 0);
}

TEST_CASE("metadata under ceph-csi's older names are read, and move to the newer ones") {
  Encrypted scene("own");
  scene.encrypted_before("right");
  scene.image().metadata = {{".rbd.csi.ceph.com/encrypted", "encrypted"},
                            {".rbd.csi.ceph.com/dek", "wrapped by canary-passphrase for image-1: right"}};
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.image().metadata ==
        std::map<std::string, std::string>{{kState, "encrypted"},
                                           {kKey, "wrapped by canary-passphrase for image-1: right"}});
}

TEST_CASE("a KMS that is not served, and a missing passphrase, are told before anything is mapped", "[failure:104]") {
  Encrypted scene;
  const bool known = GENERATE(false, true);
  if (known) scene.wish.passphrase = {};
  if (!known) scene.wish.kms_id = "unknown";
  CHECK(scene.stage() == (known ? errc::invalid_argument : errc::unimplemented));
  CHECK(scene.all_gone());
  CHECK(scene.image().watchers.empty());
}

TEST_CASE("a volume whose KMS stores its key needs no passphrase, and its key outlives it there") {
  Encrypted scene("kept");
  scene.wish.passphrase = {};
  REQUIRE(scene.stage() == errc::ok);
  const auto key = scene.world.cluster.kept_keys.at(kId).key;
  CHECK(scene.image().luks->keys.at(0) == key);
  CHECK_FALSE(scene.image().metadata.contains(kKey));
  REQUIRE(scene.unstage() == errc::ok);
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.world.cluster.kept_keys.at(kId).key == key);
}

TEST_CASE("a volume that a provisioner prepared, but whose key is not found, gets no other key and no header",
          "[failure:173]") {
  Encrypted scene(GENERATE("own", "kept", "plain"));
  scene.image().metadata[kState] = "encryptionPrepared";
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK_FALSE(scene.image().luks);
  CHECK(scene.world.cluster.kept_keys.empty());
  CHECK_FALSE(scene.image().metadata.contains(kKey));
  CHECK(scene.all_gone());
}

TEST_CASE("what a KMS refuses for good at the first stage is told as that, and leaves nothing behind",
          "[failure:202]") {
  Encrypted scene(GENERATE("own", "kept", "plain"));
  const bool files = scene.wish.kms_id != "own" && GENERATE(false, true);
  if (files) scene.as_files();
  scene.world.calls.error = Error{errc::permission_denied, "the role may not"};
  scene.world.calls.before_call = [&calls = scene.world.calls](const std::string& call) {
    if (call == "wrap key" || call == "store key") calls.fail_at = 1;
  };
  CHECK(scene.stage() == errc::permission_denied);
  CHECK(scene.all_gone());
  CHECK_FALSE(scene.image().metadata.contains("corbd/format"));
  CHECK(scene.image().watchers.empty());
  scene.world.calls.before_call = {};
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("a KMS that does not answer delays the stages of its own volumes, and of no others", "[failure:172]") {
  Encrypted scene;
  std::map<std::string, errc> ended;
  scene.world.calls.delayed = "fetch key";
  for (const auto& [id, kms_id] : {std::pair("a", "kept"), std::pair("b", "default")}) {
    scene.world.cluster.images[id].id = id;
    asio::co_spawn(
        scene.loop.io, scene.world.agent.shell().want(id, encrypted_wish(id, kms_id), {}),
        [&ended, id](std::exception_ptr, result<> outcome) { ended[id] = outcome ? errc::ok : outcome.error().code; });
  }
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(ended.size() == 1);
  CHECK(ended["b"] == errc::ok);
  scene.loop.advance(std::chrono::minutes(2));
  CHECK(ended["a"] == errc::timed_out);
}

TEST_CASE("at most two keys of a cluster are derived at once, and three on a node") {
  const int clusters = GENERATE(1, 2, 3);
  Encrypted scene;
  int done = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string id = "id-" + std::to_string(i), cluster = std::to_string(i % clusters);
    scene.world.disk.clusters.insert(cluster);
    scene.world.cluster.images[id].id = id;
    auto wish = encrypted_wish(id);
    wish.source.cluster_id = cluster;
    asio::co_spawn(scene.loop.io, scene.world.agent.shell().want(id, wish, {}),
                   [&done](std::exception_ptr, result<> outcome) {
                     if (outcome) ++done;
                   });
  }
  scene.loop.advance(std::chrono::seconds(30));
  CHECK(done == 12);
  CHECK(scene.world.kernel.key_derivations_at_once == (clusters == 1 ? 2 : 3));
}

TEST_CASE("keys whose derivation does not end keep the turn from no volume of another cluster") {
  const bool files = GENERATE(false, true);
  Encrypted scene;
  scene.world.disk.clusters.insert("other");
  std::map<std::string, errc> ended;
  for (const char* id : {"a", "b", "c", "d"}) {
    scene.world.cluster.images[id].id = id;
    auto wish = encrypted_wish(id, files ? "own" : "default");
    if (files) wish.encryption_type = "file";
    if (*id == 'd') wish.source.cluster_id = "other";
    if (*id == 'a' || *id == 'b') scene.world.calls.delayed = files ? "fscrypt make" : "luks format";
    asio::co_spawn(
        scene.loop.io, scene.world.agent.shell().want(id, wish, {}),
        [&ended, id](std::exception_ptr, result<> outcome) { ended[id] = outcome ? errc::ok : outcome.error().code; });
    scene.loop.advance(std::chrono::seconds(5));
  }
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(ended == std::map<std::string, errc>{{"d", errc::ok}});
  scene.loop.advance(std::chrono::minutes(5));
  CHECK(ended.size() == 4);
}

TEST_CASE("a header that needs more memory than others has all turns, and one that needs too much is refused",
          "[failure:204]") {
  constexpr std::uint32_t most = host::kMaxKeyMemoryKib;
  Encrypted scene;
  std::map<std::string, errc> ended;
  for (const char* id : {"a", "b", "c", "d"}) {
    auto& image = scene.world.cluster.images[id];
    image.id = id;
    image.data = true;
    image.content = host::Probe::Kind::filesystem;
    image.fstype = "ext4";
    image.luks = FakeLuks{{{0, "canary-passphrase"}}, "canary-passphrase"};
    image.metadata[kState] = "encrypted";
    image.filesystem_bytes = image.size - kLuksHeader;
    if (*id == 'b' || *id == 'c') image.luks->memory_kib = most;
    if (*id == 'd') image.luks->memory_kib = most + 1;
    asio::co_spawn(
        scene.loop.io, scene.world.agent.shell().want(id, encrypted_wish(id), {}),
        [&ended, id](std::exception_ptr, result<> outcome) { ended[id] = outcome ? errc::ok : outcome.error().code; });
  }
  scene.loop.advance(std::chrono::seconds(20));
  CHECK(ended == std::map<std::string, errc>{
                     {"a", errc::ok}, {"b", errc::ok}, {"c", errc::ok}, {"d", errc::failed_precondition}});
  CHECK(scene.world.kernel.key_memory_kib_at_once == most);
}

TEST_CASE("a new key opens the volume afterwards, and the old one does not") {
  Encrypted scene(GENERATE("own", "kept"));
  REQUIRE(scene.stage() == errc::ok);
  const auto before = scene.image().luks->keys.at(0);
  REQUIRE(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::ok);
  CHECK(scene.image().luks->keys.size() == 1);
  CHECK(scene.image().luks->keys.at(0) != before);
  REQUIRE(scene.unstage() == errc::ok);
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("a rotation that is interrupted anywhere leaves a volume that opens, and a repeat ends it", "[failure:105]") {
  const std::string kms_id = GENERATE("own", "kept");
  sweep(
      kms_id,
      [&](Encrypted& scene, auto arm) {
        REQUIRE(scene.stage() == errc::ok);
        arm();
        try {
          const errc rotated = scene.want(plan::Rekeyed{scene.wish.passphrase});
          CHECK(rotated == errc::ok);
        } catch (const Crash&) {
          scene.kill_and_start();
          CHECK(scene.want(plan::Healed{}) == errc::ok);
          REQUIRE(scene.unstage() == errc::ok);
          REQUIRE(scene.stage() == errc::ok);
          CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::ok);
        }
      },
      [](Encrypted& scene) {
        CHECK(scene.image().luks->keys.size() == 1);
        CHECK(scene.unstage() == errc::ok);
        CHECK(scene.stage() == errc::ok);
      });
}

TEST_CASE("a key is rotated only where the volume has one of its own and is open here") {
  Encrypted scene;
  CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::not_found);
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::unimplemented);
  REQUIRE(scene.unstage() == errc::ok);
  scene.image() = FakeImage();
  scene.image().id = "id-1";
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::failed_precondition);
}

TEST_CASE("the key of a volume that is read-only by its access mode or by the mount flag ro is not rotated") {
  Encrypted scene("own");
  REQUIRE(scene.stage() == errc::ok);
  REQUIRE(scene.unstage() == errc::ok);
  const auto keys = scene.image().luks->keys;
  if (GENERATE(false, true))
    scene.wish.capability.read_only = true;
  else
    scene.wish.capability.mount_flags = "noatime,ro";
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.want(plan::Rekeyed{scene.wish.passphrase}) == errc::failed_precondition);
  CHECK(scene.image().luks->keys == keys);
}
