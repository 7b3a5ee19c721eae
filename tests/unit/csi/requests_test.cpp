#include "requests.hpp"

#include "support/catch.hpp"

using namespace corbd;
namespace v1 = ::csi::v1;
using Mode = v1::VolumeCapability::AccessMode;

namespace {

v1::NodeStageVolumeRequest stage_request() {
  v1::NodeStageVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_staging_target_path("/var/lib/kubelet/plugins/x/globalmount");
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("ext4");
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::SINGLE_NODE_MULTI_WRITER);
  auto& attributes = *request.mutable_volume_context();
  attributes["staticVolume"] = "true";
  attributes["clusterID"] = "lab";
  attributes["pool"] = "pool";
  (*request.mutable_secrets())["userID"] = "node";
  (*request.mutable_secrets())["userKey"] = "AQCanary==";
  return request;
}

const std::string kUuid = "50d53503-9da1-11ed-847e-bacf8f2f1297";

v1::NodeStageVolumeRequest dynamic_request() {
  auto request = stage_request();
  request.set_volume_id("0001-0009-rook-ceph-0000000000000002-" + kUuid);
  request.clear_volume_context();
  return request;
}

errc code_of(const v1::NodeStageVolumeRequest& request) {
  const auto wish = corbd::csi::wish_of(request);
  return wish ? errc::ok : wish.error().code;
}

}  // namespace

TEST_CASE("a stage request of a static volume names the image by the volume id") {
  const auto wish = corbd::csi::wish_of(stage_request());
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.source.image == "image-1");
  CHECK(staged.source.pool == "pool");
  CHECK(staged.capability.fstype == "ext4");
  CHECK(staged.user == "node");
  CHECK(staged.key.reveal() == "AQCanary==");
}

TEST_CASE("a dynamic volume is named by its handle, and its attributes are hints") {
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

TEST_CASE("a volume id that is no handle, of a volume that is not static, is refused") {
  auto request = dynamic_request();
  request.set_volume_id("image-1");
  CHECK(code_of(request) == errc::invalid_argument);
  CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring("staticVolume"));
}

TEST_CASE("a name in the attributes that is none is refused") {
  for (const char* attribute : {"journalPool", "imageName"}) {
    auto request = dynamic_request();
    (*request.mutable_volume_context())[attribute] = "a/b";
    CHECK(code_of(request) == errc::invalid_argument);
  }
  auto request = stage_request();
  (*request.mutable_volume_context())["pool"] = "a\nb";
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a migrated volume is the image of its attributes, or else of its handle, and has a secret of its own form") {
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
  CHECK(std::get<plan::Staged>(*wish).user == "admin");
  for (const char* attribute : {"imageName", "pool", "clusterID"}) attributes.erase(attribute);
  (*request.mutable_secrets())["adminId"] = "kube";
  wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  const auto& staged = std::get<plan::Staged>(*wish);
  CHECK(staged.source.image == "kubernetes-dynamic-pvc-" + kUuid);
  CHECK(staged.source.pool == "repl");
  CHECK(staged.source.cluster_id == "d26a17667065ffae4e4e96ba3d46d18a");
  CHECK(staged.user == "kube");
  CHECK(staged.key.reveal() == "AQCanary==");
  request.set_volume_id("image-1");
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("mapOptions decide how a volume is staged and published") {
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

TEST_CASE("a volume id that could leave its place in a path is refused") {
  for (const std::string id : {"", "a/b", "a\\b", "..", "a..b", "a\nb"}) {
    auto request = stage_request();
    request.set_volume_id(id);
    CHECK(code_of(request) == errc::invalid_argument);
  }
  auto request = stage_request();
  request.set_volume_id(std::string(129, 'a'));
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a path that is relative, climbs or is too long is refused") {
  for (const std::string& path : {std::string(), std::string("a/b"), std::string("/a/../b"), std::string("/a/.."),
                                  "/" + std::string(4095, 'a')}) {
    auto request = stage_request();
    request.set_staging_target_path(path);
    CHECK(code_of(request) == errc::invalid_argument);
  }
}

TEST_CASE("every missing part of a stage request is named") {
  auto request = stage_request();
  request.clear_volume_capability();
  CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring("volume capability missing"));
  request = stage_request();
  request.clear_secrets();
  CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring("stage secrets"));
  for (const char* field : {"userID", "userKey"}) {
    request = stage_request();
    request.mutable_secrets()->erase(field);
    CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring(field));
  }
  for (const char* field : {"clusterID", "pool"}) {
    request = stage_request();
    request.mutable_volume_context()->erase(field);
    CHECK_THAT(corbd::csi::wish_of(request).error().text, ContainsSubstring(field));
  }
}

