// A planned restart: the next agent resumes its predecessor's links.
#include <algorithm>
#include <list>

#include "corbd/core/gate.hpp"
#include "corbd/volume/condition.hpp"
#include "scene.hpp"
#include "support/world/handover.hpp"
#include "support/world/ports.hpp"

using namespace corbd;
using plan::Wish;
using test::Handover;
using test::kId;
using test::Loop;
using test::Scene;
using test::World;
using namespace std::chrono_literals;

namespace {

void check_rules(const Scene& scene) {
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

task<volume::Taken> taken_in(Scene& scene, duration time) {
  co_await sleep_until(scene.loop.control(), scene.loop.clock, scene.loop.clock.now() + time);
  co_return volume::Taken::served;
}

/// Stages, writes, and hands over with a death before call number `at` of the port; then whoever lives heals.
/// Whether anybody died.
bool survives_death(int at, plan::Staged wish) {
  Scene scene;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.write_all();
  scene.loop.advance(1s);
  scene.write_all();
  scene.world.calls.crash_at = at;
  bool died = false;
  try {
    scene.world.agent.hand_over();
    static_cast<void>(scene.world.agent.want(kId, Wish(plan::Healed{})));
  } catch (const test::Crash&) {
    died = true;
    scene.kill_and_start();
  }
  scene.world.calls.crash_at = 0;
  INFO("somebody died before call " << at);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(3s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  check_rules(scene);
  return died;
}

/// Two processes of one node, which hand over to and fro.
struct TwoProcesses {
  TwoProcesses() {
    loop.stand_beside(beside);
    first.cluster.images[kId].id = "id-1";
    first.agent.start();
    for (World* one : {&first, &second}) one->hazards = &calm;
  }
  ~TwoProcesses() {
    for (World* one : {&first, &second})
      if (one->agent.running()) one->agent.kill();
  }
  void write_all() {
    for (auto& one : first.kernel.devices)
      for (std::size_t block = 0; block < test::kBlocks; ++block) first.kernel.application_writes(one, block);
  }
  /// To its end, as src/agent does: who has given everything ends, and so does who was told to before anything began.
  void go_on(Handover& of) {
    of.begin();
    loop.poll();
    finish(of);
  }
  void finish(Handover& of) {
    for (const auto end = loop.clock.now() + 5min;
         !(of.next_serves && !of.before.agent.running()) && of.next.agent.running() && loop.clock.now() < end;) {
      loop.step(end);
      if (of.before_ended && of.before.agent.running()) of.before.agent.kill(true);
      if (of.next_ended) {
        of.end(false);
        of.next.agent.kill(true);
      }
    }
    loop.advance(10ms);
  }
  /// Writes go on, and no application noticed what came before.
  void expect_unnoticed() {
    write_all();
    loop.advance(1s);
    CHECK(first.kernel.devices.front().requests.empty());
    CHECK(first.kernel.deaths == 0);
    CHECK(first.kernel.errors == 0);
  }
  Loop loop, beside;
  World first{loop}, second{beside, first};
  test::Calm calm;
};

/// A rollout is undone: the next agent is told to end before its call number `at`, or soon after its last one. Whether
/// it has so many.
bool survives_undo(int at) {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  node.write_all();
  loop.advance(1s);
  node.write_all();
  Handover there(first, second), back(second, first);
  int calls = 0;
  second.calls.before_call = [&](const std::string&) {
    if (++calls == at) there.tell_next_to_end();
  };
  node.go_on(there);
  second.calls.before_call = nullptr;
  INFO("told before call " << at);
  if (second.agent.running()) {
    there.tell_next_to_end();
    CHECK(there.next_calls_reserve());
    node.write_all();
    node.go_on(back);
    CHECK(back.next_serves);
  }
  CHECK(first.agent.running());
  CHECK_FALSE(second.agent.running());
  node.write_all();
  loop.advance(3s);
  CHECK(std::ranges::all_of(first.kernel.devices, [](const auto& one) { return one.alive && one.requests.empty(); }));
  CHECK(first.kernel.deaths == 0);
  CHECK(first.kernel.errors == 0);
  CHECK(first.cluster.blocklisted.empty());
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
  return calls >= at;
}

}  // namespace

TEST_CASE("a next agent that would be refused because a cache was switched on gets no device, and people are told",
          "[failure:232]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  first.cluster.images[kId].cached = true;
  const auto status = first.agent.shell().status(kId);
  CHECK_FALSE(status->unserved);
  CHECK(volume::condition_of(*status).reason == "NotServedAgain");
  Handover there(first, second);
  node.go_on(there);
  CHECK(there.refused);
  CHECK_FALSE(there.lock_said);
  node.write_all();
  loop.advance(1s);
  CHECK(first.kernel.devices.front().requests.empty());
  CHECK(first.kernel.deaths == 0);
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

// changes X1 (c)
TEST_CASE("a volume whose user is refused to both agents, or may only read, is handed over only if an operator says so",
          "[failure:267]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  // The client that serves was let in before, with the rights of then.
  const bool reads = GENERATE(false, true);
  if (reads)
    first.cluster.readers.insert("node");
  else
    first.cluster.users.erase("node");
  Handover there(first, second);
  there.accepts_refused = GENERATE(false, true);
  node.go_on(there);
  CHECK(there.refused == !there.accepts_refused);
  CHECK(there.lock_said == there.accepts_refused);
  node.write_all();
  loop.advance(5s);
  // Where they are handed over, they wait until the cluster lets the user write again, and nothing fails.
  CHECK(first.kernel.devices.front().requests.empty() == there.refused);
  CHECK(first.kernel.errors == 0);
  if (there.refused) return;
  first.cluster.readers.clear();
  first.cluster.users["node"] = test::staged_wish(kId).credential.key;
  loop.advance(30s);
  CHECK(second.agent.want(kId, Wish(plan::Healed{})));
  loop.advance(30s);
  CHECK(first.kernel.devices.front().requests.empty());
  CHECK(first.kernel.errors == 0);
}

TEST_CASE("nothing is handed over while a pool is full, also if a write waits there, and everything once there is room",
          "[failure:131]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  first.cluster.full_pools = {1};
  const bool waits = GENERATE(false, true);
  if (waits) node.write_all();
  Handover there(first, second);
  node.go_on(there);
  CHECK(there.refused);
  CHECK_FALSE(there.lock_said);
  first.cluster.full_pools.clear();
  loop.advance(1s);
  Handover again(first, second);
  node.go_on(again);
  CHECK(again.next_serves);
  CHECK(first.kernel.deaths == 0);
  CHECK(first.kernel.errors == 0);
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("a volume that only the next agent could not open again keeps the present one, whatever an operator says",
          "[failure:267]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  first.cluster.images[kId].exclusive = false;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  second.disk.records.front().names.node = "another";
  second.attachment.maybe_away = true;
  Handover there(first, second);
  there.accepts_refused = true;
  node.go_on(there);
  CHECK(there.refused);
  CHECK_FALSE(there.lock_said);
}

TEST_CASE("a next agent that cannot read a record is refused before anything is given to it", "[failure:230]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  first.disk.unreadable_record = true;
  Handover there(first, second);
  node.go_on(there);
  CHECK(there.refused);
  CHECK_FALSE(there.lock_said);
  node.write_all();
  loop.advance(1s);
  CHECK(first.kernel.devices.front().requests.empty());
  CHECK(first.kernel.deaths == 0);
}

TEST_CASE("an agent whose record was damaged or removed writes it again, and hands over to a next one that read it",
          "[failure:20]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  if (GENERATE(false, true))
    first.disk.torn_records.insert(kId);
  else
    first.disk.records.clear();
  for (const bool refused : {true, false}) {
    Handover there(first, second);
    node.go_on(there);
    CHECK(there.refused == refused);
    CHECK(there.lock_said == !refused);
    CHECK(there.next_serves == !refused);
    CHECK(first.disk.torn_records.empty());
    CHECK(first.disk.records.size() == 1);
    node.write_all();
    loop.advance(1s);
    CHECK(first.kernel.devices.front().requests.empty());
  }
  CHECK(first.kernel.deaths == 0);
  CHECK(first.kernel.errors == 0);
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("an agent whose record was replaced by an older one writes it again, and hands over to the next that asks",
          "[failure:20]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto backup = first.disk.records;
  REQUIRE(first.agent.want(kId, Wish(test::published(test::staged_wish(kId), "/pods/1/mount"))));
  const auto published = first.disk.records.front().publishes;
  REQUIRE(backup.front().publishes != published);
  first.disk.records = backup;
  for (const bool refused : {true, false}) {
    Handover there(first, second);
    node.go_on(there);
    CHECK(there.refused == refused);
    CHECK(there.next_serves == !refused);
    CHECK(first.disk.records.front().publishes == published);
  }
  node.expect_unnoticed();
}

TEST_CASE("while a replaced record cannot be written again, nothing is handed over, however often somebody asks") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto backup = first.disk.records;
  REQUIRE(first.agent.want(kId, Wish(test::published(test::staged_wish(kId), "/pods/1/mount"))));
  first.disk.records = backup;
  first.disk.state = test::Disk::State::read_only;
  for (int i = 0; i < 3; ++i) {
    Handover there(first, second);
    node.go_on(there);
    CHECK(there.refused);
    CHECK_FALSE(there.next_serves);
  }
  node.write_all();
  loop.advance(1s);
  CHECK(first.kernel.devices.front().requests.empty());
}

TEST_CASE("an agent whose key file was damaged or removed writes it again, and hands over to the next that asks",
          "[failure:20]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto key = first.disk.keys.at(kId);
  const bool damaged = GENERATE(false, true);
  if (damaged)
    first.disk.keys.at(kId) = Secret("damaged");
  else
    first.disk.keys.clear();
  for (const bool refused : {true, false}) {
    Handover there(first, second);
    node.go_on(there);
    CHECK(there.refused == refused);
    CHECK_FALSE((refused && there.lock_said));
    CHECK(there.next_serves == !refused);
    CHECK(first.disk.keys.at(kId) == key);
    node.write_all();
    loop.advance(1s);
    CHECK(first.kernel.devices.front().requests.empty());
  }
  CHECK(first.kernel.deaths == 0);
  CHECK(first.kernel.errors == 0);
}

TEST_CASE("a next agent that finds no key file opens the image by the volume's Secret, and the file is written again",
          "[failure:20]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto credential = test::staged_wish(kId).credential;
  first.stage_secret = {"Secret ceph/node", credential, ""};
  first.disk.keys.clear();
  for (const bool refused : {true, false}) {
    Handover there(first, second);
    node.go_on(there);
    CHECK(there.refused == refused);
    CHECK(there.next_serves == !refused);
  }
  node.expect_unnoticed();
}

TEST_CASE("a volume whose record goes while the lock is handed over is not called served until a stage",
          "[failure:20]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  Handover there(first, second);
  there.begin();
  loop.poll();
  for (const auto end = loop.clock.now() + 1min; !there.lock_said && loop.clock.now() < end;) loop.step(end);
  first.disk.torn_records.insert(kId);
  node.finish(there);
  CHECK(there.next_serves);
  CHECK_FALSE(there.said_served(first.kernel.devices.front().index));
  node.write_all();
  loop.advance(1s);
  CHECK(first.kernel.errors == 0);
  CHECK(second.agent.want(kId, Wish(test::staged())));
  loop.advance(1s);
  CHECK(first.kernel.devices.front().requests.empty());
  CHECK(first.kernel.errors == 0);
}

TEST_CASE("an agent serves on after a next one that died with the lock, and hands over to the one after that",
          "[failure:230]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto recorded = first.agent.node.recorded;
  for (bool* unreadable :
       {&first.disk.unreadable_record, &first.disk.unreadable_incarnation, static_cast<bool*>(nullptr)}) {
    const bool refuses = unreadable != nullptr;
    Handover there(first, second);
    there.begin();
    loop.poll();
    for (const auto end = loop.clock.now() + 1min; !there.refused && loop.clock.now() < end;) {
      if (there.lock_said && second.agent.running()) {
        if (refuses) *unreadable = true;
        if (!refuses || there.next_ended) {
          there.end(!refuses);
          second.agent.kill(true);
        }
      }
      loop.step(end);
    }
    if (refuses) *unreadable = false;
    CHECK(there.refused);
    if (second.agent.running()) second.agent.kill(true);
    CHECK(first.agent.node.recorded == recorded);
    node.write_all();
    loop.advance(1s);
    CHECK(first.kernel.devices.front().requests.empty());
    CHECK(first.agent.want(kId, Wish(test::staged())));
  }
  Handover there(first, second);
  node.go_on(there);
  CHECK(there.next_serves);
  CHECK(first.kernel.deaths == 0);
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("an agent that cannot read an incarnation once its predecessor has ended serves on, and opens images later",
          "[failure:230]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  first.cluster.images["other"].id = "id-2";
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  Handover there(first, second);
  there.begin();
  loop.poll();
  for (const auto end = loop.clock.now() + 5min; !there.next_serves && loop.clock.now() < end;) {
    loop.step(end);
    first.disk.unreadable_incarnation = there.before_ended;
    if (there.before_ended && first.agent.running()) first.agent.kill(true);
  }
  REQUIRE(there.next_serves);
  node.write_all();
  loop.advance(1s);
  CHECK(first.kernel.devices.front().requests.empty());
  const auto other = test::staged_wish("other");
  CHECK_FALSE(second.agent.want("other", Wish(other)));
  first.disk.unreadable_incarnation = false;
  CHECK(second.agent.want("other", Wish(other)));
  CHECK(first.kernel.deaths == 0);
  CHECK(first.cluster.blocklisted.empty());
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("a next agent that was refused, told to end or killed before it had the lock leaves no client to fence",
          "[failure:231][rule:I5]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  const auto recorded = first.agent.node.recorded;
  std::list<Handover> tries;
  for (int i = 0; i < 3; ++i) {
    Handover& there = tries.emplace_back(first, second);
    there.begin();
    loop.advance(std::chrono::milliseconds(2 + i));
    CHECK_FALSE(there.lock_said);
    there.end(true);
    second.agent.kill(true);
    loop.advance(1s);
    CHECK(there.refused);
  }
  CHECK(first.agent.node.recorded == recorded);
  for (const auto& rule : first.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("a next agent waits some seconds for the read policy before it connects ahead", "[failure:234]") {
  TwoProcesses node;
  auto& [loop, beside, first, second, calm] = node;
  REQUIRE(first.agent.want(kId, Wish(test::staged())));
  first.disk.reads.location = "zone:a";
  first.disk.reads_unknown = "the labels are not known yet";
  loop.outside_in(3s, [&first] { first.disk.reads_unknown.clear(); });
  first.cluster.options_asked.clear();
  Handover there(first, second);
  node.go_on(there);
  CHECK(there.next_serves);
  CHECK(first.cluster.options_asked.contains("crush_location=zone=a"));
  CHECK(first.cluster.blocklisted.empty());
}

TEST_CASE("a volume is healed with its read policy after a crash", "[failure:234]") {
  Scene scene;
  scene.world.disk.reads.location = "zone:a";
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.cluster.options_asked.clear();
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.cluster.options_asked.contains("crush_location=zone=a"));
}

TEST_CASE("a next agent that is told to end before any of its calls leaves the devices to its predecessor unnoticed",
          "[failure:151]") {
  int at = 1;
  while (survives_undo(at) && at < 200) ++at;
  CHECK(at > 8);
  CHECK(at < 200);
}

// changes X1
TEST_CASE("an agent that takes over after a rotation finds in the Secret what the cluster takes, and serves on",
          "[failure:220]") {
  TwoProcesses node;
  REQUIRE(node.first.agent.want(kId, Wish(test::staged())));
  const plan::Credential rotated{"node.1", Secret("the rotated key")};
  node.first.cluster.users = {{rotated.user, rotated.key}};
  const bool told = GENERATE(true, false), writes = GENERATE(true, false);
  if (told) node.first.stage_secret = {"Secret ceph/node", rotated, ""};
  if (!writes) node.first.cluster.readers.insert(rotated.user);
  node.write_all();
  node.loop.advance(1s);
  node.write_all();
  Handover there(node.first, node.second);
  node.go_on(there);
  node.write_all();
  node.loop.advance(3s);
  CHECK(there.next_serves == (told && writes));
  CHECK(there.refused == !(told && writes));
  CHECK(node.first.kernel.deaths == 0);
  CHECK(node.first.kernel.errors == 0);
  CHECK(std::ranges::all_of(node.first.kernel.devices, [](const auto& one) { return one.requests.empty(); }));
  CHECK(node.first.disk.records.front().user == (told && writes ? "node.1" : "node"));
}

TEST_CASE("a volume that is handed over never has a dead link, nobody is fenced, and its requests go on",
          "[failure:150][failure:151]") {
  const bool block = GENERATE(false, true);
  Scene scene;
  REQUIRE(scene.want(block ? test::block_wish() : test::staged()) == errc::ok);
  for (int rounds = 0; rounds < 3; ++rounds) {
    scene.write_all();
    scene.world.agent.hand_over();
    // These lie in the socket, because nobody reads it.
    scene.write_all();
    REQUIRE(scene.want(plan::Healed{}) == errc::ok);
    scene.loop.advance(100ms);
    CHECK(scene.waiting() == 0);
  }
  CHECK(scene.world.kernel.deaths == 0);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.cluster.blocklisted.empty());
  CHECK(scene.image().generation <= 1);
}

TEST_CASE("an agent that dies before any call of a handover leaves a volume that heals with every write",
          "[failure:150]") {
  int at = 1;
  while (survives_death(at, test::staged()) && at < 200) ++at;
  CHECK(at > 8);
  CHECK(at < 200);
}

TEST_CASE("a volume whose kept lock another node took before the next agent came is not served", "[failure:150]") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "open") return;
    scene.world.calls.before_call = nullptr;
    scene.world.cluster.end_watches_of(scene.world.agent.node_address);
    CHECK(scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", false));
    scene.world.cluster.leave(scene.image(), "10.0.0.2:0/5", true);
  };
  scene.world.agent.hand_over();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
  // Its requests wait; nobody serves them.
  scene.write_all();
  scene.loop.advance(1s);
  CHECK(scene.waiting() == test::kBlocks);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume whose requests the cluster does not answer is not handed over, and its neighbours are",
          "[failure:150]") {
  Scene scene;
  scene.world.cluster.images["other"].id = "id-other";
  REQUIRE(scene.want(test::staged()) == errc::ok);
  REQUIRE(scene.want(test::staged_wish("other"), "other") == errc::ok);
  scene.world.cluster.slow = 20s;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.cluster.slow = {};
  scene.loop.advance(10ms);
  scene.world.agent.hand_over();
  CHECK(scene.world.kernel.deaths == 1);
  CHECK(scene.want(plan::Healed{}, "other") == errc::ok);
  CHECK(scene.world.kernel.deaths == 1);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.loop.advance(30s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume with a slow request is served on and handed over after the others", "[failure:150]") {
  Scene scene;
  std::vector<std::string> ids;
  for (int i = 0; i < 30; ++i) {
    ids.push_back("v" + std::to_string(10 + i));
    scene.world.cluster.images[ids.back()].id = "id-" + ids.back();
    REQUIRE(scene.want(test::staged_wish(ids.back()), ids.back()) == errc::ok);
  }
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  auto& device = *std::ranges::find(scene.world.kernel.devices, ids.back(), &test::KernelDevice::backend);
  scene.world.cluster.slow = 2s;
  scene.world.kernel.application_writes(device, 0);
  scene.world.cluster.slow = {};
  std::vector<std::string> given;
  scene.loop.run(scene.world.agent.hand_over_links([&](device::LinkSocket one) -> task<volume::Taken> {
    given.push_back(one.volume_id);
    return taken_in(scene, 200ms);
  }));
  REQUIRE(given.size() == ids.size());
  CHECK(given.back() == ids.back());
  CHECK(device.requests.empty());
  CHECK(scene.world.kernel.deaths == 0);
}

TEST_CASE("an agent whose cluster does not answer stalled requests need not wait for that before it hands over") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.cluster.dead = true;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.loop.advance(1s);
  scene.world.cluster.dead = false;
  scene.kill_and_start();
  scene.loop.advance(5s);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  scene.world.cluster.slow = 1h;
  scene.loop.advance(10s);
  REQUIRE(scene.waiting() == 1);
  const auto asked = scene.loop.clock.now();
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  CHECK(scene.loop.clock.now() - asked < 1s);
  CHECK(scene.waiting() == 1);
}

TEST_CASE("the image of a stage that an undone handover cut short is closed, though kubelet never comes again",
          "[failure:150]") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  const std::string at = GENERATE(as<std::string>(), "acquire lock", "write stash", "kernel connect");
  scene.world.calls.delayed = at;
  const auto stage = [](Scene& in) -> task<> {
    static_cast<void>(co_await in.world.agent.shell().want(kId, test::staged(), {}));
  };
  gate.spawn(stage(scene));
  scene.loop.advance(20ms);
  REQUIRE(scene.image().is_watched());
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  // Its step is over by then, and no further one began.
  scene.loop.advance(2min);
  scene.world.agent.resume();
  scene.loop.advance(10s);
  INFO(at);
  CHECK(scene.image().is_watched() == !scene.world.kernel.devices.empty());
  CHECK(scene.image().lock_owner.empty() == scene.world.kernel.devices.empty());
  CHECK(scene.want(test::staged()) == errc::ok);
}

TEST_CASE("an undone handover that cut a stuck operation short holds up neither the next one nor the agent's end") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  scene.world.calls.delayed = "acquire lock";
  const auto stage = [](Scene& in) -> task<> {
    static_cast<void>(co_await in.world.agent.shell().want(kId, test::staged(), {}));
  };
  gate.spawn(stage(scene));
  scene.loop.advance(10ms);
  for (int undone = 0; undone < 3; ++undone) {
    REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
    scene.world.agent.resume();
  }
  scene.world.calls.delayed.clear();
  REQUIRE(scene.image().is_watched());
  SECTION("the image is left once the operation has ended") {
    scene.loop.advance(5min);
    CHECK_FALSE(scene.image().is_watched());
    CHECK(scene.want(test::staged()) == errc::ok);
  }
  SECTION("the agent ends with its own deadline") {
    const auto by = scene.loop.clock.now() + 1s;
    scene.loop.run(scene.world.agent.shell().stop({by}));
    CHECK(scene.loop.clock.now() <= by);
  }
  scene.loop.run(gate.close({}));
}

TEST_CASE("a volume whose drain was undone answers the requests that came meanwhile") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  scene.world.cluster.slow = 1h;
  scene.world.kernel.application_writes(scene.device(), 0);
  scene.world.cluster.slow = {};
  const auto answered = scene.world.kernel.answered;
  scene.loop.outside_in(1s, [&] { scene.world.kernel.application_writes(scene.device(), 1); });
  scene.loop.run(scene.world.agent.hand_over_links(
      [&](device::LinkSocket) -> task<volume::Taken> { return taken_in(scene, 0s); }));
  CHECK(scene.world.kernel.answered == answered + 1);
}

TEST_CASE("an agent that takes an image back, which nobody took over, breaks the lock that it kept", "[failure:150]") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.write_all();
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  scene.loop.run(scene.world.agent.hand_over_links(
      [](device::LinkSocket) -> task<volume::Taken> { co_return volume::Taken::refused; }));
  REQUIRE(scene.image().lock_owner == scene.world.agent.client());
  REQUIRE(scene.image().lock_handle == test::FakeImage::kKept);
  scene.world.agent.resume();
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.image().lock_owner == scene.world.agent.client());
  CHECK(scene.image().lock_handle != test::FakeImage::kKept);
  CHECK(scene.world.cluster.blocklisted.empty());
  scene.write_all();
  check_rules(scene);
}

