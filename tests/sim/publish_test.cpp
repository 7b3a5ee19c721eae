// What a pod gets: at which targets, with what, and beside whom.
#include "scene.hpp"

using namespace corbd;
using test::kId;
using test::published;
using test::Scene;
using test::staged;

TEST_CASE("a volume for one pod only is published at one target at a time") {
  Scene scene;
  auto stage = staged();
  stage.capability.single_writer = true;
  REQUIRE(scene.want(stage) == errc::ok);
  REQUIRE(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.want(published(stage, "/t2")) == errc::failed_precondition);
  CHECK(scene.want(plan::Unpublished{"/t1"}) == errc::ok);
  CHECK(scene.want(published(stage, "/t2")) == errc::ok);
}

TEST_CASE("a publish has the capability of its stage, but mount flags of its own") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  auto other = published(staged(), "/t");
  other.capability.single_writer = true;
  CHECK(scene.want(other) == errc::failed_precondition);
  auto flags = published(staged(), "/t");
  flags.capability.mount_flags = "noatime";
  CHECK(scene.want(flags) == errc::ok);
  CHECK(scene.want(other) == errc::already_exists);
}

TEST_CASE("a publish that fails for good leaves nothing that blocks another pod") {
  Scene scene;
  auto stage = staged();
  stage.capability.single_writer = true;
  REQUIRE(scene.want(stage) == errc::ok);
  scene.world.calls.error = {errc::failed_precondition, "made to fail"};
  scene.world.calls.fail_at = 2;  // the bind, after the record
  REQUIRE(scene.want(published(stage, "/t1")) == errc::failed_precondition);
  CHECK(scene.world.disk.records.front().publishes.empty());
  CHECK(scene.want(published(stage, "/t2")) == errc::ok);
}

TEST_CASE("what somebody else mounted at a target is not unmounted") {
  Scene scene;
  REQUIRE(scene.want(staged()) == errc::ok);
  host::Mount foreign;
  foreign.target = "/t";
  foreign.dev_major = 8;
  scene.world.kernel.mounts.push_back(foreign);
  CHECK(scene.want(plan::Unpublished{"/t"}) == errc::failed_precondition);
  CHECK(scene.want(published(staged(), "/t")) == errc::failed_precondition);
  CHECK(scene.world.kernel.mounts.size() == 2);
}

TEST_CASE("a filesystem that turned read-only is not published for writing, and an Event says why") {
  Scene scene;
  scene.kill_and_start(true);
  REQUIRE(scene.want(staged()) == errc::ok);
  REQUIRE(scene.want(published(staged(), "/t1")) == errc::ok);
  for (auto& mount : scene.world.kernel.mounts) mount.filesystem_read_only = true;
  CHECK(scene.want(published(staged(), "/t2")) == errc::failed_precondition);
  REQUIRE(scene.world.notices.size() == 1);
  CHECK(scene.world.notices.front().second.reason == "FilesystemReadOnly");
  CHECK(scene.world.disk.records.front().publishes.size() == 1);
  SECTION("a pod that has it already keeps it") { CHECK(scene.want(published(staged(), "/t1")) == errc::ok); }
  SECTION("a pod that only reads may have it") {
    auto reads = published(staged(), "/t2");
    reads.read_only = true;
    CHECK(scene.want(reads) == errc::ok);
  }
}

TEST_CASE("a filesystem that is wanted read-only is published as it is") {
  Scene scene;
  auto stage = staged();
  stage.capability.mount_flags = "ro";
  REQUIRE(scene.want(stage) == errc::ok);
  for (auto& mount : scene.world.kernel.mounts) mount.filesystem_read_only = true;
  CHECK(scene.want(published(stage, "/t1")) == errc::ok);
  CHECK(scene.world.notices.empty());
}
