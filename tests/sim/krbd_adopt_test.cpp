// Volumes that ceph-csi staged with the kernel's client, and others' mappings.
#include "krbd.hpp"

using namespace corbd;
using namespace corbd::test;
using plan::Wish;

TEST_CASE(
    "what ceph-csi staged with the kernel's client is told of before it is staged again, and is ours afterwards") {
  Scene scene;
  by_ceph_csi(scene);
  const auto left = scene.world.agent.shell().left_to_kernel();
  REQUIRE(left.size() == 1);
  CHECK(left.front().volume_id == kId);
  CHECK(left.front().device == scene.device().index);
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.world.agent.shell().left_to_kernel().empty());
}

TEST_CASE("a volume that is staged keeps what serves it, whoever is the default one when it is staged again",
          "[failure:132]") {
  using cephcsi::Mounter;
  const auto kind = GENERATE(device::Kind::nbd, device::Kind::krbd);
  const bool by_us = GENERATE(true, false);
  Scene scene;
  auto wish = krbd_staged();
  wish.mounter = kind == device::Kind::nbd ? Mounter::nbd : Mounter::krbd;
  if (by_us)
    REQUIRE(scene.want(wish) == errc::ok);
  else if (kind == device::Kind::krbd)
    by_ceph_csi(scene);
  else
    scene.world.ceph_csi.stages(kId, wish.path);
  const auto index = scene.device().index;
  scene.kill_and_start();
  wish.mounter = kind == device::Kind::nbd ? Mounter::krbd : Mounter::nbd;
  CHECK(scene.want(wish) == errc::ok);
  REQUIRE(scene.world.kernel.devices.size() == 1);
  CHECK(scene.device().kind == kind);
  CHECK(scene.device().index == index);
  CHECK(scene.world.disk.records.front().device.kind == kind);
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("what ceph-csi staged after a reboot is taken over, although a record of the boot before is left") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.world.reboot();
  scene.loop.advance(std::chrono::seconds(40));
  by_ceph_csi(scene);
  scene.world.agent.start();
  CHECK(scene.want(Wish(plan::Healed{})) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(krbd_staged()) == errc::ok);
  is_staged(scene.world);
}

TEST_CASE("a mapping that somebody made by hand is left alone") {
  Scene scene;
  static_cast<void>(scene.world.kernel.krbd_maps(kId, false));
  CHECK(scene.want(krbd_staged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.world.disk.records.empty());
}

TEST_CASE("a volume that ceph-csi staged with the kernel's client is published, looked at and grown after one stage") {
  Scene scene;
  by_ceph_csi(scene);
  scene.world.kernel.mounts.push_back(scene.world.kernel.mounts.front());
  scene.world.kernel.mounts.back().target = kTarget;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK_FALSE(scene.world.disk.records.front().adopting);
  CHECK(scene.world.disk.records.front().publishes.front().target == kTarget);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.loop.run(scene.world.agent.shell().usage(kId, krbd_staged().path, {})));
  scene.image().filesystem_bytes = scene.image().size;
  scene.image().size = scene.device().size = kGrown;
  CHECK(scene.want(plan::Expanded{krbd_staged().path, kGrown}) == errc::ok);
  CHECK(scene.image().filesystem_bytes == kGrown);
  CHECK(scene.want(unstaged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
  CHECK(scene.want(plan::Unpublished{kTarget}) == errc::ok);
  CHECK(scene.want(unstaged()) == errc::ok);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("what ceph-csi staged encrypted, or of another image, does not become ours by a stage that says otherwise") {
  Scene scene;
  by_ceph_csi(scene);
  auto& stash = scene.world.disk.stashes.at(krbd_staged().path);
  if (GENERATE(true, false))
    stash.encrypted = true;
  else
    stash.image = "image-2";
  CHECK(scene.want(krbd_staged()) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("a kernel's volume without record and stash keeps its mount and device, and the refusal names both commands",
          "[failure:246]") {
  Scene scene;
  by_ceph_csi(scene);
  scene.world.disk.stashes.clear();
  const auto refused = error_of(scene, unstaged());
  CHECK_THAT(refused, ContainsSubstring("umount " + plan::staging_target(kId, krbd_staged().path)) &&
                          ContainsSubstring("rbd unmap /dev/rbd100"));
  CHECK(scene.world.kernel.mounts.size() == 1);
  CHECK_THAT(error_of(scene, krbd_staged()), ContainsSubstring("/dev/rbd100") && ContainsSubstring("image-meta.json"));
  scene.world.kernel.mounts.clear();
  CHECK(scene.want(unstaged()) == errc::ok);
}

TEST_CASE("before its first stage here, a volume of ceph-csi is refused with the way to make it this agent's",
          "[failure:246]") {
  Scene scene;
  by_ceph_csi(scene);
  CHECK_THAT(error_of(scene, published()), ContainsSubstring("no record") && ContainsSubstring("restart kubelet"));
  const std::string target = plan::staging_target(kId, krbd_staged().path);
  CHECK_THAT(error_of(scene, plan::Expanded{target, kGrown}), ContainsSubstring("restart kubelet"));
  const auto usage = scene.loop.run(scene.world.agent.shell().usage(kId, target, {}));
  REQUIRE_FALSE(usage);
  CHECK_THAT(usage.error().text, ContainsSubstring("restart kubelet"));
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.want(published()) == errc::ok);
}
