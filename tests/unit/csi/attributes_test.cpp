// What a request's volume ID, attributes and secrets say about the volume.
#include "stage_request.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::test;

TEST_CASE("the volume ID in a static volume's stage request is the image's name") {
  const auto wish = corbd::csi::wish_of(stage_request());
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.source.image == "image-1");
  CHECK(staged.source.pool == "pool");
  CHECK(staged.capability.fstype == "ext4");
  CHECK(staged.credential.user == "node");
  CHECK(staged.credential.key.reveal() == "AQCanary==");
}

TEST_CASE("a stage takes the PersistentVolumeClaim from the attributes, and a publish takes the pod too") {
  auto request = stage_request();
  auto& attributes = *request.mutable_volume_context();
  attributes["csi.storage.k8s.io/pvc/name"] = "data";
  attributes["csi.storage.k8s.io/pvc/namespace"] = "shop";
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<plan::Staged>(*wish).claim == plan::PvcRef{"data", "shop", ""});
  v1::NodePublishVolumeRequest publish;
  publish.set_volume_id("image-1");
  publish.set_staging_target_path("/a");
  publish.set_target_path("/b");
  *publish.mutable_volume_capability() = request.volume_capability();
  (*publish.mutable_volume_context())["csi.storage.k8s.io/pod.name"] = "db-0";
  (*publish.mutable_volume_context())["csi.storage.k8s.io/pod.namespace"] = "shop";
  (*publish.mutable_volume_context())["csi.storage.k8s.io/pod.uid"] = "0a1b-2c3d";
  (*publish.mutable_volume_context())["csi.storage.k8s.io/pvc/name"] = "copy";
  const auto published = corbd::csi::wish_of(publish, {});
  REQUIRE(published);
  CHECK(std::get<plan::Published>(*published).pod == "shop/db-0");
  CHECK(std::get<plan::Published>(*published).pod_uid == "0a1b-2c3d");
  CHECK(std::get<plan::Published>(*published).claim.name == "copy");
}

TEST_CASE("a dynamic volume's cluster and pool come from its handle, and its journalPool and imageName are hints") {
  auto request = dynamic_request();
  auto& attributes = *request.mutable_volume_context();
  attributes["clusterID"] = "another";
  attributes["pool"] = "another";
  attributes["journalPool"] = "journals";
  attributes["imageName"] = "prefix-1";
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.source.cluster_id == "rook-ceph");
  REQUIRE(staged.reserved);
  CHECK((*staged.reserved == image::Reserved{2, kUuid, "journals", "prefix-1"}));
}

TEST_CASE("a volume ID that is no handle is refused without staticVolume, and the error names that attribute") {
  auto request = dynamic_request();
  request.set_volume_id("image-1");
  CHECK(code_of(request) == errc::invalid_argument);
  CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring("staticVolume"));
}

TEST_CASE("an attribute that is not a valid name of a pool or an image is refused") {
  for (const char* attribute : {"journalPool", "imageName"}) {
    auto request = dynamic_request();
    (*request.mutable_volume_context())[attribute] = "a/b";
    CHECK(code_of(request) == errc::invalid_argument);
  }
  auto request = stage_request();
  (*request.mutable_volume_context())["pool"] = "a\nb";
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE(
    "a volume migrated from the in-tree driver takes its image from its attributes or else its volume ID, and accepts "
    "the in-tree secret") {
  auto request = stage_request();
  request.set_volume_id("mig_mons-d26a17667065ffae4e4e96ba3d46d18a_image-" + kUuid + "_7265706c");
  auto& attributes = *request.mutable_volume_context();
  attributes["migration"] = "true";
  attributes["imageName"] = "kubernetes-dynamic-pvc-x";
  request.clear_secrets();
  (*request.mutable_secrets())["key"] = "AQCanary==";
  auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<plan::Staged>(*wish).source.image == "kubernetes-dynamic-pvc-x");
  CHECK(std::get<plan::Staged>(*wish).source.pool == "pool");
  CHECK(std::get<plan::Staged>(*wish).credential.user == "admin");
  for (const char* attribute : {"imageName", "pool", "clusterID"}) attributes.erase(attribute);
  (*request.mutable_secrets())["adminId"] = "kube";
  wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.source.image == "kubernetes-dynamic-pvc-" + kUuid);
  CHECK(staged.source.pool == "repl");
  CHECK(staged.source.cluster_id == "d26a17667065ffae4e4e96ba3d46d18a");
  CHECK(staged.credential.user == "kube");
  CHECK(staged.credential.key.reveal() == "AQCanary==");
  request.set_volume_id("image-1");
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE(
    "mapOptions apply to a stage and its publish alike, an unknown option is ignored, and rbd-cache=true is refused") {
  auto request = dynamic_request();
  (*request.mutable_volume_context())["mapOptions"] = "nbd:read-only,notrim,foo";
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.capability.read_only);
  CHECK_FALSE(staged.source.serving.trim);
  REQUIRE(staged.ignored.size() == 1);
  v1::NodePublishVolumeRequest publish;
  publish.set_volume_id(request.volume_id());
  publish.set_staging_target_path("/a");
  publish.set_target_path("/b");
  *publish.mutable_volume_capability() = request.volume_capability();
  *publish.mutable_volume_context() = request.volume_context();
  const auto published = corbd::csi::wish_of(publish);
  REQUIRE(published);
  CHECK(std::get<plan::Published>(*published).capability == staged.capability);
  (*request.mutable_volume_context())["mapOptions"] = "nbd:rbd-cache=true";
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("the wish to stage a volume with mounter rbd has the kernel client and its map options") {
  auto request = stage_request();
  (*request.mutable_volume_context())["mounter"] = "rbd";
  (*request.mutable_volume_context())["mapOptions"] = "queue_depth=64";
  const auto wish = std::get<corbd::plan::Staged>(*corbd::csi::wish_of(request));
  CHECK(wish.mounter == corbd::cephcsi::Mounter::krbd);
  CHECK(wish.source.kernel.map == "queue_depth=64");
}

