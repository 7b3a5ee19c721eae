// What callers get for what they want.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::Scene;

namespace {

plan::Published published_at(const std::string& target) {
  plan::Published wish;
  wish.path = test::staged_wish(kId).path;
  wish.target = target;
  wish.capability.fstype = "ext4";
  return wish;
}

}  // namespace

TEST_CASE("a stage with another capability is refused, the error says what differs, and the volume stays as it is",
          "[failure:23]") {
  struct Row {
    void (*change)(plan::Capability&);
    const char* said;
  };
  for (const auto& [change, said] :
       {Row{[](auto& wanted) { wanted.single_writer = true; }, "it is for many pods, and wanted for one pod only"},
        Row{[](auto& wanted) { wanted.read_only = true; }, "it is writable, and wanted read-only"},
        Row{[](auto& wanted) { wanted.fstype = "xfs"; }, "it is ext4, and wanted xfs"},
        Row{[](auto& wanted) { wanted.block = true; }, "it is a filesystem, and wanted a raw block device"}}) {
    Scene scene;
    REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
    auto other = test::staged_wish(kId);
    change(other.capability);
    CHECK(scene.want(other) == errc::already_exists);
    CHECK_THAT(scene.error(), ContainsSubstring(said));
    CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  }
}

TEST_CASE("a stage with other mount flags succeeds, and one warning says that they come with the next stage",
          "[failure:255]") {
  Scene scene;
  scene.kill_and_start(true);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.world.notices.empty());
  auto other = test::staged_wish(kId);
  other.capability.mount_flags = "noatime";
  for (int times = 0; times < 3; ++times) CHECK(scene.want(other) == errc::ok);
  CHECK(scene.world.kernel.mounts.front().options.empty());
  REQUIRE(scene.world.notices.size() == 1);
  CHECK(scene.world.notices.front().second.reason == "NextStage");
  CHECK_THAT(scene.world.notices.front().second.message, ContainsSubstring("\"noatime\""));
  REQUIRE(scene.want(plan::Unstaged{other.path}) == errc::ok);
  REQUIRE(scene.want(other) == errc::ok);
  CHECK(scene.world.kernel.mounts.front().options == "noatime");
  CHECK(scene.world.notices.size() == 1);
}

TEST_CASE("a new filesystem that only newer kernels mount is served, and one warning names its features",
          "[failure:252]") {
  Scene scene;
  scene.kill_and_start(true);
  scene.world.mkfs_beyond_oldest = "parent (Linux 6.10)";
  for (int times = 0; times < 2; ++times) CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.world.notices.size() == 1);
  CHECK(scene.world.notices.front().second.reason == "NeedsNewerKernel");
  CHECK_THAT(scene.world.notices.front().second.message,
             ContainsSubstring("parent (Linux 6.10)") && ContainsSubstring("--mkfs-options"));
}

TEST_CASE("a stage with other mapOptions succeeds, and one warning says that they come with the next stage",
          "[failure:255]") {
  Scene scene;
  scene.kill_and_start(true);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  auto other = test::staged_wish(kId);
  other.source.serving.trim = !other.source.serving.trim;
  for (int times = 0; times < 2; ++times) CHECK(scene.want(other) == errc::ok);
  REQUIRE(scene.world.notices.size() == 1);
  CHECK_THAT(scene.world.notices.front().second.message, ContainsSubstring("other mapOptions"));
}

TEST_CASE("a stage that did not end takes the mount flags of its repetition", "[failure:255]") {
  Scene scene;
  auto first = test::staged_wish(kId);
  first.capability.mount_flags = "nodev";
  scene.world.calls.error = {errc::unavailable, "made to fail"};
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "mount") scene.world.calls.fail_at = 1;
  };
  REQUIRE(scene.want(first) == errc::unavailable);
  scene.world.calls.before_call = nullptr;
  auto second = test::staged_wish(kId);
  second.capability.mount_flags = "noatime";
  REQUIRE(scene.want(second) == errc::ok);
  CHECK(scene.world.kernel.mounts.front().options == "noatime");
  CHECK(scene.world.disk.records.front().stagings.front().capability.mount_flags == "noatime");
}

TEST_CASE("a stage at a path that does not exist says that the request is wrong, not that there is no volume") {
  Scene scene;
  scene.world.disk.missing_paths.insert(test::staged_wish(kId).path);
  CHECK(scene.want(test::staged_wish(kId)) == errc::invalid_argument);
}

TEST_CASE("an image of the same name in another pool is not taken for the one that is staged") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  auto other = test::staged_wish(kId);
  if (GENERATE(true, false)) other.path = "/kubelet/staging/other";
  other.source.pool = "other";
  CHECK(scene.want(other) == errc::already_exists);
  CHECK(scene.world.disk.records.front().stagings.size() == 1);
}

TEST_CASE("a volume that is not staged cannot be published") {
  Scene scene;
  CHECK(scene.want(published_at("/t")) == errc::failed_precondition);
}