TEST_CASE("another client that works on an image while it is handed over cuts nobody off", "[failure:154]") {
  Scene scene;
  std::vector<std::string> ids;
  for (int i = 2; i <= 12; ++i) {
    ids.push_back("v" + std::to_string(i));
    scene.world.cluster.images[ids.back()].id = "id-" + ids.back();
    REQUIRE(scene.want(test::staged_wish(ids.back()), ids.back()) == errc::ok);
  }
  int kept = 0, came = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "keep lock") ++kept;
    for (auto& [name, image] : scene.world.cluster.images)
      if (kept > 3 && image.lock_handle == test::FakeImage::kKept) {
        CHECK_FALSE(scene.world.cluster.maintain(image, "10.0.0.9:0/1"));
        ++came;
      }
  };
  scene.world.agent.hand_over();
  CHECK(came > 3);
  CHECK(scene.world.kernel.deaths == 0);
  CHECK(scene.world.cluster.blocklisted.empty());
  check_rules(scene);
}

TEST_CASE("an image without exclusive-lock is served on after a handover where nobody knows its attachment") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.attachment = {};
  const auto before = scene.image().writer;
  scene.world.agent.hand_over();
  CHECK(scene.image().writer == before);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.image().writer == scene.world.agent.client());
  CHECK(scene.world.kernel.deaths == 0);
  CHECK(scene.world.cluster.blocklisted.empty());
}