TEST_CASE("what every request needs is asked for in ceph-csi's order, and its absence is INVALID_ARGUMENT") {
  const auto expect = [](const result<plan::Wish>& wish, const std::string& missing) {
    REQUIRE_FALSE(wish);
    CHECK(grpc_code(wish.error().code) == 3);
    CHECK_THAT(wish.error().text, ContainsSubstring(missing));
  };
  v1::NodeStageVolumeRequest stage;
  expect(corbd::csi::wish_of(stage), "volume capability missing in request");
  *stage.mutable_volume_capability() = stage_request().volume_capability();
  expect(corbd::csi::wish_of(stage), "volume ID missing in request");
  stage.set_volume_id(dynamic_request().volume_id());
  expect(corbd::csi::wish_of(stage), "staging target path missing in request");
  stage.set_staging_target_path("/a");
  expect(corbd::csi::wish_of(stage), "stage secrets cannot be nil or empty");
  v1::NodeUnstageVolumeRequest unstage;
  expect(corbd::csi::wish_of(unstage), "volume ID missing in request");
  unstage.set_volume_id("a");
  expect(corbd::csi::wish_of(unstage), "staging target path missing in request");
  v1::NodePublishVolumeRequest publish;
  expect(corbd::csi::wish_of(publish), "volume capability missing in request");
  *publish.mutable_volume_capability() = stage_request().volume_capability();
  expect(corbd::csi::wish_of(publish), "volume ID missing in request");
  publish.set_volume_id("a");
  expect(corbd::csi::wish_of(publish), "target path missing in request");
  publish.set_target_path("/b");
  expect(corbd::csi::wish_of(publish), "staging target path missing in request");
  v1::NodeUnpublishVolumeRequest unpublish;
  expect(corbd::csi::wish_of(unpublish), "volume ID missing in request");
  unpublish.set_volume_id("a");
  expect(corbd::csi::wish_of(unpublish), "target path missing in request");
}

TEST_CASE("a key with bytes that no key has is refused without showing it") {
  auto request = stage_request();
  (*request.mutable_secrets())["userKey"] =
      "AQ\xff"
      "canary";
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE_FALSE(wish);
  CHECK(wish.error().code == errc::invalid_argument);
  CHECK_THAT(wish.error().text, !ContainsSubstring("canary"));
}

TEST_CASE("an access mode is needed, and the writers of one node are served") {
  for (const auto mode : {Mode::SINGLE_NODE_WRITER, Mode::SINGLE_NODE_SINGLE_WRITER, Mode::SINGLE_NODE_MULTI_WRITER}) {
    auto request = stage_request();
    request.mutable_volume_capability()->mutable_access_mode()->set_mode(mode);
    CHECK(code_of(request) == errc::ok);
  }
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::UNKNOWN);
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a filesystem that many nodes write is refused") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::MULTI_NODE_MULTI_WRITER);
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a raw block volume may be written by many nodes") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_block();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::MULTI_NODE_MULTI_WRITER);
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<corbd::plan::Staged>(*wish).capability.shared);
}

TEST_CASE("the kernel's client and its options are part of the wish") {
  auto request = stage_request();
  (*request.mutable_volume_context())["mounter"] = "rbd";
  (*request.mutable_volume_context())["mapOptions"] = "queue_depth=64";
  const auto wish = std::get<corbd::plan::Staged>(*corbd::csi::wish_of(request));
  CHECK(wish.mounter == corbd::cephcsi::Mounter::krbd);
  CHECK(wish.source.kernel.map == "queue_depth=64");
}

TEST_CASE("a stage and a publish of a volume that names no mounter mean the same default one") {
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
    const auto staged = std::get<corbd::plan::Staged>(*corbd::csi::wish_of(stage, unnamed));
    CHECK(staged.mounter == unnamed);
    CHECK(staged.capability.read_only == (unnamed == Mounter::krbd));
    CHECK(staged.read_only_otherwise == (unnamed == Mounter::nbd));
    const auto published = std::get<corbd::plan::Published>(*corbd::csi::wish_of(publish, unnamed));
    CHECK(published.capability == staged.capability);
    CHECK(published.read_only_otherwise == staged.read_only_otherwise);
  }
}

TEST_CASE("what is not served yet says so by name") {
  auto request = stage_request();
  (*request.mutable_volume_context())["encrypted"] = "true";
  (*request.mutable_volume_context())["encryptionType"] = "file";
  CHECK(code_of(request) == errc::unimplemented);
}

TEST_CASE("the wish of an encrypted volume has its KMS and its passphrase, that of another none") {
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

TEST_CASE("an unknown filesystem is refused by name, and the known ones are named") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("zfs");
  CHECK(code_of(request) == errc::invalid_argument);
  CHECK_THAT(corbd::csi::wish_of(request).error().text,
             ContainsSubstring("zfs") && ContainsSubstring("ext4") && ContainsSubstring("xfs"));
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("xfs");
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype == "xfs");
}

TEST_CASE("the modes that only read make a read-only volume, and the mode of one pod a volume for one pod") {
  for (const auto mode : {Mode::SINGLE_NODE_READER_ONLY, Mode::MULTI_NODE_READER_ONLY}) {
    auto request = stage_request();
    request.mutable_volume_capability()->mutable_access_mode()->set_mode(mode);
    const auto wish = corbd::csi::wish_of(request);
    REQUIRE(wish);
    CHECK(std::get<plan::Staged>(*wish).capability.read_only);
  }
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::SINGLE_NODE_SINGLE_WRITER);
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.single_writer);
}