TEST_CASE("a stage and a publish of a volume without a mounter use the same default mounter") {
  using corbd::cephcsi::Mounter;
  auto stage = stage_request();
  stage.mutable_volume_context()->erase("mounter");
  (*stage.mutable_volume_context())["mapOptions"] = "krbd:ro";
  ::csi::v1::NodePublishVolumeRequest publish;
  publish.set_volume_id(stage.volume_id());
  publish.set_staging_target_path(stage.staging_target_path());
  publish.set_target_path("/k/pods/p/mount");
  *publish.mutable_volume_capability() = stage.volume_capability();
  *publish.mutable_volume_context() = stage.volume_context();
  for (const auto unnamed : {Mounter::krbd, Mounter::nbd}) {
    const auto staged = std::get<corbd::plan::Staged>(*corbd::csi::wish_of(stage, {unnamed}));
    CHECK(staged.mounter == unnamed);
    CHECK(staged.capability.read_only == (unnamed == Mounter::krbd));
    CHECK(staged.read_only_otherwise == (unnamed == Mounter::nbd));
    const auto published = std::get<corbd::plan::Published>(*corbd::csi::wish_of(publish, {unnamed}));
    CHECK(published.capability == staged.capability);
    CHECK(published.read_only_otherwise == staged.read_only_otherwise);
  }
}

TEST_CASE("the wish of an encrypted volume says whether its device or its files are encrypted") {
  auto request = stage_request();
  (*request.mutable_volume_context())["encrypted"] = "true";
  CHECK(std::get<plan::Staged>(corbd::csi::wish_of(request).value()).encryption_type == "block");
  (*request.mutable_volume_context())["encryptionType"] = "file";
  CHECK(std::get<plan::Staged>(corbd::csi::wish_of(request).value()).encryption_type == "file");
  (*request.mutable_volume_context())["encryptionType"] = "files";
  CHECK(code_of(request) == errc::invalid_argument);
  CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring("encryptionType 'files'"));
}

TEST_CASE("the wish of an encrypted volume has a KMS ID and a passphrase, and that of another volume has no KMS ID") {
  auto request = stage_request();
  (*request.mutable_secrets())["encryptionPassphrase"] = "canary passphrase";
  (*request.mutable_volume_context())["encrypted"] = "true";
  auto wish = std::get<plan::Staged>(corbd::csi::wish_of(request).value());
  CHECK(wish.kms_id == "default");
  CHECK(wish.passphrase.reveal() == "canary passphrase");
  (*request.mutable_volume_context())["encryptionKMSID"] = "own";
  CHECK(std::get<plan::Staged>(corbd::csi::wish_of(request).value()).kms_id == "own");
  (*request.mutable_volume_context())["encrypted"] = "false";
  CHECK(std::get<plan::Staged>(corbd::csi::wish_of(request).value()).kms_id.empty());
}

// ceph-csi's journal overrules the attributes: it may say that the volume is encrypted.
TEST_CASE("the wish keeps the passphrase of a volume whose attributes do not say that it is encrypted") {
  auto request = stage_request();
  (*request.mutable_secrets())["encryptionPassphrase"] = "canary passphrase";
  (*request.mutable_volume_context())["encrypted"] = "false";
  CHECK(std::get<plan::Staged>(corbd::csi::wish_of(request).value()).passphrase.reveal() == "canary passphrase");
}

TEST_CASE("the wish has the other fields of the secret, for a KMS, and neither Ceph's user nor its key among them") {
  auto request = stage_request();
  (*request.mutable_secrets())["encryptionPassphrase"] = "canary passphrase";
  (*request.mutable_secrets())["vault-ca"] = "PEM";
  const auto wish = std::get<plan::Staged>(corbd::csi::wish_of(request).value());
  REQUIRE(wish.secrets.size() == 1);
  CHECK(wish.secrets.at("vault-ca").reveal() == "PEM");
}

TEST_CASE(
    "the stash takes nbd's unmapOptions, cephLogDir and cephLogStrategy from the attributes, or else ceph-csi's "
    "defaults") {
  auto request = stage_request();
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).stash ==
        cephcsi::Stash{"", "", "", "", false, false, "", "/var/log/ceph", "remove"});
  auto& attributes = *request.mutable_volume_context();
  attributes["unmapOptions"] = "krbd:force;nbd:try-netlink";
  attributes["cephLogDir"] = "/logs";
  attributes["cephLogStrategy"] = "preserve";
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).stash ==
        cephcsi::Stash{"", "", "", "try-netlink", false, false, "", "/logs", "preserve"});
}
