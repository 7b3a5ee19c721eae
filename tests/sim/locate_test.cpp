// A stage from the volume's handle to its image: journal, hints, mappings, and what the attributes wish of the device.
#include "scene.hpp"

using namespace corbd;
using test::kHandle;
using test::kUuid;
using test::Scene;

namespace {

plan::Staged dynamic() {
  auto wish = test::staged_wish(kHandle);
  wish.source.pool.clear();
  wish.source.image.clear();
  wish.reserved = image::Reserved{1, kUuid};
  return wish;
}

/// A cluster with one image of a provisioner, under whatever name.
struct Located : Scene {
  explicit Located(const std::string& name = "csi-vol-" + kUuid) {
    world.cluster.images[name].id = "id-9";
    world.cluster.journals[{1, kUuid}]["csi.imagename"] = name;
  }
  errc stage(const plan::Staged& wish = dynamic()) { return want(wish, kHandle); }
  std::map<std::string, std::string>& journal() { return world.cluster.journals[{1, kUuid}]; }
  const plan::Source& source() { return world.disk.records.front().source; }
};

}  // namespace

TEST_CASE("a dynamic volume is the image that the journal names, and its record says which") {
  Located scene("prefix-" + kUuid);
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.source().image == "prefix-" + kUuid);
  CHECK(scene.source().pool == "pool");
  CHECK(scene.world.disk.records.front().key.image_id == "id-9");
  CHECK(scene.world.kernel.devices.front().backend == kHandle);
  CHECK(scene.want(plan::Unstaged{dynamic().path}, kHandle) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a journal that is missing or says nothing means the default name") {
  Located scene;
  if (GENERATE(false, true))
    scene.world.cluster.journals.clear();
  else
    scene.journal().clear();
  CHECK(scene.stage() == errc::ok);
}

TEST_CASE("the image's id is written into a journal that lacks it, and stays where it is known") {
  Located scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.journal()["csi.imageid"] == "id-9");
}

TEST_CASE(
    "a volume whose journal names a KMS that is not served, or an unknown type of encryption, is refused before "
    "anything is done") {
  Located scene;
  const bool unknown = GENERATE(false, true);
  scene.journal()["csi.volume.encryptKMS"] = unknown ? "default" : "of-another-type";
  if (unknown) scene.journal()["csi.volume.encryptionType"] = "disk";
  CHECK(scene.stage() == (unknown ? errc::invalid_argument : errc::unimplemented));
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("the tenant of an encrypted volume is what its journal says, or else the claim's namespace") {
  Located scene;
  const bool by_journal = GENERATE(false, true);
  scene.journal()["csi.volume.encryptKMS"] = "default";
  if (by_journal) scene.journal()["csi.volume.owner"] = "team";
  auto wish = dynamic();
  wish.passphrase = Secret("canary-passphrase");
  wish.claim = {"data", "of-the-claim", "pv"};
  REQUIRE(scene.stage(wish) == errc::ok);
  CHECK(scene.world.disk.records.front().encryption->tenant == (by_journal ? "team" : "of-the-claim"));
}

TEST_CASE("a journal that names a KMS decides whether the volume's device or its files are encrypted") {
  Located scene;
  const bool files = GENERATE(false, true);
  scene.journal()["csi.volume.encryptKMS"] = "default";
  scene.journal()["csi.volume.encryptionType"] = files ? "file" : "block";
  auto wish = dynamic();
  wish.kms_id = "default";
  wish.encryption_type = files ? "block" : "file";
  wish.passphrase = Secret("canary-passphrase");
  REQUIRE(scene.stage(wish) == errc::ok);
  CHECK(scene.world.disk.records.front().encrypts_files() == files);
  CHECK(scene.world.disk.records.front().encryption->kms_id() == "default");
  CHECK(scene.world.kernel.devices.front().folder_key == files);
  CHECK(scene.world.kernel.devices.front().mapping.has_value() != files);
}

TEST_CASE("where the handle's pool or cluster is unknown, the mapped places are tried in their order") {
  Located scene;
  scene.world.disk.mapped = {{"gone", 1}, {"lab", 8}, {"site-b", 1}, {"lab", 1}};
  scene.world.disk.clusters.insert("site-b");
  auto wish = dynamic();
  if (GENERATE(false, true))
    wish.reserved->pool_id = 7;
  else
    wish.source.cluster_id = "site-a";
  REQUIRE(scene.stage(wish) == errc::ok);
  CHECK(scene.source().cluster_id == "site-b");
}

TEST_CASE("the error for a volume found nowhere names every place that was tried") {
  Located scene;
  scene.world.cluster.images.clear();
  scene.world.disk.mapped = {{"gone", 1}};
  const auto staged = scene.world.agent.want(kHandle, dynamic());
  REQUIRE_FALSE(staged);
  CHECK(staged.error().code == errc::not_found);
  CHECK_THAT(staged.error().text, ContainsSubstring("pool/csi-vol-" + kUuid) && ContainsSubstring("cluster gone"));
}

TEST_CASE("a cluster that does not answer is not taken for one without the volume") {
  Located scene;
  scene.world.cluster.images.clear();
  scene.world.disk.mapped = {{"lab", 1}};
  scene.world.cluster.dead = true;
  CHECK(scene.stage() == errc::unreachable);
}

// field report 15
TEST_CASE("the error for a cluster that does not answer names the one that it is mapped to, and what to do",
          "[failure:221]") {
  Located scene;
  scene.world.disk.mapped = {{"site-b", 1}};
  scene.world.cluster.dead = true;
  const auto staged = scene.world.agent.want(kHandle, dynamic());
  REQUIRE_FALSE(staged);
  CHECK(staged.error().code == errc::unreachable);
  CHECK_THAT(staged.error().text, ContainsSubstring("maps it to cluster site-b"));
}

// changes X6
TEST_CASE("a volume whose clusterID is gone from config.json is served by the name that it is mapped to",
          "[failure:221]") {
  Located scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.agent.kill();
  scene.world.disk.clusters = {"renamed"};
  scene.world.disk.mapped = {{"gone", 1}, {"renamed", 1}};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}, kHandle) == errc::ok);
  CHECK(scene.world.kernel.devices.front().alive);
  CHECK(scene.want(plan::Unstaged{dynamic().path}, kHandle) == errc::ok);
}

