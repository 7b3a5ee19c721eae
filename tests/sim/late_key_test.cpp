// A KMS gets what was sent to it at any later time, whoever has left or died, and a standby shows what it had before.
#include "encrypted.hpp"

using namespace corbd;
using namespace corbd::test;

namespace {

constexpr std::chrono::minutes kUntilItArrives{2};

/// Of so many writes to the KMS, the last reaches it when nobody waits for the answer any more.
void delay_write(World& world, int write) {
  world.calls.before_call = [&calls = world.calls, left = std::make_shared<int>(write)](const std::string& call) {
    if (call == "store key" && --*left == 0) calls.delayed = call;
  };
}

struct Keyed : Encrypted {
  explicit Keyed(const std::string& kms_id) : Encrypted(kms_id) {}
  errc rotate() { return want(plan::Rekeyed{wish.passphrase}); }
  /// The write, of the present key (1) or of the new one (2), reaches the KMS when nobody waits for the answer any
  /// more.
  errc rotate_late(int write = 2) {
    delay_write(world, write);
    return rotate();
  }
  errc stage_late() {
    world.calls.delayed = "store key";
    return stage();
  }
  /// So many writes to the KMS fail, and never arrive there.
  void lose_writes(int times) {
    lost = times;
    world.calls.before_call = [this](const std::string& call) {
      if (call == "store key" && lost-- > 0) world.calls.fail_at = 1;
    };
  }
  int lost = 0;
  void wait() { loop.advance(kUntilItArrives); }
  std::string kept() const {
    const auto place = world.cluster.kept_keys.find(kId);
    return place == world.cluster.kept_keys.end() ? "" : place->second.key;
  }
  /// Taken down, and opened again with what the KMS has.
  void opens_again() {
    CHECK(unstage() == errc::ok);
    CHECK(stage() == errc::ok);
    CHECK(world.cluster.opens(kId));
  }
};

}  // namespace

TEST_CASE("what was sent to a KMS arrives there after its sender has left") {
  Keyed scene("kept");
  REQUIRE(scene.stage() == errc::ok);
  const auto before = scene.kept();
  CHECK(scene.rotate_late() == errc::timed_out);
  CHECK(scene.kept() == before);
  scene.wait();
  CHECK(scene.kept() != before);
  CHECK(scene.kept() == scene.image().luks->keys.at(0));
  scene.opens_again();
}

TEST_CASE("a key that the KMS learns late, after a rotation was repeated, does not replace the later one",
          "[failure:174]") {
  Keyed scene("kept");
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.rotate_late(GENERATE(1, 2)) == errc::timed_out);
  CHECK(scene.world.cluster.opens(kId));
  CHECK(scene.rotate() == errc::ok);
  CHECK(scene.image().luks->keys.size() == 1);
  const auto later = scene.kept();
  scene.wait();
  CHECK(scene.kept() == later);
  scene.opens_again();
}

TEST_CASE("a new key that reaches the KMS late opens the volume, however often its rotation was repeated in vain",
          "[failure:174]") {
  Keyed scene("kept");
  REQUIRE(scene.stage() == errc::ok);
  CHECK(scene.rotate_late() == errc::timed_out);
  scene.lose_writes(3);
  for (int i = 0; i < 3; ++i) CHECK(scene.rotate() == errc::unavailable);
  CHECK(scene.image().luks->keys.size() == 2);
  scene.wait();
  CHECK(scene.world.cluster.opens(kId));
  scene.opens_again();
  CHECK(scene.rotate() == errc::ok);
  CHECK(scene.image().luks->keys.size() == 1);
  scene.opens_again();
}

TEST_CASE("a rotation that is repeated, and then interrupted anywhere, leaves a volume that opens with a late key too",
          "[failure:105][rule:200]") {
  const int late = GENERATE(1, 2);
  sweep(
      "kept",
      [&](Encrypted& scene, auto arm) {
        REQUIRE(scene.stage() == errc::ok);
        delay_write(scene.world, late);
        CHECK(scene.want(plan::Rekeyed{}) == errc::timed_out);
        arm();
        try {
          const errc rotated = scene.want(plan::Rekeyed{});
          CHECK(rotated == errc::ok);
        } catch (const Crash&) {
          scene.kill_and_start();
          CHECK(scene.want(plan::Healed{}) == errc::ok);
        }
        scene.loop.advance(kUntilItArrives);
      },
      [](Encrypted& scene) {
        CHECK(scene.world.cluster.opens(kId));
        CHECK(scene.unstage() == errc::ok);
        CHECK(scene.stage() == errc::ok);
        CHECK(scene.want(plan::Rekeyed{}) == errc::ok);
        CHECK(scene.image().luks->keys.size() == 1);
      });
}

TEST_CASE("a rotation behind a standby that lags wipes nothing that the KMS has", "[failure:201]") {
  Keyed scene("kept");
  REQUIRE(scene.stage() == errc::ok);
  scene.world.cluster.standby_keys = scene.world.cluster.kept_keys;
  CHECK(scene.rotate() == errc::unavailable);
  CHECK(scene.world.cluster.opens(kId));
  scene.lose_writes(1);
  CHECK(scene.rotate() == errc::unavailable);
  CHECK(scene.rotate() == errc::unavailable);
  CHECK(scene.world.cluster.opens(kId));
  scene.world.cluster.standby_keys.reset();
  scene.world.calls.before_call = {};
  scene.opens_again();
  CHECK(scene.rotate() == errc::ok);
  CHECK(scene.image().luks->keys.size() == 1);
  scene.opens_again();
}

