// Whose an image is when others come by: tools of the cluster, rbd-nbd of this node, another node's agent that waits
// for us, and the orchestrator's word against the lock's (rule 2a).
#include "scene.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using plan::Attachment;
using test::kId;
using test::Scene;
using volume::Health;
using State = Attachment::State;

namespace {

const std::string kTool = "10.0.0.9:0/77";
const std::string kOther = "10.0.0.2:0/5";
const Attachment kHere{State::here, "uid-1", ""};
const Attachment kAway{State::away, "", "it was deleted"};

/// A volume that was served under attachment "uid-1", or without any, and whose agent died with a write in the kernel.
struct Dead : Scene {
  explicit Dead(bool attached = true) {
    filled();
    REQUIRE(want(test::staged_wish(kId)) == errc::ok);
    if (attached) REQUIRE(want(plan::Attached{"uid-1"}) == errc::ok);
    world.agent.kill();
    world.kernel.application_writes(device(), 0);
  }
  ~Dead() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  void start(Attachment told, bool with_healer = true) {
    world.attachment = std::move(told);
    world.agent.start(with_healer);
  }
  Health health() { return world.agent.shell().status(kId)->health; }
  bool watched() { return image().watchers.contains(world.agent.client()); }
  /// The watches of our dead client are over.
  void forgotten() {
    loop.advance(31s);
    image().watchers.clear();
  }
};

}  // namespace

// --- Our own watch

TEST_CASE("a stage that finds the image in use closes it") {
  Scene scene;
  scene.image().watchers.insert(kOther);
  CHECK(scene.want(test::staged_wish(kId)) == errc::in_use);
  CHECK(scene.image().watchers == std::set{kOther});
}

TEST_CASE("what is unproven or lost is closed") {
  Dead scene;
  const int which = GENERATE(range(0, 3));
  const Attachment told = which == 0 ? kHere : which == 1 ? Attachment() : kAway;
  scene.image().watchers.insert(kOther);
  scene.start(told, false);
  CHECK(scene.want(plan::Healed{}) == (told.state == State::away ? errc::lost : errc::unproven));
  CHECK_FALSE(scene.watched());
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("a node whose volume moved lets the other's agent in") {
  Dead scene;
  scene.forgotten();
  scene.start(kAway);
  scene.world.cluster.other_agent_waits(kId, kOther);
  scene.loop.advance(3min);
  CHECK(scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.health() == Health::failed);
}

TEST_CASE("a node that can prove nothing lets the other's agent in, and never writes over it") {
  Dead scene(false);
  scene.forgotten();
  scene.image().lock_owner.clear();
  scene.start({});
  scene.world.cluster.other_agent_waits(kId, kOther);
  scene.loop.advance(3min);
  CHECK(scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.health() == Health::unproven);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
}

TEST_CASE("of a node that heals and an agent that waits one gets the image") {
  Dead scene(GENERATE(true, false));
  const bool stayed = !scene.world.disk.records.front().attachment_uid.empty();
  scene.world.cluster.other_agent_waits(kId, kOther, GENERATE(200ms, 2s));
  scene.start(stayed ? kHere : Attachment{});
  scene.loop.advance(10min);
  const bool ours = scene.health() == Health::staged;
  CHECK(ours != scene.world.cluster.other_agents.contains(kOther));
  CHECK(scene.world.kernel.answered == (ours ? 1 : 0));
}

TEST_CASE("of two agents that stage one image one gets it") {
  Scene scene;
  scene.world.cluster.other_agent_waits(kId, kOther, 5s);
  bool ours = false;
  for (int tries = 0; tries < 20 && !ours; ++tries) {
    ours = scene.want(test::staged_wish(kId)) == errc::ok;
    scene.loop.advance(std::chrono::milliseconds(1700 + 100 * tries));
  }
  CHECK(ours != scene.world.cluster.other_agents.contains(kOther));
}

// --- Others' locks

TEST_CASE("a tool that has the dead client's lock for minutes costs a volume that stayed here only that time") {
  Dead scene;
  scene.forgotten();
  REQUIRE(scene.world.cluster.maintain(scene.image(), kTool));
  scene.start(kHere);
  scene.loop.advance(3min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.error().find(kTool) != std::string::npos);
  scene.world.cluster.leave(scene.image(), kTool, true);
  scene.loop.advance(2min);
  CHECK(scene.health() == Health::staged);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("without an orchestrator another's lock is unproven, and nothing waiting is written once it is free") {
  Dead scene(false);
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.start({});
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.loop.advance(10min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.world.kernel.answered == 0);
}

TEST_CASE("time in which a volume was unproven does not count for giving it up") {
  Dead scene;
  scene.start({State::unknown, "", "no route to host"}, false);
  scene.image().lock_owner = kOther;
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  scene.loop.advance(5min);
  scene.world.attachment = kAway;
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  scene.loop.advance(50s);
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  CHECK_FALSE(scene.world.disk.records.front().failed);
}

TEST_CASE("a lock that was taken from a client that lived is lost where no orchestrator knows more") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const bool attached = GENERATE(true, false);
  if (attached) REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = attached ? kHere : Attachment{};
  REQUIRE(scene.world.cluster.visit(scene.image(), kOther, true));
  scene.loop.advance(1s);
  CHECK(scene.want(plan::Healed{}) == (attached ? errc::unproven : errc::lost));
}

TEST_CASE(
    "a dead client of this node that no file tells of is fenced, and its volume served, when the volume stayed here") {
  Dead scene;
  const std::string client = scene.image().lock_owner;
  scene.world.agent.clients.clear();  // its file was damaged, and set aside
  scene.start(kHere);
  scene.loop.advance(20s);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));  // its watch stands: it may live
  CHECK(scene.health() == Health::unproven);
  scene.loop.advance(2min);
  CHECK(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.health() == Health::staged);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE(
    "a dead client of this node that no file tells of proves nothing by itself, but the operator's word lets it be "
    "fenced") {
  Dead scene(false);
  const std::string client = scene.image().lock_owner;
  scene.world.agent.clients.clear();
  scene.start({});
  scene.loop.advance(5min);
  CHECK(scene.health() == Health::unproven);
  CHECK(scene.error().find("--without-proof") != std::string::npos);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.world.cluster.blocklisted.contains(client));
}

