// What requests say about the use of a volume: access modes, filesystems, mount flags, pods.
#include "stage_request.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::test;

TEST_CASE("a request needs an access mode, and every single-node writer mode is accepted") {
  for (const auto mode : {Mode::SINGLE_NODE_WRITER, Mode::SINGLE_NODE_SINGLE_WRITER, Mode::SINGLE_NODE_MULTI_WRITER}) {
    auto request = stage_request();
    request.mutable_volume_capability()->mutable_access_mode()->set_mode(mode);
    CHECK(code_of(request) == errc::ok);
  }
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_access_mode()->set_mode(Mode::UNKNOWN);
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a filesystem volume that many nodes may write is refused") {
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

TEST_CASE("an unknown filesystem type is refused with an error that names it and the known ones") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("zfs");
  CHECK(code_of(request) == errc::invalid_argument);
  CHECK_THAT(corbd::csi::wish_of(request).error().text,
             ContainsSubstring("zfs") && ContainsSubstring("ext4") && ContainsSubstring("xfs"));
  request.mutable_volume_capability()->mutable_mount()->set_fs_type("xfs");
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype == "xfs");
}

TEST_CASE(
    "the reader-only access modes make a volume read-only, and SINGLE_NODE_SINGLE_WRITER makes it single-writer") {
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

TEST_CASE("an empty filesystem type means the one that is there, and a block volume has none") {
  auto request = stage_request();
  request.mutable_volume_capability()->mutable_mount()->clear_fs_type();
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype.empty());
  request.mutable_volume_capability()->mutable_block();
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.block);
  CHECK(std::get<plan::Staged>(*corbd::csi::wish_of(request)).capability.fstype.empty());
}

TEST_CASE(
    "several mount flags in one are as many, an empty one is none, and one that was split at its comma is whole") {
  const auto flags_of = [](const std::vector<std::string>& flags) {
    auto request = stage_request();
    for (const auto& flag : flags) request.mutable_volume_capability()->mutable_mount()->add_mount_flags(flag);
    const auto wish = corbd::csi::wish_of(request);
    return wish ? std::get<plan::Staged>(*wish).capability.mount_flags : wish.error().text;
  };
  CHECK(flags_of({"noatime,discard", "nodev"}) == "noatime,discard,nodev");
  CHECK(flags_of({"", "noatime", ""}) == "noatime");
  CHECK(flags_of({"context=\"a:b:c:s0:c1", "c2\""}) == "context=\"a:b:c:s0:c1,c2\"");
  CHECK_THAT(flags_of({"noatime\n"}), ContainsSubstring("control character"));
}

TEST_CASE("a comma between quotes is part of a mount flag, as in SELinux contexts") {
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

TEST_CASE(
    "a volume restricted to service accounts is published only to their pods, or if the pod's account is unknown") {
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
