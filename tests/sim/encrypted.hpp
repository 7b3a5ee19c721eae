// An encrypted volume, and what may happen at each of its steps.
#pragma once

#include "scene.hpp"

namespace corbd::test {

inline const char *const kState = "rbd.csi.ceph.com/encrypted", *const kKey = "rbd.csi.ceph.com/dek";

struct Encrypted : Scene {
  plan::Staged wish = encrypted_wish(kId);
  explicit Encrypted(const std::string& kms_id = "default") : wish(encrypted_wish(kId, kms_id)) {}
  errc stage() { return want(wish); }
  /// Its files are encrypted instead of its device.
  void as_files() { wish.encryption_type = "file"; }
  void as_block() {
    wish.capability.block = true;
    wish.capability.fstype.clear();
  }
  errc unstage() { return want(plan::Unstaged{wish.path}); }
  bool mounted_from_mapping() const {
    for (const auto& mount : world.kernel.mounts)
      if (mount.target == plan::staging_target(kId, wish.path)) return mount.dev_major == kMappingMajor;
    return false;
  }
  bool all_gone() const {
    return world.kernel.devices.empty() && world.kernel.mounts.empty() && world.disk.records.empty();
  }
  /// The wish; after each death of the agent the next one heals, and the caller repeats.
  errc insist(const plan::Wish& wanted) {
    for (int tries = 0; tries < 5; ++tries) {
      try {
        return want(wanted);
      } catch (const Crash&) {
        kill_and_start();
        CHECK(want(plan::Healed{}) == errc::ok);
      }
    }
    return errc::internal;
  }
  /// A header with a filesystem below, as an earlier stage left it.
  void encrypted_before(const std::string& passphrase) {
    filled();
    image().luks = FakeLuks{{{0, passphrase}}, passphrase};
    image().metadata[kState] = "encrypted";
    image().filesystem_bytes = image().size - kLuksHeader;
  }
};

/// Runs `story` with a death before its 1st, 2nd, ... port call, or after it had its effect, until it gets through
/// without one; then `look`.
template <class Story, class Look>
void sweep(const std::string& kms_id, Story story, Look look) {
  const bool after = GENERATE(false, true);
  for (int at = 1;; ++at) {
    REQUIRE(at < 200);
    CAPTURE(at, after);
    Encrypted scene(kms_id);
    int& crash = after ? scene.world.calls.crash_after_at : scene.world.calls.crash_at;
    story(scene, [&] { crash = at; });
    const bool through = crash > 0;
    crash = 0;
    look(scene);
    if (through) return;
  }
}

}  // namespace corbd::test