TEST_CASE("an image without exclusive-lock that another agent had within a handover is not served", "[failure:150]") {
  Scene scene;
  scene.image().exclusive = false;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  scene.world.attachment = {};
  const bool cleanly = GENERATE(true, false);
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "open") return;
    scene.world.calls.before_call = nullptr;
    CHECK(scene.world.cluster.visit(scene.image(), "10.0.0.2:0/5", false));
    scene.world.cluster.leave(scene.image(), "10.0.0.2:0/5", cleanly);
  };
  scene.world.agent.hand_over();
  CHECK(scene.want(plan::Healed{}) == errc::unproven);
}

TEST_CASE("a volume with an operation under way is healed after a handover, and its caller repeats") {
  Scene scene;
  REQUIRE(scene.want(test::staged()) == errc::ok);
  Gate gate(scene.loop.control(), scene.loop.clock);
  scene.world.calls.delayed = "mount";
  const auto publish = [](Scene& in) -> task<> {
    static_cast<void>(
        co_await in.world.agent.shell().want(kId, test::published(test::staged(), "/kubelet/pods/p/v"), {}));
  };
  gate.spawn(publish(scene));
  scene.loop.advance(10ms);
  scene.world.agent.hand_over();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.want(test::published(test::staged(), "/kubelet/pods/p/v")) == errc::ok);
}

TEST_CASE("a read-only volume is handed over too") {
  Scene scene;
  scene.filled();
  auto wish = test::staged();
  wish.capability.read_only = true;
  REQUIRE(scene.want(wish) == errc::ok);
  scene.world.agent.hand_over();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.kernel.deaths == 0);
}

TEST_CASE("a volume is not handed over while its file says that its lock is being asked for, which would be no proof") {
  Scene scene;
  REQUIRE(scene.want(test::staged_wish(kId)) == errc::ok);
  scene.world.agent.kill();
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "kernel reconfigure") scene.world.disk.state = test::Disk::State::read_only;
  };
  scene.world.agent.start();
  // A refused write is tried once more, and then does without.
  CHECK(scene.want(plan::Healed{}) == errc::state_write);
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  REQUIRE(scene.world.disk.records.front().proof.lock_call);
  const auto refused = scene.loop.run(scene.world.agent.quiesce());
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, ContainsSubstring("its lock is being asked for"));
  scene.world.agent.resume();
  scene.world.disk.state = test::Disk::State::good;
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
  CHECK_FALSE(scene.world.disk.records.front().proof.lock_call);
}
