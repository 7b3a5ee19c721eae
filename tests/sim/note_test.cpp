// What the agent leaves for ceph-csi: its stash in the staging path, and the note of this node in the image's
// metadata.
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kHandle;
using test::kUuid;
using test::Scene;

namespace {

const std::string kUser = ".rbd.csi.ceph.com/userid/" + kHandle + "/node-1";
const std::string kAddress = ".rbd.csi.ceph.com/clientaddress/" + kHandle + "/node-1";

plan::Staged provisioned_wish() {
  auto wish = test::staged_wish(kHandle);
  wish.source.pool.clear();
  wish.source.image.clear();
  wish.reserved = image::Reserved{1, kUuid};
  wish.stash.unmap_options = "force";
  wish.stash.log_dir = "/var/log/ceph";
  wish.stash.log_strategy = "remove";
  return wish;
}

/// One image of a provisioner.
struct Provisioned {
  test::Loop loop;
  test::World world{loop};
  const plan::Staged wish = provisioned_wish();
  explicit Provisioned(bool fencing = true) {
    world.cluster.images["csi-vol-1"].id = "id-9";
    world.cluster.journals[{1, kUuid}]["csi.imagename"] = "csi-vol-1";
    world.agent.fencing = fencing;
    world.agent.start();
  }
  ~Provisioned() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  result<> want(const Wish& wanted) { return world.agent.want(kHandle, wanted); }
  /// The agent that dies is followed by one that heals, and the caller repeats.
  result<> insist(const Wish& wanted) {
    for (int tries = 0; tries < 5; ++tries) try {
        return want(wanted);
      } catch (const test::Crash&) {
        next_agent();
        CHECK(want(plan::Healed{}));
      }
    return Error{errc::internal, "it did not converge"};
  }
  void next_agent() {
    world.agent.kill();
    world.agent.start();
  }
  std::map<std::string, std::string>& metadata() { return world.cluster.images.at("csi-vol-1").metadata; }
  std::string noted(const std::string& key) { return metadata().contains(key) ? metadata().at(key) : ""; }
};

}  // namespace

TEST_CASE("ceph-csi's controller reads the user in the image's metadata, and with fencing the address") {
  const bool fencing = GENERATE(false, true);
  Provisioned node(fencing);
  REQUIRE(node.want(node.wish));
  CHECK(node.noted(kUser) == "node");
  CHECK(node.noted(kAddress) == (fencing ? "10.0.0.1" : ""));
}

TEST_CASE("nothing is noted of a static volume") {
  Scene scene;
  scene.world.agent.fencing = true;
  scene.kill_and_start();
  REQUIRE(scene.want(test::staged_wish(test::kId)) == errc::ok);
  CHECK(scene.image().metadata.empty());
}

TEST_CASE("a stage that cannot note its node fails so that kubelet repeats it, and makes no device") {
  Provisioned node;
  const errc code = GENERATE(errc::permission_denied, errc::unavailable);
  node.world.calls.before_call = [&](const std::string& call) {
    if (call == "set metadata") node.world.calls.fail_at = 1, node.world.calls.error = {code, "made to fail"};
  };
  const auto staged = node.want(node.wish);
  REQUIRE_FALSE(staged);
  CHECK_FALSE(final_for_caller(staged.error().code));
  CHECK(node.world.kernel.devices.empty());
  node.world.calls.before_call = nullptr;
  CHECK(node.want(node.wish));
}

TEST_CASE("a heal on another address notes it, and what is known is not written again") {
  Provisioned node;
  REQUIRE(node.want(node.wish));
  node.metadata().erase(kUser);
  node.world.agent.node_address = "10.0.0.4";
  node.next_agent();
  REQUIRE(node.want(plan::Healed{}));
  CHECK(node.noted(kAddress) == "10.0.0.4");
  CHECK_FALSE(node.metadata().contains(kUser));
}

TEST_CASE("a heal under another node name than that of the stage notes the volume under the present one") {
  Provisioned node;
  REQUIRE(node.want(node.wish));
  node.world.agent.kill();
  node.world.disk.records.front().names.node = "another";
  node.metadata().erase(kUser);
  node.metadata().erase(kAddress);
  node.world.agent.start();
  REQUIRE(node.want(plan::Healed{}));
  CHECK(node.noted(kUser) == "node");
  CHECK(node.noted(kAddress) == "10.0.0.1");
}

