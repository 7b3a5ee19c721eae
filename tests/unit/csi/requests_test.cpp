// Parts that a request must have, and values that it must not have.
#include "stage_request.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::test;

TEST_CASE("a volume ID that is not safe as one component of a path is refused") {
  for (const std::string id : {"", "a/b", "a\\b", "..", "a..b", "a\nb"}) {
    auto request = stage_request();
    request.set_volume_id(id);
    CHECK(code_of(request) == errc::invalid_argument);
  }
}

TEST_CASE("a volume ID of 255 bytes, the most that a file name can have, is staged, and a longer one is refused") {
  auto request = stage_request();
  request.set_volume_id(std::string(255, 'a'));
  CHECK(corbd::csi::wish_of(request));
  request.set_volume_id(std::string(256, 'a'));
  CHECK(code_of(request) == errc::invalid_argument);
}

TEST_CASE("a volume ID of 255 bytes can be published, and a longer one is refused") {
  v1::NodePublishVolumeRequest publish;
  *publish.mutable_volume_capability() = stage_request().volume_capability();
  publish.set_staging_target_path("/staging");
  publish.set_target_path("/target");
  publish.set_volume_id(std::string(255, 'a'));
  CHECK(corbd::csi::wish_of(publish));
  publish.set_volume_id(std::string(256, 'a'));
  const auto refused = corbd::csi::wish_of(publish);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::invalid_argument);
}

TEST_CASE("a volume ID of any length can be unpublished and unstaged") {
  v1::NodeUnstageVolumeRequest unstage;
  unstage.set_volume_id(std::string(5000, 'a'));
  unstage.set_staging_target_path("/staging");
  CHECK(corbd::csi::wish_of(unstage));
  v1::NodeUnpublishVolumeRequest unpublish;
  unpublish.set_volume_id(std::string(5000, 'a'));
  unpublish.set_target_path("/target");
  CHECK(corbd::csi::wish_of(unpublish));
}

TEST_CASE("a staging path that is empty, relative, too long or contains .. is refused") {
  for (const std::string& path : {std::string(), std::string("a/b"), std::string("/a/../b"), std::string("/a/.."),
                                  "/" + std::string(4095, 'a')}) {
    auto request = stage_request();
    request.set_staging_target_path(path);
    CHECK(code_of(request) == errc::invalid_argument);
  }
}

TEST_CASE("a publish without a staging path is refused with the code of the CSI specification") {
  v1::NodePublishVolumeRequest publish;
  *publish.mutable_volume_capability() = stage_request().volume_capability();
  publish.set_target_path("/target");
  publish.set_volume_id("v");
  CHECK(corbd::csi::wish_of(publish).error().code == errc::failed_precondition);
  publish.set_staging_target_path("relative");
  CHECK(corbd::csi::wish_of(publish).error().code == errc::invalid_argument);
}

TEST_CASE("the error for an incomplete stage request names the missing part") {
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

TEST_CASE("missing parts of a request are reported in ceph-csi's order, with the codes of the CSI specification") {
  const auto expect = [](const result<plan::Wish>& wish, const std::string& missing, int code = 3) {
    REQUIRE_FALSE(wish);
    CHECK(grpc_code(wish.error().code) == code);
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
  expect(corbd::csi::wish_of(publish), "staging target path missing in request", 9);
  v1::NodeUnpublishVolumeRequest unpublish;
  expect(corbd::csi::wish_of(unpublish), "volume ID missing in request");
  unpublish.set_volume_id("a");
  expect(corbd::csi::wish_of(unpublish), "target path missing in request");
}

TEST_CASE("a key with invalid bytes is refused, and the error does not show it") {
  auto request = stage_request();
  (*request.mutable_secrets())["userKey"] =
      "AQ\xff"
      "canary";
  const auto wish = corbd::csi::wish_of(request);
  REQUIRE_FALSE(wish);
  CHECK(wish.error().code == errc::invalid_argument);
  CHECK_THAT(wish.error().text, !ContainsSubstring("canary"));
}

TEST_CASE("unstage and unpublish need a volume ID and a path, but no secret") {
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