TEST_CASE("an empty filesystem type means ext4, and a block volume has none") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_mount()->clear_fs_type();
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype == "ext4");
  request.mutable_volume_capability()->mutable_block();
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.block);
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype.empty());
}

TEST_CASE("a mount flag cannot smuggle in another") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_mount()->add_mount_flags("noatime,suid");
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("commas between quotes belong to a mount flag, as in SELinux's contexts") {
  auto request = stage_request();
  const std::string context = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
  request.mutable_volume_capability()->mutable_mount()->add_mount_flags(context);
  request.mutable_volume_capability()->mutable_mount()->add_mount_flags("noatime");
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<plan::Staged>(*wish).capability.mount_flags == context + ",noatime");
  request.mutable_volume_capability()->mutable_mount()->set_mount_flags(0, "context=\"a,b");
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("an expansion is of the staging path if the request has one, and of the volume path otherwise") {
  v1::NodeExpandVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_volume_path("/pods/mount");
  request.mutable_capacity_range()->set_required_bytes(2 << 20);
  auto wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<plan::Expanded>(*wish) == plan::Expanded{"/pods/mount", 2 << 20});
  request.set_staging_target_path("/staging");
  request.clear_capacity_range();
  wish = corbd::csi::wish_of(request);
  REQUIRE(wish);
  CHECK(std::get<plan::Expanded>(*wish) == plan::Expanded{"/staging", 0});
}

TEST_CASE("an expansion needs an id, a volume path and a range that can be") {
  const auto code = [](const char* id, const char* path, std::int64_t required, std::int64_t limit) {
    v1::NodeExpandVolumeRequest request;
    request.set_volume_id(id);
    request.set_volume_path(path);
    request.set_staging_target_path("/staging");
    request.mutable_capacity_range()->set_required_bytes(required);
    request.mutable_capacity_range()->set_limit_bytes(limit);
    const auto wish = corbd::csi::wish_of(request);
    return wish ? errc::ok : wish.error().code;
  };
  CHECK(code("image-1", "/a", 1, 0) == errc::ok);
  CHECK(code("", "/a", 1, 0) == errc::invalid_argument);
  CHECK(code("image-1", "", 1, 0) == errc::invalid_argument);
  CHECK(code("image-1", "/a", -1, 0) == errc::invalid_argument);
  CHECK(code("image-1", "/a", 2, 1) == errc::out_of_range);
}

TEST_CASE("what only looks needs an id and a path, which may be relative") {
  v1::NodeGetVolumeStatsRequest request;
  request.set_volume_path("some/path");
  CHECK(corbd::csi::check(request).error().code == errc::invalid_argument);
  request.set_volume_id("image-1");
  CHECK(corbd::csi::check(request));
  request.clear_volume_path();
  CHECK(corbd::csi::check(request).error().code == errc::invalid_argument);
}

TEST_CASE("unstage and unpublish need an id and a path, no secret") {
  v1::NodeUnstageVolumeRequest unstage;
  unstage.set_volume_id("image-1");
  CHECK_FALSE(corbd::csi::wish_of(unstage));
  unstage.set_staging_target_path("/a");
  CHECK(corbd::csi::wish_of(unstage));
  v1::NodeUnpublishVolumeRequest unpublish;
  unpublish.set_target_path("/a");
  CHECK_FALSE(corbd::csi::wish_of(unpublish));
  unpublish.set_volume_id("image-1");
  CHECK(corbd::csi::wish_of(unpublish));
}

TEST_CASE(
    "a volume for certain service accounts is published to their pods only, and to all where the pod's is not told") {
  v1::NodePublishVolumeRequest request;
  request.set_volume_id("image-1");
  request.set_staging_target_path("/staging");
  request.set_target_path("/target");
  request.mutable_volume_capability()->mutable_mount();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::SINGLE_NODE_MULTI_WRITER);
  struct Case {
    std::string allowed, account;
    errc code;
  };
  const auto [allowed, account, code] = GENERATE(values<Case>({{"", "web", errc::ok},
                                                               {"web", "web", errc::ok},
                                                               {"db,web", "web", errc::ok},
                                                               {"web", "", errc::ok},
                                                               {"web", "we", errc::permission_denied},
                                                               {"web", "webs", errc::permission_denied},
                                                               {"db, web", "web", errc::permission_denied},
                                                               {"db,web", "db,web", errc::permission_denied}}));
  CAPTURE(allowed, account);
  (*request.mutable_publish_context())["serviceAccount"] = allowed;
  (*request.mutable_volume_context())["csi.storage.k8s.io/serviceAccount.name"] = account;
  const auto wish = corbd::csi::wish_of(request);
  CHECK((wish ? errc::ok : wish.error().code) == code);
}

TEST_CASE("what ceph-csi's stash takes from the attributes is taken as it is, or is ceph-csi's default") {
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