TEST_CASE("a client of this node that watches lives, and is not fenced whoever vouches") {
  Dead scene;
  scene.forgotten();
  const std::string tool = "10.0.0.1:0/4711";  // `rbd` on this host
  REQUIRE(scene.world.cluster.maintain(scene.image(), tool));
  scene.start(kHere);
  scene.loop.advance(5min);
  CHECK(scene.want(plan::Healed{true}) == errc::unproven);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(tool));
  CHECK_FALSE(scene.device().alive);
}

// --- The operator's word

TEST_CASE("the operator's word counts in one try, and is forgotten with it") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  scene.world.calls.fail_at = 3;  // the look at its owner
  REQUIRE(scene.want(plan::Healed{true}) != errc::ok);
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK(scene.device().alive);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
}

TEST_CASE("what was done on the operator's word in a try that failed proves nothing to the next one") {
  Dead scene(false);
  scene.world.agent.clients.clear();  // the dead client's file was damaged
  scene.forgotten();
  scene.start({}, false);
  const std::string in = GENERATE("fence", "break lock", "acquire lock", "kernel reconfigure");
  const bool dies = GENERATE(true, false);
  CAPTURE(in, dies);
  if (dies) {
    scene.world.calls.crash_in = in;
    CHECK_THROWS_AS(scene.world.agent.want(kId, plan::Healed{true}), test::Crash);
    scene.kill_and_start();
    scene.forgotten();
  } else {
    int seen = 0;
    scene.world.calls.before_call = [&](const std::string& call) {
      // The first fence is of nobody.
      if (call == in && ++seen == (in == "fence" ? 2 : 1)) scene.world.calls.fail_at = 1;
    };
    CHECK(scene.want(plan::Healed{true}) != errc::ok);
    scene.world.calls.before_call = nullptr;
  }
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK_FALSE(scene.device().alive);
  CHECK_FALSE(scene.watched());
  const bool stayed = GENERATE(true, false);
  if (stayed) scene.world.disk.records.front().attachment_uid = "uid-1";
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  CHECK_FALSE(scene.world.disk.records.front().on_word);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("what the orchestrator said before a wait is asked again after it") {
  Scene scene;
  scene.image().exclusive = false;
  const auto device = scene.world.ceph_csi.stages(kId, test::staged_wish(kId).path);
  scene.image().lock_owner.clear();
  scene.world.ceph_csi.ends(device, false);
  scene.loop.advance(1min);
  auto wish = test::staged_wish(kId);
  wish.attachment = kHere;
  scene.world.attachment = kAway;
  scene.world.calls.under_way.push_back({kId, {"resizing /dev/nbd0", {}}});
  scene.loop.outside_in(2s, [&] { scene.world.calls.under_way.clear(); });
  CHECK(scene.want(wish) != errc::ok);
  CHECK_FALSE(scene.device().alive);
}

TEST_CASE("where volumes of the driver are not attached, the operator's word counts") {
  Dead scene(false);
  scene.forgotten();
  scene.image().lock_owner.clear();
  scene.start({State::none, "", "attachRequired: false"}, false);
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find("attachRequired: false") != std::string::npos);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
}