TEST_CASE("a KMS that takes whatever arrives last rotates no key, and the header stays as it was", "[failure:174]") {
  Keyed scene("plain");
  REQUIRE(scene.stage() == errc::ok);
  const auto before = scene.image().luks->keys;
  CHECK(scene.rotate() == errc::failed_precondition);
  CHECK(scene.image().luks->keys == before);
  scene.opens_again();
}

TEST_CASE("a rotation whose write the KMS refuses leaves the header as it was", "[failure:105]") {
  Keyed scene(GENERATE("own", "kept"));
  REQUIRE(scene.stage() == errc::ok);
  const auto before = scene.image().luks->keys;
  scene.world.calls.error = Error{errc::permission_denied, "the role may not"};
  scene.world.calls.before_call = [&calls = scene.world.calls](const std::string& call) {
    if (call == "wrap key" || call == "store key") calls.fail_at = 1;
  };
  CHECK(scene.rotate() == errc::permission_denied);
  CHECK(scene.image().luks->keys == before);
  scene.world.calls.before_call = {};
  CHECK(scene.rotate() == errc::ok);
  CHECK(scene.image().luks->keys != before);
  scene.opens_again();
}

TEST_CASE("a first key that reaches a KMS late is the one of the repeated stage", "[failure:200]") {
  Keyed scene(GENERATE("kept", "plain"));
  const bool files = GENERATE(false, true);
  if (files) scene.as_files();
  CHECK(scene.stage_late() == errc::timed_out);
  REQUIRE(scene.stage() == errc::ok);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(std::chrono::seconds(1));
  CHECK(scene.world.kernel.answered == 1);
  scene.wait();
  scene.opens_again();
  CHECK(scene.image().generation == 1);
}

TEST_CASE("a first key on its way to a KMS that takes whatever arrives last outlives its agent, and no other is sent",
          "[failure:200][rule:200]") {
  Keyed scene("plain");
  const bool files = GENERATE(false, true);
  if (files) scene.as_files();
  CHECK(scene.stage_late() == errc::timed_out);
  scene.kill_and_start();
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  CHECK(scene.image().generation == 0);
  scene.wait();
  const auto key = scene.kept();
  REQUIRE_FALSE(key.empty());
  CHECK(scene.stage() == errc::ok);
  CHECK(scene.kept() == key);
  scene.opens_again();
}

TEST_CASE("a first key that its KMS refused is not waited for, unless it was sent before", "[failure:200]") {
  Keyed scene("plain");
  const bool before = GENERATE(false, true);
  if (before) CHECK(scene.stage_late() == errc::timed_out);
  scene.world.calls.error = Error{errc::permission_denied, "the role may not"};
  scene.lose_writes(1);
  CHECK(scene.stage() == errc::permission_denied);
  CHECK(scene.image().metadata.contains("corbd/first-key") == before);
  scene.kill_and_start();
  CHECK(scene.stage() == (before ? errc::failed_precondition : errc::ok));
  scene.wait();
  CHECK(scene.stage() == errc::ok);
  scene.opens_again();
}

TEST_CASE("a refused first key is sent again as long as its image's metadata name it") {
  Keyed scene("plain");
  int left = 1;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "store key" && left > 0) scene.world.calls.error = {errc::permission_denied, "the role may not"};
    if (call == "remove metadata" && left > 0) scene.world.calls.error = {errc::unavailable, "made to fail"};
    if ((call == "store key" || call == "remove metadata") && left > 0) scene.world.calls.fail_at = 1;
    if (call == "remove metadata") --left;
  };
  CHECK(scene.stage() == errc::permission_denied);
  REQUIRE(left == 0);
  REQUIRE(scene.image().metadata.contains("corbd/first-key"));
  CHECK(scene.stage() == errc::ok);
  scene.opens_again();
}

TEST_CASE("another key at a KMS to which a first key is on its way makes no volume", "[failure:200]") {
  Keyed scene("plain");
  CHECK(scene.stage_late() == errc::timed_out);
  scene.kill_and_start();
  scene.world.cluster.kept_keys[kId] = {"an operator's"};
  CHECK(scene.stage() == errc::failed_precondition);
  CHECK(scene.all_gone());
  scene.wait();
  CHECK(scene.kept() != "an operator's");
  CHECK(scene.stage() == errc::ok);
  scene.opens_again();
}

TEST_CASE("the first stage of an encrypted volume that is interrupted anywhere ends with the key that the KMS has") {
  const std::string kms_id = GENERATE("kept", "plain");
  sweep(
      kms_id,
      [&](Encrypted& scene, auto arm) {
        arm();
        try {
          const errc staged = scene.stage();
          CHECK(staged == errc::ok);
        } catch (const Crash&) {
          scene.kill_and_start();
          static_cast<void>(scene.want(plan::Healed{}));
          // Its first key may have died with the agent.
          const errc again = scene.stage();
          if (again != errc::ok) {
            CHECK(kms_id == "plain");
            CHECK(scene.world.cluster.kept_keys.empty());
            REQUIRE(scene.image().metadata.erase("corbd/first-key") == 1);
            CHECK(scene.stage() == errc::ok);
          }
        }
      },
      [](Encrypted& scene) {
        CHECK(scene.image().generation == 1);
        CHECK(scene.world.cluster.opens(kId));
        CHECK(scene.unstage() == errc::ok);
        CHECK(scene.stage() == errc::ok);
      });
}
