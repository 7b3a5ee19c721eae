// Under which names people see a volume.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::published;
using test::Scene;
using test::staged;

namespace {

volume::Status status_of(Scene& scene) { return *scene.world.agent.shell().status(kId); }

}  // namespace

TEST_CASE("a volume has the claim's name that its attributes say, and otherwise the one that its image says") {
  Scene scene;
  auto& metadata = scene.world.cluster.images[kId].metadata;
  metadata["csi.storage.k8s.io/pvc/name"] = "data";
  metadata["csi.storage.k8s.io/pvc/namespace"] = "shop";
  metadata["csi.storage.k8s.io/pv/name"] = "pvc-1";
  auto wish = staged();
  const bool told = GENERATE(false, true);
  if (told) wish.claim = {"copy", "office", "pvc-2"};
  REQUIRE(scene.want(wish) == errc::ok);
  const auto status = status_of(scene);
  CHECK(status.pvc == (told ? "copy" : "data"));
  CHECK(status.pvc_namespace == (told ? "office" : "shop"));
  CHECK(status.pv == (told ? "pvc-2" : "pvc-1"));
}

TEST_CASE("the KMS of an encrypted volume is never asked as the tenant that the image's metadata name",
          "[failure:203]") {
  Scene scene;
  auto& metadata = scene.world.cluster.images[kId].metadata;
  metadata["csi.storage.k8s.io/pvc/name"] = "data";
  metadata["csi.storage.k8s.io/pvc/namespace"] = "shop";
  auto wish = test::encrypted_wish(kId, "kept");
  const bool told = GENERATE(false, true);
  if (told) wish.claim = {"copy", "bank", "pvc-2"};
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(status_of(scene).pvc_namespace == (told ? "bank" : "shop"));
  CHECK(scene.world.cluster.asked_as == std::set<std::string>{told ? "bank" : ""});
}

// changes X10
TEST_CASE("a volume that is staged or published again has the names of the claim that was told last") {
  Scene scene;
  auto wish = staged();
  wish.claim = {"data", "shop", "pvc-1"};
  REQUIRE(scene.want(wish) == errc::ok);
  wish.claim = {"copy", "office", "pvc-2"};
  if (GENERATE(true, false)) {
    REQUIRE(scene.want(wish) == errc::ok);
  } else {
    auto publish = published(wish, "/t");
    publish.claim = wish.claim;
    REQUIRE(scene.want(publish) == errc::ok);
  }
  CHECK(status_of(scene).pvc == "copy");
  CHECK(status_of(scene).pvc_namespace == "office");
  CHECK(status_of(scene).pv == "pvc-2");
}

TEST_CASE("a repeated stage that tells no claim keeps the names that were told") {
  Scene scene;
  auto wish = staged();
  wish.claim = {"data", "shop", "pvc-1"};
  REQUIRE(scene.want(wish) == errc::ok);
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(status_of(scene).pvc == "data");
}

// changes X9
TEST_CASE("a record without a lock keeps the node of its stage under an agent of another name", "[failure:193]") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(scene.world.disk.records.front().names.node == scene.world.name);
  scene.world.agent.kill();
  scene.world.disk.records.front().names.node = "another";
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(status_of(scene).node == "another");
}

TEST_CASE("a record takes the names that its node and driver have now once its volume is served on its own lock",
          "[failure:193]") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.agent.kill();
  auto& record = scene.world.disk.records.front();
  const std::string driver = record.names.driver;
  (GENERATE(true, false) ? record.names.node : record.names.driver) = "another";
  scene.world.agent.start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.front().names.node == scene.world.name);
  CHECK(scene.world.disk.records.front().names.driver == driver);
  // It was of the other name's attachment, and would count as one that went.
  CHECK(status_of(scene).attachment_uid.empty());
}

TEST_CASE("a volume without a device is staged again under the name that its node has now") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.disk.records.front().names.node = "another";
  scene.world.reboot();
  scene.world.agent.start();
  REQUIRE(scene.want(staged()) == errc::ok);
  CHECK(status_of(scene).node == scene.world.name);
}

TEST_CASE("a record of a version that names no node gets the name of the node whose attachment is seen") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  const bool known = GENERATE(false, true);
  if (known) REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.agent.kill();
  scene.world.disk.records.front().names.node.clear();
  scene.world.agent.start();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  CHECK(status_of(scene).node == scene.world.name);
}

TEST_CASE("the names of the claim and of the pods outlive the agent") {
  Scene scene;
  auto wish = staged();
  wish.claim = {"data", "shop", "pvc-1"};
  REQUIRE(scene.want(wish) == errc::ok);
  auto publish = published(wish, "/t");
  publish.pod = "shop/db-0";
  REQUIRE(scene.want(publish) == errc::ok);
  scene.kill_and_start();
  CHECK(status_of(scene).pvc == "data");
  CHECK(status_of(scene).pods == std::vector<std::string>{"shop/db-0"});
}

TEST_CASE("a publish is the same one although an older agent did not record its pod") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  auto publish = published(staged(), "/t");
  REQUIRE(scene.want(publish) == errc::ok);
  publish.pod = "shop/db-0";
  CHECK(scene.want(publish) == errc::ok);
}

TEST_CASE("the error for an image that cannot be opened has the image's name, not its ID") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  scene.world.agent.kill();
  scene.image().secondary = true;
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::failed_precondition);
  CHECK_THAT(scene.error(), ContainsSubstring("image pool/image-1"));
}