// --- An image without the exclusive lock

TEST_CASE(
    "an image without the exclusive lock whose link ended waits for a word: who came and went meanwhile left no "
    "trace") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = false;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.cluster.odd_error = EBADE;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(10ms);
  REQUIRE_FALSE(scene.device().alive);
  scene.world.cluster.odd_error = 0;
  const bool dies = GENERATE(false, true);
  CAPTURE(dies);
  if (dies) scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  CHECK(scene.error().find("corbd heal image-1 --without-proof") != std::string::npos);
  scene.loop.advance(40s);
  CHECK(scene.world.kernel.answered == 0);
  CHECK(scene.want(plan::Healed{true}) == errc::ok);
  scene.loop.advance(40s);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("the operator's word reaches over no client, no attachment and no volume that was given up") {
  Dead scene;
  scene.image().lock_owner.clear();
  const int what = GENERATE(range(0, 6));
  CAPTURE(what);
  Attachment told{State::unknown, "", "no route to host"};
  errc expected = errc::unproven;
  if (what == 0) scene.image().watchers.insert(kOther);
  if (what == 1) scene.image().lock_owner = kOther;
  if (what == 2) told = {State::here, "uid-2", ""};
  if (what == 3 || what == 4) told = kAway;
  if (what == 4) scene.world.disk.records.front().attachment_uid.clear();
  if (what == 2 || what == 3 || what == 5) expected = errc::lost;
  scene.start(told, false);
  if (what == 5) REQUIRE(scene.want(plan::Failed{}) == errc::ok);
  CHECK(scene.want(plan::Healed{true}) == expected);
  CHECK(scene.world.kernel.answered == 0);
  if (what != 5) CHECK_FALSE(scene.device().alive);
}

TEST_CASE("the operator's word is advised where it counts, and nowhere else") {
  Dead scene(false);
  scene.image().lock_owner.clear();
  const int which = GENERATE(range(0, 3));
  const Attachment told = which == 0 ? kHere : which == 1 ? Attachment() : kAway;
  scene.start(told, false);
  REQUIRE(scene.want(plan::Healed{}) == errc::unproven);
  const bool advised = scene.error().find("corbd heal image-1 --without-proof") != std::string::npos;
  CHECK(advised == (told.state != State::away));
  CHECK(advised == (scene.error().find("corbd fail image-1 --yes-really") == std::string::npos));
  CHECK((scene.want(plan::Healed{true}) == errc::ok) == advised);
}

// --- What is left for an agent that finds no record

TEST_CASE("the VolumeAttachment of a served volume is told beside it, also after a new one took its place") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  const auto& stash = scene.world.disk.stashes.at(test::staged_wish(kId).path);
  CHECK(stash.attachment == "");
  for (const std::string uid : {"uid-1", "uid-2"}) {
    auto expected = stash;
    expected.attachment = uid;
    REQUIRE(scene.want(plan::Attached{uid}) == errc::ok);
    CHECK(stash == expected);
  }
  REQUIRE(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
  CHECK(scene.world.disk.stashes.empty());
}

TEST_CASE("of two staging paths the one without a stash gets none by the other's") {
  Scene scene;
  auto wish = test::staged_wish(kId);
  const std::string first = wish.path;
  REQUIRE(scene.want(wish) == errc::ok);
  wish.path += "-too";
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.disk.stashes.erase(first);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  CHECK_FALSE(scene.world.disk.stashes.contains(first));
}