TEST_CASE("a heal whose note is refused serves its device all the same, and the next one tries again") {
  Provisioned node;
  REQUIRE(node.want(node.wish));
  node.world.agent.node_address = "10.0.0.4";
  node.next_agent();
  node.world.calls.before_call = [&](const std::string& call) {
    if (call == "set metadata") node.world.calls.fail_at = 1;
  };
  CHECK(node.want(plan::Healed{}));
  CHECK(node.world.kernel.devices.front().alive);
  CHECK(node.noted(kAddress) == "10.0.0.1");
  node.world.calls.before_call = nullptr;
  CHECK(node.want(plan::Healed{}));
  CHECK(node.noted(kAddress) == "10.0.0.4");
}

TEST_CASE("a stage interrupted anywhere ends with the notes for ceph-csi written, and the unstage removes them") {
  bool crashed = true;
  for (int at = 1; crashed; ++at) {
    CAPTURE(at);
    Provisioned node;
    node.world.calls.crash_at = at;
    CHECK(node.insist(node.wish));
    CHECK(node.noted(kUser) == "node");
    CHECK(node.noted(kAddress) == "10.0.0.1");
    REQUIRE(node.world.disk.stashes.contains(node.wish.path));
    CHECK(node.world.disk.stashes.at(node.wish.path) ==
          cephcsi::Stash{"pool", "", "csi-vol-1", "force", true, false, "/dev/nbd0", "/var/log/ceph", "remove"});
    CHECK(node.insist(plan::Unstaged{node.wish.path}));
    CHECK(node.world.disk.stashes.empty());
    CHECK(node.world.disk.records.empty());
    CHECK(node.world.kernel.devices.empty());
    crashed = node.world.calls.crash_at == 0;
    REQUIRE(at < 200);
  }
}

TEST_CASE("wherever a heal on another address is interrupted, the next one notes it") {
  bool crashed = true;
  for (int at = 1; crashed; ++at) {
    CAPTURE(at);
    Provisioned node;
    REQUIRE(node.want(node.wish));
    node.world.agent.node_address = "10.0.0.4";
    node.next_agent();
    node.world.calls.crash_at = at;
    CHECK(node.insist(plan::Healed{}));
    CHECK(node.noted(kAddress) == "10.0.0.4");
    crashed = node.world.calls.crash_at == 0;
    REQUIRE(at < 100);
  }
}

TEST_CASE("two staging paths have a stash each, and each goes with its own unstage") {
  Provisioned node;
  auto second = node.wish;
  second.path += "-2";
  REQUIRE(node.want(node.wish));
  REQUIRE(node.want(second));
  CHECK(node.world.disk.stashes.size() == 2);
  CHECK(node.world.disk.stashes.at(second.path).device == "/dev/nbd0");
  REQUIRE(node.want(plan::Unstaged{node.wish.path}));
  CHECK_FALSE(node.world.disk.stashes.contains(node.wish.path));
  CHECK(node.world.disk.stashes.contains(second.path));
  REQUIRE(node.want(plan::Unstaged{second.path}));
  CHECK(node.world.disk.stashes.empty());
  CHECK(node.world.kernel.devices.empty());
}

TEST_CASE("a stage that fails for good leaves no stash") {
  Provisioned node;
  node.world.cluster.images.at("csi-vol-1").data = true;  // and no filesystem
  CHECK_FALSE(node.want(node.wish));
  CHECK(node.world.disk.stashes.empty());
  CHECK(node.world.kernel.devices.empty());
}

TEST_CASE("a volume whose record is lost is taken over by its stash") {
  Provisioned node;
  REQUIRE(node.want(node.wish));
  node.world.agent.kill();
  node.world.disk.records.clear();
  node.world.agent.start(true);
  static_cast<void>(node.want(node.wish));
  node.loop.advance(std::chrono::seconds(90));
  CHECK(node.world.kernel.devices.front().alive);
  CHECK(node.world.cluster.images.at("csi-vol-1").lock_owner == node.world.agent.client());
  CHECK(node.want(plan::Unstaged{node.wish.path}));
  CHECK(node.world.kernel.devices.empty());
  CHECK(node.world.disk.stashes.empty());
}
