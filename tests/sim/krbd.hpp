// A volume that the kernel's own RBD client serves.
#pragma once

#include "scene.hpp"

namespace corbd::test {

inline const std::string kStranger = "10.0.0.7:0/1";
inline const std::string kTarget = "/kubelet/pods/p/volume";
inline constexpr std::uint64_t kGrown = 2u << 30;

inline plan::Staged krbd_staged(bool block = false) {
  auto wish = staged_wish(kId);
  wish.mounter = cephcsi::Mounter::krbd;
  wish.capability.block = block;
  if (block) wish.capability.fstype.clear();
  return wish;
}

inline plan::Staged read_only() {
  auto wish = krbd_staged();
  wish.capability.read_only = true;
  return wish;
}

inline plan::Published published() {
  plan::Published wish;
  wish.path = krbd_staged().path;
  wish.target = kTarget;
  wish.capability = krbd_staged().capability;
  return wish;
}

inline plan::Unstaged unstaged() { return {krbd_staged().path}; }

inline void by_ceph_csi(Scene& scene) { scene.world.ceph_csi.stages_with_krbd(kId, krbd_staged().path, kId); }

inline std::string error_of(Scene& scene, const plan::Wish& wish) {
  const auto done = scene.world.agent.want(kId, wish);
  return done ? "" : done.error().text;
}

inline void is_staged(const World& world) {
  REQUIRE(world.kernel.devices.size() == 1);
  CHECK(world.kernel.devices.front().kind == device::Kind::krbd);
  REQUIRE(world.disk.records.size() == 1);
  CHECK(world.disk.records.front().device.kind == device::Kind::krbd);
  CHECK(world.disk.records.front().device.index == world.kernel.devices.front().index);
  REQUIRE(world.disk.records.front().stagings.size() == 1);
  CHECK(world.disk.records.front().stagings.front().complete);
  CHECK(world.kernel.mounts.size() == 1);
  CHECK(world.cluster.opened.empty());
  CHECK(world.cluster.images.at(kId).generation <= 1);
  CHECK_FALSE(world.cluster.images.at(kId).metadata.contains("corbd/format"));
}

}  // namespace corbd::test