// --- rbd-nbd, there and back

TEST_CASE("a volume goes to ceph-csi's healer and comes back, twice, under its writer") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    scene.world.agent.stop();
    scene.world.kernel.application_writes(scene.device(), 0);
    scene.loop.advance(31s);
    scene.world.ceph_csi.heals(0);
    scene.loop.advance(3s);
    scene.world.kernel.application_writes(scene.device(), 1);
    scene.loop.advance(1s);
    scene.world.ceph_csi.ends(0, GENERATE(false, true));
    scene.world.kernel.application_writes(scene.device(), 2);
    scene.world.agent.start(true);
    scene.loop.advance(3min);
    const auto status = scene.world.agent.shell().status(kId);
    CHECK(status->health == Health::staged);
    CHECK_FALSE(status->served_by_other);
    CHECK(scene.device().alive);
    CHECK(scene.device().requests.empty());
    CHECK_FALSE(scene.world.disk.records.front().failed);
  }
  CHECK(scene.world.kernel.errors == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("a device that ceph-csi's healer gave to rbd-nbd is left alone as long as that lives") {
  Scene scene;
  scene.filled();
  scene.image().exclusive = GENERATE(true, false);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  scene.world.attachment = kHere;
  scene.world.agent.stop();
  scene.loop.advance(31s);
  scene.world.ceph_csi.heals(0);
  const std::string client = scene.world.ceph_csi.daemons.at(0);
  scene.world.agent.start(true);
  scene.loop.advance(5min);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other);
  CHECK_FALSE(scene.world.cluster.blocklisted.contains(client));
  CHECK(scene.image().watchers == std::set{client});
  scene.world.ceph_csi.ends(0, false);
  scene.loop.advance(3min);
  CHECK_FALSE(scene.world.agent.shell().status(kId)->served_by_other);
  CHECK(scene.device().alive);
  CHECK(scene.want(plan::Unstaged{test::staged_wish(kId).path}) == errc::ok);
}

TEST_CASE("a record that stash and kernel contradict is closed: ceph-csi staged the volume anew on another device") {
  Scene scene;
  scene.filled();
  const auto wish = test::staged_wish(kId);
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.agent.stop();
  // ceph-csi unstages it, and stages another volume on its device, and this one on the next.
  scene.world.kernel.mounts.clear();
  scene.world.kernel.devices.clear();
  scene.world.disk.stashes.clear();
  scene.image().lock_owner.clear();
  scene.image().watchers.clear();
  scene.world.cluster.images["image-2"].id = "id-2";
  scene.world.ceph_csi.stages("image-2", test::staged_wish("image-2").path);
  const auto index = scene.world.ceph_csi.stages(kId, wish.path);
  REQUIRE(index == 1);
  const bool rebooted = GENERATE(false, true);
  if (rebooted) scene.world.kernel.boot_id += "'";
  scene.world.agent.start(GENERATE(true, false));
  const int what = GENERATE(range(0, 3));
  CAPTURE(what, rebooted);
  if (what == 0) {
    CHECK(scene.want(plan::Healed{}) == errc::ok);
    CHECK(scene.world.disk.records.empty());
    CHECK(scene.world.ceph_csi.daemons.contains(index));
  }
  if (what == 1) {
    CHECK(scene.want(wish) == errc::ok);
    CHECK(scene.world.disk.records.front().device == index);
    CHECK(scene.world.agent.shell().status(kId)->served_by_other);
  }
  if (what == 2) {
    CHECK(scene.want(plan::Unstaged{wish.path}) == errc::ok);
    CHECK(scene.world.kernel.devices.size() == 1);
    CHECK(scene.world.disk.records.empty());
  }
}

TEST_CASE("the record of a volume that ceph-csi unstaged is closed at the next start") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.stop();
  scene.world.kernel.mounts.clear();
  scene.world.kernel.devices.clear();
  scene.world.disk.stashes.clear();
  scene.world.agent.start(true);
  scene.loop.advance(1min);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.disk.keys.empty());
}