TEST_CASE("a volume may be published at several targets, each with its own arguments") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(published_at("/t1")) == errc::ok);
  CHECK(scene.want(published_at("/t2")) == errc::ok);
  CHECK(scene.want(published_at("/t1")) == errc::ok);
  auto other = published_at("/t1");
  other.read_only = true;
  CHECK(scene.want(other) == errc::already_exists);
}

TEST_CASE("unstage and unpublish of what was never there succeed") {
  Scene scene;
  CHECK(scene.want(plan::Unstaged{"/nowhere"}) == errc::ok);
  CHECK(scene.want(plan::Unpublished{"/nowhere"}) == errc::ok);
}

TEST_CASE("an image that another client has locked or open is not taken from it") {
  Scene scene;
  if (GENERATE(true, false)) scene.world.cluster.images[kId].lock_owner = "10.0.0.2:0/5";
  scene.world.cluster.images[kId].watchers.insert("10.0.0.2:0/5");
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
}

TEST_CASE("a device with the volume's id that no record names is left alone", "[failure:29][rule:25]") {
  Scene scene;
  test::KernelDevice foreign;
  foreign.backend = kId;
  scene.world.kernel.devices.push_back(foreign);
  CHECK(scene.want(test::staged_wish(kId)) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("two devices with one volume's id are a conflict that nobody resolves by guessing", "[rule:I4]") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  test::KernelDevice second;
  second.index = 7;
  second.backend = kId;
  scene.world.kernel.devices.push_back(second);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::failed_precondition);
  CHECK(scene.world.kernel.devices.size() == 2);
}

TEST_CASE("two volumes cannot have one image") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  auto second = test::staged_wish(kId);
  second.path = "/kubelet/staging/other";
  const auto done = scene.world.agent.want("another-id", Wish(second));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::in_use);
}

TEST_CASE("the same wish asked again joins the operation, and a waiter that leaves does not end it",
          "[failure:22][rule:13]") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::vector<errc> ends;
  const auto ask = [](Scene& in, std::vector<errc>& into, Until until) -> task<> {
    const auto done = co_await in.world.agent.shell().want(kId, Wish(test::staged_wish(kId)), until);
    into.push_back(done ? errc::ok : done.error().code);
  };
  const auto soon = scene.loop.clock.now() + std::chrono::milliseconds(5);
  gate.spawn(ask(scene, ends, {soon}));
  gate.spawn(ask(scene, ends, {}));
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(ends == std::vector{errc::timed_out, errc::ok});
  CHECK(scene.world.cluster.images[kId].generation == 1);
}

TEST_CASE("a conflicting call is told busy before its deadline") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::vector<errc> ends;
  const auto ask = [](Scene& in, std::vector<errc>& into, Wish wish, Until until) -> task<> {
    const auto done = co_await in.world.agent.shell().want(kId, wish, until);
    into.push_back(done ? errc::ok : done.error().code);
  };
  gate.spawn(ask(scene, ends, Wish(test::staged_wish(kId)), {}));
  scene.loop.poll();
  const auto deadline = scene.loop.clock.now() + std::chrono::milliseconds(5003);
  gate.spawn(ask(scene, ends, Wish(plan::Unstaged{test::staged_wish(kId).path}), {deadline}));
  scene.loop.advance(std::chrono::seconds(10));
  CHECK(ends == std::vector{errc::busy, errc::ok});
}

TEST_CASE("a cordoned agent stages nothing new, and serves, repeats and unstages what it has") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.images["image-2"].id = "id-2";
  scene.world.agent.shell().set_cordoned(true);
  CHECK(scene.want(test::staged_wish("image-2"), "image-2") == errc::unavailable);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(published_at("/t1")) == errc::ok);
  CHECK(scene.want(plan::Unpublished{"/t1"}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.want(test::staged_wish(kId)) == errc::unavailable);
  scene.world.agent.shell().set_cordoned(false);
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
}

TEST_CASE("a full node stages nothing new, and repeats, serves and unstages what it has") {
  Scene scene;
  scene.world.cluster.images["image-2"].id = "id-2";
  scene.world.agent.shell().set_capacity({1, "--max-volumes"});
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const auto refused = scene.world.agent.want("image-2", test::staged_wish("image-2"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::exhausted);
  CHECK(grpc_code(errc::exhausted) == 8);
  CHECK_THAT(refused.error().text, ContainsSubstring("room for 1, by --max-volumes"));
  CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
  CHECK(scene.want(published_at("/t1")) == errc::ok);
  CHECK(scene.want(plan::Unpublished{"/t1"}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.want(test::staged_wish("image-2"), "image-2") == errc::ok);
}

TEST_CASE("a full node still takes a volume back whose device it has, though the record is lost") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  scene.world.disk.records.clear();
  scene.world.agent.start();
  scene.world.agent.shell().set_capacity({0, "a test"});
  CHECK(scene.want(test::staged_wish(kId)) != errc::exhausted);
}

TEST_CASE("an image below 1 MiB is refused before anything is done with it") {
  Scene scene;
  scene.image().size = (1 << 20) - 1;
  CHECK(scene.want(test::staged_wish(kId)) == errc::failed_precondition);
  CHECK(scene.world.disk.records.empty());
}
