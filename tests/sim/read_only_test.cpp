// Volumes that only read, and several volumes on one image.
#include "corbd/core/gate.hpp"
#include "encrypted.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::published;
using test::Scene;
using test::staged;

namespace {

plan::Staged staged_read_only(bool block = false) {
  auto wish = staged();
  wish.capability.read_only = true;
  wish.capability.block = block;
  if (block) wish.capability.fstype.clear();
  return wish;
}

}  // namespace

TEST_CASE("a read-only volume is mounted without a lock, a check or a format") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_read_only()) == errc::ok);
  CHECK(scene.image().lock_owner.empty());
  CHECK(scene.image().checks == 0);
  CHECK(scene.world.kernel.devices.front().read_only);
  CHECK(scene.want(staged_read_only()) == errc::ok);
  CHECK(scene.want(published(staged_read_only(), "/t")) == errc::ok);
}

TEST_CASE("the mount flag ro lets nothing be written: no format, no check, no growth, no trim, no mark taken away",
          "[failure:250]") {
  Scene scene;
  auto wish = staged();
  wish.capability.mount_flags = GENERATE("ro", "noatime,ro", "rw,ro");
  SECTION("an empty image") {
    CHECK(scene.want(wish) == errc::failed_precondition);
    CHECK(scene.image().generation == 0);
    CHECK_FALSE(scene.image().data);
    CHECK(scene.world.kernel.devices.empty());
  }
  SECTION("a filesystem, damaged and smaller than its image") {
    scene.filled();
    scene.image().beyond_repair = true;
    scene.image().filesystem_bytes = scene.image().size / 2;
    scene.image().metadata["corbd/format"] = "mkfs by another";
    REQUIRE(scene.want(wish) == errc::ok);
    CHECK(scene.want(plan::Expanded{wish.path, 0}) == errc::ok);
    CHECK(scene.want(plan::Trimmed{wish.path}) == errc::failed_precondition);
    CHECK(scene.image().checks == 0);
    CHECK(scene.image().growths == 0);
    CHECK(scene.image().trims == 0);
    CHECK(scene.image().metadata.contains("corbd/format"));
    CHECK(scene.want(published(wish, "/t")) == errc::ok);
  }
}

TEST_CASE("a volume with the mount flag ro that is taken over from rbd-nbd keeps the mark of its format") {
  Scene scene;
  scene.filled();
  const auto device = scene.world.ceph_csi.stages(test::kId, test::kPath);
  auto wish = staged();
  wish.capability.mount_flags = GENERATE("ro", "");
  for (auto& mount : scene.world.kernel.mounts) mount.read_only = wish.capability.mount_flags == "ro";
  REQUIRE(scene.want(wish) == errc::ok);
  scene.image().metadata["corbd/format"] = "mkfs by another";
  REQUIRE(scene.want(plan::Adopted{}) == errc::ok);
  CHECK(scene.world.kernel.by_index(device)->alive);
  CHECK(scene.image().metadata.contains("corbd/format") == (wish.capability.mount_flags == "ro"));
}

TEST_CASE("a later rw takes the mount flag ro back", "[failure:250]") {
  Scene scene;
  auto wish = staged();
  wish.capability.mount_flags = "ro,rw";
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.image().generation == 1);
}

TEST_CASE("the mount flag ro encrypts nothing that is not encrypted yet", "[failure:250]") {
  test::Encrypted scene;
  const bool files = GENERATE(false, true);
  if (files) scene.as_files();
  if (files) scene.filled();
  scene.wish.capability.mount_flags = "ro";
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK_FALSE(scene.image().luks);
  CHECK_FALSE(scene.image().folder);
  CHECK_FALSE(scene.image().metadata.contains(test::kState));
}

TEST_CASE("a read-only volume without a filesystem is refused, and nothing is left of it") {
  Scene scene;
  CHECK(scene.want(staged_read_only()) == errc::failed_precondition);
  CHECK(scene.image().generation == 0);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a read-only volume of an image that another client has locked and open is served") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = "10.0.0.2:0/5";
  scene.image().watchers.insert("10.0.0.2:0/5");
  CHECK(scene.want(staged_read_only(GENERATE(true, false))) == errc::ok);
}

TEST_CASE("a volume that one node reads is not staged beside a writer, and one that many nodes read is",
          "[failure:196]") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = "10.0.0.2:0/5";
  scene.image().watchers.insert("10.0.0.2:0/5");
  auto wish = staged_read_only();
  wish.mounter = GENERATE(plan::Mounter::nbd, plan::Mounter::krbd);
  wish.reads_alone = true;
  CHECK(scene.want(wish) == errc::in_use);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.image().lock_owner == "10.0.0.2:0/5");
  scene.image().watchers.clear();
  CHECK(scene.want(wish) == errc::ok);
  scene.image().watchers.insert("10.0.0.2:0/5");
  CHECK(scene.want(wish) == errc::ok);
}

TEST_CASE("a read-only volume needs no proof of ownership to be healed") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_read_only()) == errc::ok);
  scene.world.agent.kill();
  scene.image().watchers.insert("10.0.0.2:0/5");
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().alive);
}

TEST_CASE("two read-only volumes may have one image, a writer beside a reader may not") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(staged_read_only()) == errc::ok);
  auto second = staged_read_only();
  second.path = "/kubelet/staging/second";
  CHECK(scene.want(second, "second") == errc::ok);
  auto writer = staged("/kubelet/staging/third");
  CHECK(scene.want(writer, "third") == errc::in_use);
}

TEST_CASE("exactly one of two volumes that want one image at the same moment gets it") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::vector<errc> ends;
  const auto ask = [](Scene& in, std::vector<errc>& into, std::string id, std::string path) -> task<> {
    const auto done = co_await in.world.agent.shell().want(std::move(id), Wish(staged(path)), {});
    into.push_back(done ? errc::ok : done.error().code);
  };
  gate.spawn(ask(scene, ends, "first", "/kubelet/staging/first"));
  gate.spawn(ask(scene, ends, "second", "/kubelet/staging/second"));
  scene.loop.advance(std::chrono::seconds(10));
  std::sort(ends.begin(), ends.end());
  CHECK(ends == std::vector{errc::ok, errc::in_use});
  CHECK(scene.world.kernel.devices.size() == 1);
}