namespace {

/// Served under "uid-1"; then ceph-csi unstaged it, and staged it anew under "uid-2" on a device of the same number.
struct Restaged : Scene {
  std::uint32_t index = 0;
  plan::Staged wish = test::staged_wish(kId);
  explicit Restaged(bool failed = false) {
    filled();
    REQUIRE(want(wish) == errc::ok);
    REQUIRE(want(plan::Attached{"uid-1"}) == errc::ok);
    if (failed) REQUIRE(want(plan::Failed{}) == errc::ok);
    world.agent.stop();
    world.kernel.mounts.clear();
    world.kernel.devices.clear();
    world.disk.stashes.clear();
    image().lock_owner.clear();
    image().watchers.clear();
    index = world.ceph_csi.stages(kId, wish.path);
    REQUIRE(index == *world.disk.records.front().device);
    world.attachment = {State::here, "uid-2", ""};
  }
  ~Restaged() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
};

}  // namespace

TEST_CASE("what ceph-csi staged anew on a device of the same number is no volume of the record, which is closed") {
  Restaged scene;
  const int rbd_nbd = GENERATE(range(0, 3));  // lives, was killed, ended
  CAPTURE(rbd_nbd);
  if (rbd_nbd > 0) scene.world.ceph_csi.ends(scene.index, rbd_nbd == 2);
  scene.loop.advance(1min);
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.image().watchers.size() == (rbd_nbd == 0 ? 1 : 0));
  // As the finder has it.
  scene.wish.attachment = scene.world.attachment;
  CHECK(scene.want(scene.wish) == errc::ok);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other == (rbd_nbd == 0));
  CHECK(scene.device().alive);
  CHECK(scene.world.disk.records.front().attachment_uid == "uid-2");
}

TEST_CASE("a stage takes what ceph-csi staged anew on a device of the same number") {
  Restaged scene;
  scene.world.agent.start();
  CHECK(scene.want(scene.wish) == errc::ok);
  CHECK(scene.world.agent.shell().status(kId)->served_by_other);
}

TEST_CASE("a volume that was given up offers its tombstone to no device that ceph-csi staged anew") {
  Restaged scene(true);
  const bool told = GENERATE(true, false);
  if (!told) scene.world.attachment = {State::unknown, "", "no route to host"};
  scene.world.ceph_csi.ends(scene.index, false);
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1min);
  scene.world.agent.start(true);
  scene.loop.advance(2min);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.disk.records.empty() == told);
  scene.world.attachment = {State::here, "uid-2", ""};
  scene.loop.advance(2min);
  scene.wish.attachment = scene.world.attachment;
  CHECK(scene.want(scene.wish) == errc::ok);
  scene.loop.advance(1min);
  CHECK(scene.world.kernel.answered == 1);
}

TEST_CASE("a stash that is not signed yet does not close the record of a volume that stayed attached") {
  Scene scene;
  scene.filled();
  const bool failed = GENERATE(true, false);
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  REQUIRE(scene.want(plan::Attached{"uid-1"}) == errc::ok);
  if (failed) REQUIRE(scene.want(plan::Failed{}) == errc::ok);
  scene.world.disk.stashes.at(test::staged_wish(kId).path).attachment.clear();
  scene.world.attachment = kHere;
  scene.world.agent.kill();
  scene.image().lock_owner.clear();
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.disk.records.size() == 1);
  CHECK(scene.world.agent.shell().status(kId)->health == (failed ? Health::failed : Health::staged));
}

TEST_CASE(
    "a stash that was never signed shows no other stage: a volume that was attached anew is lost, and nobody's word "
    "counts") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  // The agent dies when it knows the attachment, and before the stash has it.
  scene.world.calls.crash_in = "write stash";
  REQUIRE_THROWS_AS(scene.want(plan::Attached{"uid-1"}), test::Crash);
  scene.world.agent.kill();
  REQUIRE(scene.world.disk.records.front().attachment_uid == "uid-1");
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.cluster.visit(scene.image(), kOther, false);
  scene.world.cluster.leave(scene.image(), kOther, true);
  scene.image().lock_owner.clear();
  scene.world.attachment = {State::here, "uid-2", ""};
  scene.world.agent.start();
  CHECK(scene.want(plan::Healed{}) == errc::lost);
  CHECK(scene.want(plan::Healed{true}) == errc::lost);
  CHECK(scene.world.disk.records.size() == 1);
  CHECK(scene.world.kernel.answered == 0);
}