// changes X6
TEST_CASE("of several clusters that a lost clusterID is mapped to, the one with the volume's fsid serves it",
          "[failure:221]") {
  Located scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.agent.kill();
  scene.world.disk.clusters = {"renamed"};
  scene.world.disk.strangers = {"other"};
  scene.world.disk.mapped = {{"other", 1}, {"renamed", 1}};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}, kHandle) == errc::ok);
  CHECK(scene.world.kernel.devices.front().alive);
}

TEST_CASE("the error names every cluster that a lost clusterID is mapped to, and why each is not the volume's",
          "[failure:221]") {
  Located scene;
  REQUIRE(scene.stage() == errc::ok);
  scene.world.agent.kill();
  scene.world.disk.clusters.clear();
  scene.world.disk.strangers = {"other", "third"};
  scene.world.disk.mapped = {{"other", 1}, {"third", 1}};
  scene.world.agent.start();
  const auto healed = scene.world.agent.want(kHandle, plan::Wish(plan::Healed{}));
  REQUIRE_FALSE(healed);
  CHECK_THAT(healed.error().text, ContainsSubstring("cluster lab is not in config.json") &&
                                      ContainsSubstring("cluster other: cluster other knows no user") &&
                                      ContainsSubstring("cluster third: cluster third knows no user"));
}

TEST_CASE("a static volume is looked for in the cluster that its own is mapped to, if that is configured") {
  Scene scene;
  scene.world.disk.mapped = {{"gone", -1}, {"site-b", -1}};
  scene.world.disk.clusters.insert("site-b");
  REQUIRE(scene.want(test::staged_wish(test::kId)) == errc::ok);
  CHECK(scene.world.disk.records.front().source.cluster_id == "site-b");
}

TEST_CASE("a device has the settings that the attributes ask for, also when it is served again", "[rule:6]") {
  Located scene;
  auto wish = dynamic();
  wish.source.serving.trim = false;
  wish.source.serving.dead_conn_timeout_s = 600;
  wish.source.serving.config["rbd_op_threads"] = "2";
  REQUIRE(scene.stage(wish) == errc::ok);
  CHECK_FALSE(scene.world.kernel.devices.front().trim);
  CHECK(scene.world.kernel.devices.front().dead_conn_timeout_s == 600);
  CHECK(scene.world.cluster.options_asked.contains("rbd_op_threads=2"));
  scene.world.agent.kill();
  scene.world.cluster.options_asked.clear();
  scene.world.agent.start();
  REQUIRE(scene.want(plan::Healed{}, kHandle) == errc::ok);
  CHECK(scene.world.cluster.options_asked.contains("rbd_op_threads=2"));
}

TEST_CASE("a device sends no flushes, as every write that was answered is stored", "[rule:1a]") {
  Located scene;
  REQUIRE(scene.stage() == errc::ok);
  CHECK_FALSE(scene.world.kernel.devices.front().flush);
}

TEST_CASE("a device sends flushes if its image has a journal", "[rule:1a]") {
  Located scene;
  scene.world.cluster.images.begin()->second.features |= test::FakeImage::kJournaling;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.kernel.devices.front().flush);
}

TEST_CASE("a device sends flushes if a later rbd-nbd would acknowledge cached writes before the first flush",
          "[rule:1a]") {
  Located scene;
  scene.world.cluster.images.begin()->second.caches_before_flush = true;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.kernel.devices.front().flush);
}

TEST_CASE("a volume's status says which OSDs answer its reads, as the metadata of its image decide it") {
  Located scene;
  scene.world.cluster.images.begin()->second.reads = image::ReadPolicy::balance;
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.agent.shell().status(kHandle)->reads == image::ReadPolicy::balance);
}

TEST_CASE("a dynamic volume that rbd-nbd serves is known by its handle and the image of its journal, and left alone") {
  Located scene("prefix-" + kUuid);
  const auto device = scene.world.ceph_csi.stages("prefix-" + kUuid, dynamic().path, kHandle);
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.world.ceph_csi.daemons.contains(device));
  CHECK(scene.source().image == "prefix-" + kUuid);
}
