// Volumes that grow, and what is told of how full they are.
#include "corbd/volume/condition.hpp"
#include "scene.hpp"

using namespace corbd;
using test::kPath;
using namespace std::chrono_literals;
using test::kId;
using test::Scene;

namespace {

constexpr std::uint64_t kGiB = 1ull << 30;
plan::Staged staged_block() {
  auto wish = test::staged_wish(kId);
  wish.capability.block = true;
  wish.capability.fstype.clear();
  return wish;
}

result<host::Usage> usage(Scene& scene, const std::string& path = kPath) {
  return scene.loop.run(scene.world.agent.shell().usage(kId, path, {}));
}

}  // namespace

TEST_CASE("an expanded volume has the image's size in the kernel and in its filesystem") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.image().size = 2 * kGiB;  // nobody tells
  CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 2 * kGiB);
  CHECK(scene.image().filesystem_bytes == 2 * kGiB);
  CHECK(scene.world.agent.shell().status(kId)->size == 2 * kGiB);
}

TEST_CASE("an expansion asked again grows nothing again") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.image().size = 2 * kGiB;
  for (int i = 0; i < 3; ++i) CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::ok);
  CHECK(scene.image().growths == 1);
}

TEST_CASE("a smaller request after an expansion that failed is answered with the present size, and shrinks nothing") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  // The controller's expansion failed: the image has not grown.
  CHECK(scene.want(plan::Expanded{kPath, 8 * kGiB}) == errc::out_of_range);
  scene.image().size = 2 * kGiB;
  CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::ok);
  // This node's expansion failed after the controller's: the image has the first size for good.
  scene.image().size = 4 * kGiB;
  const auto refuse_growth = [&](const std::string& call) {
    if (call == "grow") scene.world.calls.fail_at = 1;
  };
  scene.world.calls.before_call = refuse_growth;
  CHECK(scene.want(plan::Expanded{kPath, 4 * kGiB}) == errc::unavailable);
  scene.world.calls.before_call = nullptr;
  CHECK(scene.want(plan::Expanded{kPath, 3 * kGiB}) == errc::ok);
  CHECK(scene.world.agent.shell().status(kId)->size == 4 * kGiB);
  CHECK(scene.image().filesystem_bytes == 4 * kGiB);
  CHECK(scene.want(plan::Expanded{kPath, kGiB}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 4 * kGiB);
}

TEST_CASE("a filesystem grows at stage when its image grew meanwhile, and at a stage at another path too") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Unstaged{kPath}) == errc::ok);
  scene.image().size = 2 * kGiB;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.image().filesystem_bytes == 2 * kGiB);
  scene.image().size = 3 * kGiB;
  scene.world.cluster.resized("id-1");
  auto another = test::staged_wish(kId);
  another.path += "-2";
  REQUIRE(scene.want(another) == errc::ok);
  CHECK(scene.image().filesystem_bytes == 3 * kGiB);
  CHECK(scene.image().growths == 2);
}

TEST_CASE("a filesystem of a volume that only reads stays as it is") {
  Scene scene;
  scene.filled();
  scene.image().filesystem_bytes = kGiB / 2;
  auto wish = test::staged_wish(kId);
  wish.capability.read_only = true;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.want(plan::Expanded{kPath, kGiB}) == errc::ok);
  CHECK(scene.image().growths == 0);
}

TEST_CASE("a filesystem that cannot grow is staged all the same, and who asks for the size hears why") {
  Scene scene;
  scene.filled();
  scene.image().filesystem_bytes = kGiB / 2;
  const auto refuse_growth = [&](const std::string& call) {
    if (call == "grow") scene.world.calls.fail_at = 1;
  };
  scene.world.calls.before_call = refuse_growth;
  scene.world.calls.error = {errc::failed_precondition, "no space for the inode tables"};
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  const auto asked = scene.world.agent.want(kId, plan::Expanded{kPath, kGiB});
  REQUIRE_FALSE(asked);
  CHECK(asked.error().code == errc::failed_precondition);
  CHECK_THAT(asked.error().text, ContainsSubstring("no space for the inode tables"));
}

TEST_CASE("a growth at stage that may pass by itself is repeated with the stage") {
  Scene scene;
  scene.filled();
  scene.image().filesystem_bytes = kGiB / 2;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "grow") scene.world.calls.fail_at = 1;
  };
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  scene.world.calls.before_call = nullptr;
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.image().filesystem_bytes == kGiB);
}

TEST_CASE("a raw block volume is expanded to its image's size") {
  Scene scene;
  REQUIRE(scene.want(staged_block()) == errc::ok);
  scene.image().size = 2 * kGiB;
  CHECK(scene.want(plan::Expanded{kPath, 0}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 2 * kGiB);
  CHECK(scene.image().growths == 0);
}

TEST_CASE("an expansion beyond the image, of an unknown volume or at an unknown path is refused") {
  Scene scene;
  CHECK(scene.want(plan::Expanded{kPath, 1}) == errc::not_found);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::out_of_range);
  CHECK(scene.want(plan::Expanded{"/elsewhere", kGiB}) == errc::not_found);
}

TEST_CASE("a volume without a server is expanded after its healing") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  scene.image().size = 2 * kGiB;
  scene.world.agent.start();
  CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::unavailable);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.want(plan::Expanded{kPath, 2 * kGiB}) == errc::ok);
  CHECK(scene.image().filesystem_bytes == 2 * kGiB);
}

TEST_CASE("a filesystem that turned read-only is seen in the status, one that was wanted so is not") {
  const bool wanted = GENERATE(false, true);
  Scene scene;
  scene.filled();
  auto wish = test::staged_wish(kId);
  if (wanted) wish.capability.mount_flags = "noatime,ro";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->turned_read_only);
  scene.world.kernel.mounts.front().filesystem_read_only = true;
  CHECK(scene.world.agent.shell().status(kId)->turned_read_only == !wanted);
}

TEST_CASE("how full a volume is comes from its filesystem, by each of its paths and no other") {
  Scene scene;
  CHECK(usage(scene).error().code == errc::not_found);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(usage(scene, kPath)->bytes == kGiB);
  CHECK(usage(scene, kPath + "/" + kId)->bytes == kGiB);
  CHECK(usage(scene, "/elsewhere").error().code == errc::not_found);
  REQUIRE(scene.want(plan::Unstaged{kPath}) == errc::ok);
  CHECK(usage(scene).error().code == errc::not_found);
}

TEST_CASE("a raw block volume tells its size, also on a path that kubelet bound it on, and asks nobody") {
  Scene scene;
  REQUIRE(scene.want(staged_block()) == errc::ok);
  host::Mount bound = scene.world.kernel.mounts.front();
  bound.target = "/kubelet/volumeDevices/dev/pod";
  scene.world.kernel.mounts.push_back(bound);
  const int before = scene.world.calls.made;
  CHECK(usage(scene)->bytes == kGiB);
  CHECK(usage(scene, bound.target)->bytes == kGiB);
  CHECK(scene.world.calls.made == before);
}

TEST_CASE("a hanging filesystem's last statistics are reported, and no second query starts") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  int asked = 0;
  scene.world.calls.before_call = [&](const std::string& call) { asked += call == "usage" ? 1 : 0; };
  SECTION("with an answer") {
    REQUIRE(usage(scene));
    scene.world.calls.delayed = "usage";
    CHECK(usage(scene)->bytes == kGiB);
    CHECK(usage(scene)->bytes == kGiB);
    CHECK(asked == 2);
  }
  SECTION("without one") {
    scene.world.calls.delayed = "usage";
    CHECK(usage(scene).error().code == errc::unavailable);
    CHECK(usage(scene).error().code == errc::unavailable);
    CHECK(asked == 1);
  }
}

TEST_CASE("a filesystem without a server is not asked") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(usage(scene));
  scene.world.agent.kill();
  scene.world.agent.start();
  const int before = scene.world.calls.made;
  CHECK(usage(scene).error().code == errc::unavailable);
  CHECK(scene.world.calls.made == before);
}

TEST_CASE("a hanging statistics query does not keep the agent from leaving") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.calls.delayed = "usage";
  CHECK_FALSE(usage(scene));
  const auto before = scene.loop.clock.now();
  scene.loop.run(scene.world.agent.shell().stop({before + 2s}));
  CHECK(scene.loop.clock.now() == before);
}

TEST_CASE(
    "a device grows with its image on a live link, also when the image grew while nobody served it, and never "
    "shrinks",
    "[failure:17]") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.image().size = 2u << 30;
  scene.world.cluster.resized("id-1");
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 2u << 30);
  scene.world.agent.kill();
  scene.image().size = 3u << 30;
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 3u << 30);
  scene.image().size = 1u << 30;
  scene.world.cluster.resized("id-1");
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.devices.front().size == 3u << 30);
}

TEST_CASE("an image that another client made smaller is no healthy volume until it has grown back", "[failure:243]") {
  const bool by_kernel = GENERATE(false, true);
  Scene scene;
  auto wish = test::staged();
  if (by_kernel) wish.mounter = cephcsi::Mounter::krbd;
  REQUIRE(scene.want(wish) == errc::ok);
  const auto bytes = scene.image().size;
  const auto resized = [&](std::uint64_t to) {
    scene.image().size = to;
    if (by_kernel) scene.device().size = to;
    scene.world.cluster.resized(scene.image().id);
    scene.loop.advance(std::chrono::seconds(1));
    CHECK(scene.want(plan::Healed{}) == errc::ok);
    return *scene.world.agent.shell().status(kId);
  };
  const auto shrunk = resized(bytes / 2);
  CHECK(condition_of(shrunk).reason == "ImageShrunk");
  REQUIRE(shrunk.last_error);
  CHECK_THAT(shrunk.last_error->text, ContainsSubstring(std::to_string(bytes / 2)));
  if (!by_kernel) CHECK(scene.device().size == bytes);
  const auto whole = resized(bytes);
  CHECK(condition_of(whole).reason.empty());
  CHECK_FALSE(whole.last_error);
}
