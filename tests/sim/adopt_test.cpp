// A device that rbd-nbd made for ceph-csi: left alone while rbd-nbd lives, taken over in place when it is dead.
#include <algorithm>

#include "../../src/volume/server_watchdog.hpp"
#include "corbd/volume/condition.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::World;
using volume::Health;

namespace {

struct Adopting {
  test::Loop loop;
  World world{loop};
  plan::Staged wish = test::staged_wish(kId);
  std::uint32_t index = 0;
  explicit Adopting(bool exclusive = true) {
    world.cluster.images[kId].id = "id-1";
    world.cluster.images[kId].exclusive = exclusive;
    index = world.ceph_csi.stages(kId, wish.path);
    if (!exclusive) image().lock_owner.clear();
  }
  ~Adopting() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  errc want(Wish wanted) {
    const auto done = world.agent.want(kId, std::move(wanted));
    return done ? errc::ok : done.error().code;
  }
  errc stage() { return want(Wish(wish)); }
  /// The agent dies at that call of the wish, and another one starts and heals. False: it had no such call.
  bool dies_at(int call, Wish wanted) {
    world.calls.crash_at = call;
    bool died = false;
    try {
      static_cast<void>(want(std::move(wanted)));
    } catch (const test::Crash&) {
      died = true;
      world.agent.kill();
    }
    world.calls.crash_at = 0;
    if (died) world.agent.start(true);
    return died;
  }
  test::FakeImage& image() { return world.cluster.images[kId]; }
  test::KernelDevice& device() { return world.kernel.devices.front(); }
  volume::Status status() { return *world.agent.shell().status(kId); }
  bool ours() { return image().lock_owner == world.agent.client() && device().alive && !device().request_timeout; }
};

}  // namespace

TEST_CASE("a volume that rbd-nbd serves is staged as it is, and left alone") {
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  CHECK(node.want(Wish(plan::Healed{})) == errc::ok);
  CHECK(node.world.ceph_csi.daemons.contains(node.index));
  CHECK(node.image().lock_owner == node.world.ceph_csi.daemons.at(node.index));
  CHECK(node.status().served_by_other);
  CHECK_FALSE(node.status().unserved);
  CHECK(node.status().health == Health::staged);
}

TEST_CASE("a volume whose rbd-nbd answers nothing for two minutes is inaccessible, and left alone until it answers",
          "[failure:168]") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  node.world.ceph_csi.stops(true);
  node.world.kernel.application_writes(node.device(), 0);
  node.loop.advance(std::chrono::seconds(110));
  CHECK(volume::condition_of(node.status()).kind == volume::Condition::Kind::healthy);
  node.loop.advance(std::chrono::seconds(70));
  const auto silent = volume::condition_of(node.status());
  CHECK(silent.kind == volume::Condition::Kind::inaccessible);
  CHECK_THAT(silent.message, ContainsSubstring("process 4000"));
  CHECK(node.world.ceph_csi.daemons.contains(node.index));
  CHECK(node.image().lock_owner == node.world.ceph_csi.daemons.at(node.index));
  node.world.ceph_csi.stops(false);
  node.loop.advance(std::chrono::seconds(31));
  CHECK(volume::condition_of(node.status()).kind == volume::Condition::Kind::healthy);
  CHECK(node.world.kernel.answered == 1);
}

TEST_CASE("a silent rbd-nbd makes one Event for each silence", "[failure:168]") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  const auto told = [&] {
    return std::ranges::count_if(node.world.notices,
                                 [](const auto& one) { return one.second.reason == "ServerSilent"; });
  };
  node.world.ceph_csi.stops(true);
  node.world.kernel.application_writes(node.device(), 0);
  node.loop.advance(std::chrono::minutes(10));
  CHECK(told() == 1);
  node.world.ceph_csi.stops(false);
  node.loop.advance(std::chrono::minutes(1));
  node.world.ceph_csi.stops(true);
  node.world.kernel.application_writes(node.device(), 0);
  node.loop.advance(std::chrono::minutes(10));
  CHECK(told() == 2);
}

TEST_CASE("an rbd-nbd that answers slowly, or has nothing to answer, is not silent", "[failure:168]") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  for (int minutes = 0; minutes < 5; ++minutes) {
    node.world.ceph_csi.stops(true);
    node.world.kernel.application_writes(node.device(), 0);
    node.loop.advance(std::chrono::minutes(1));
    node.world.ceph_csi.stops(false);
    node.loop.advance(std::chrono::milliseconds(10));
    CHECK(node.status().other_silent < volume::kServerSilent);
  }
  node.loop.advance(std::chrono::minutes(5));
  CHECK(node.status().other_silent == duration::zero());
  CHECK(node.world.notices.empty());
}

TEST_CASE("a volume that rbd-nbd serves is expanded once rbd-nbd has made its device larger") {
  constexpr std::uint64_t larger = 2ull << 30;
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  node.image().filesystem_bytes = node.image().size;
  node.image().size = larger;
  CHECK(node.want(Wish(plan::Expanded{node.wish.path, larger})) == errc::unavailable);
  node.device().size = larger;
  CHECK(node.want(Wish(plan::Expanded{node.wish.path, larger})) == errc::ok);
  CHECK(node.image().filesystem_bytes == larger);
  CHECK(node.world.ceph_csi.daemons.contains(node.index));
}

TEST_CASE("when rbd-nbd is killed its client is fenced, its lock taken, and its device served") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  const std::string client = node.world.ceph_csi.daemons.at(node.index);
  node.world.kernel.application_writes(node.device(), 0);
  node.world.ceph_csi.ends(node.index, false);
  node.loop.advance(std::chrono::seconds(10));
  CHECK(node.world.cluster.blocklisted.contains(client));
  CHECK(node.ours());
  node.loop.advance(std::chrono::seconds(40));
  CHECK(node.world.kernel.answered == 1);
  CHECK_FALSE(node.status().served_by_other);
  CHECK_FALSE(node.world.disk.records.front().adopting);
}

namespace {

/// rbd-nbd has acknowledged a write that is in its cache only, and two flushes are under way.
void flush_out_of_cache(Adopting& node) {
  node.world.ceph_csi.caching.insert(node.index);
  node.world.kernel.application_writes(node.device(), 0);
  node.loop.advance(std::chrono::milliseconds(3));
  REQUIRE(node.world.kernel.answered == 1);
  node.world.kernel.application_flushes(node.device());
  node.world.kernel.application_flushes(node.device());
}

/// rbd-nbd is killed then, and its device served here.
void adopt_with_lost_cache(Adopting& node) {
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  flush_out_of_cache(node);
  node.world.ceph_csi.ends(node.index, false);
  node.loop.advance(std::chrono::minutes(3));
  REQUIRE(node.ours());
}

}  // namespace

TEST_CASE("over writes that a killed rbd-nbd had in its cache, every flush fails until an operator accepts the loss",
          "[failure:155][rule:9]") {
  Adopting node;
  adopt_with_lost_cache(node);
  REQUIRE(node.world.kernel.flushes_failed >= 2);
  // Another program, or a sync that drops the error.
  const auto failed = node.world.kernel.flushes_failed;
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushes_failed == failed + 1);
  const auto told = [](const auto& one) { return one.second.reason == "CacheLost"; };
  CHECK(std::ranges::count_if(node.world.notices, told) == 1);
  CHECK(volume::condition_of(node.status()).reason == "CacheLost");
  node.loop.advance(std::chrono::hours(2));
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushes_failed == failed + 2);
  CHECK(node.world.kernel.flushed == 0);
  CHECK(node.world.disk.records.front().cache_lost);
  CHECK(node.want(Wish(plan::Healed{.loss_accepted = true})) == errc::ok);
  CHECK_FALSE(node.world.disk.records.front().cache_lost);
  CHECK(volume::condition_of(node.status()).reason.empty());
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushed == 1);
  CHECK(node.world.kernel.flushes_failed == failed + 2);
}

TEST_CASE(
    "a flush fails over a lost cache after any death and handover of the agent, and an accepted loss stays accepted",
    "[failure:155]") {
  const bool accepted = GENERATE(false, true);
  Adopting node;
  adopt_with_lost_cache(node);
  if (accepted) REQUIRE(node.want(Wish(plan::Healed{.loss_accepted = true})) == errc::ok);
  const auto flush = [&] {
    node.loop.advance(std::chrono::minutes(3));
    REQUIRE(node.ours());
    const auto failed = node.world.kernel.flushes_failed;
    node.world.kernel.application_flushes(node.device());
    node.loop.advance(std::chrono::seconds(1));
    return node.world.kernel.flushes_failed == failed;
  };
  CHECK(flush() == accepted);
  node.world.agent.kill();
  node.world.agent.start(true);
  CHECK(flush() == accepted);
  node.world.agent.hand_over(true);
  CHECK(flush() == accepted);
}

TEST_CASE("a flush fails over a lost cache although the record was removed, and an accepted loss stays accepted",
          "[failure:155]") {
  const bool accepted = GENERATE(false, true);
  Adopting node;
  adopt_with_lost_cache(node);
  if (accepted) REQUIRE(node.want(Wish(plan::Healed{.loss_accepted = true})) == errc::ok);
  CHECK(node.world.disk.stashes.at(node.wish.path).cache_lost != accepted);
  node.world.agent.kill();
  node.world.disk.records.clear();
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  node.loop.advance(std::chrono::minutes(1));
  REQUIRE(node.ours());
  const auto failed = node.world.kernel.flushes_failed;
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK((node.world.kernel.flushes_failed == failed) == accepted);
}

TEST_CASE("a loss whose acceptance is interrupted anywhere is accepted in the end, or not at all", "[failure:155]") {
  for (int at = 1; at < 20; ++at) {
    CAPTURE(at);
    Adopting node;
    adopt_with_lost_cache(node);
    if (!node.dies_at(at, Wish(plan::Healed{.loss_accepted = true}))) break;
    node.loop.advance(std::chrono::minutes(1));
    const bool lost = node.world.disk.records.front().cache_lost;
    CHECK(node.world.disk.stashes.at(node.wish.path).cache_lost == lost);
  }
}

TEST_CASE("a loss whose acceptance cannot be written is not accepted", "[failure:155]") {
  Adopting node;
  adopt_with_lost_cache(node);
  node.world.disk.state = test::Disk::State::full;
  CHECK(node.want(Wish(plan::Healed{.loss_accepted = true})) == errc::state_write);
  const auto failed = node.world.kernel.flushes_failed;
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushes_failed == failed + 1);
}

TEST_CASE("a volume whose flushes fail over a lost cache is unstaged, and its next device's flushes succeed",
          "[failure:155]") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  flush_out_of_cache(node);
  node.world.ceph_csi.ends(node.index, false);
  node.loop.advance(std::chrono::minutes(1));
  REQUIRE(node.world.kernel.flushes_failed >= 1);
  CHECK(node.want(Wish(plan::Unstaged{node.wish.path})) == errc::ok);
  CHECK(node.world.disk.records.empty());
  REQUIRE(node.stage() == errc::ok);
  const auto failed = node.world.kernel.flushes_failed;
  node.world.kernel.application_flushes(node.world.kernel.devices.front());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushes_failed == failed);
}

TEST_CASE("no flush fails after rbd-nbd's clean end, nor where it had no cache", "[failure:155][rule:9]") {
  const bool cleanly = GENERATE(true, false);
  Adopting node;
  node.wish.source.serving.cache_off = !cleanly;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  if (cleanly) {
    flush_out_of_cache(node);
    REQUIRE(node.want(Wish(plan::Adopted{})) == errc::ok);
  } else {
    node.world.kernel.application_flushes(node.device());
    node.world.ceph_csi.ends(node.index, false);
  }
  node.loop.advance(std::chrono::minutes(1));
  CHECK(node.ours());
  CHECK_FALSE(node.world.disk.records.front().cache_lost);
  CHECK(node.world.kernel.flushed == (cleanly ? 2 : 1));
  node.world.kernel.application_flushes(node.device());
  node.loop.advance(std::chrono::seconds(1));
  CHECK(node.world.kernel.flushed == (cleanly ? 3 : 2));
  CHECK(node.world.kernel.flushes_failed == 0);
}

TEST_CASE("no flush fails for an rbd-nbd that was seen to have no cache, nor if the agent dies beside it",
          "[failure:165]") {
  const bool agent_dies = GENERATE(true, false);
  Adopting node;
  node.loop.advance(std::chrono::seconds(61));
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  REQUIRE(node.world.disk.records.front().adopting->uncached == node.world.ceph_csi.daemons.at(node.index));
  node.world.kernel.application_writes(node.device(), 0);
  if (agent_dies) node.world.agent.kill();
  node.world.ceph_csi.ends(node.index, false);
  node.world.kernel.application_flushes(node.device());
  if (agent_dies) node.world.agent.start(true);
  node.loop.advance(std::chrono::minutes(2));
  CHECK(node.device().alive);
  CHECK(node.world.kernel.flushed == 1);
  CHECK(node.world.kernel.flushes_failed == 0);
  CHECK_FALSE(node.world.disk.records.front().adopting);
}

TEST_CASE("a flush fails for an rbd-nbd with a cache, although one that was seen before it had none", "[failure:166]") {
  Adopting node;
  node.loop.advance(std::chrono::seconds(61));
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  REQUIRE_FALSE(node.world.disk.records.front().adopting->uncached.empty());
  node.world.agent.kill();
  node.world.ceph_csi.ends(node.index, false);
  node.loop.advance(std::chrono::seconds(40));
  node.world.ceph_csi.heals(node.index);
  flush_out_of_cache(node);
  node.world.ceph_csi.ends(node.index, false);
  node.world.agent.start(true);
  node.loop.advance(std::chrono::minutes(2));
  CHECK(node.ours());
  CHECK(node.world.kernel.flushes_failed == 2);
}

TEST_CASE("which rbd-nbd has no cache is not noted beside another client of the node, nor with the cluster away",
          "[failure:165]") {
  const bool away = GENERATE(true, false);
  Adopting node;
  node.loop.advance(std::chrono::seconds(61));
  node.world.agent.start(true);
  if (!away) node.image().watchers.insert(node.world.agent.node_address + ":0/77");
  if (away) {
    REQUIRE(node.stage() == errc::ok);
    node.world.disk.records.front().adopting->uncached.clear();
    node.world.agent.kill();
    node.world.cluster.dead = true;
    node.world.agent.start(true);
    CHECK(node.want(Wish(plan::Healed{})) == errc::ok);
  } else {
    CHECK(node.stage() == errc::ok);
  }
  CHECK(node.world.disk.records.front().adopting->uncached.empty());
  CHECK(node.status().served_by_other);
}

TEST_CASE("the failed flush is owed over a handover, and over the agent's death at any call",
          "[failure:155][failure:167]") {
  for (int at = 0; at < 40; ++at) {
    CAPTURE(at);
    Adopting node;
    node.world.agent.start();
    REQUIRE(node.stage() == errc::ok);
    flush_out_of_cache(node);
    node.world.ceph_csi.ends(node.index, false);
    node.world.calls.crash_at = at;
    bool crashed = false;
    try {
      static_cast<void>(node.want(Wish(plan::Healed{})));
      if (at == 0) node.world.agent.hand_over();
    } catch (const test::Crash&) {
      crashed = true;
      node.world.agent.kill();
    }
    node.world.calls.crash_at = 0;
    if (crashed) node.world.agent.start(true);
    if (at == 0) CHECK(node.want(Wish(plan::Healed{})) == errc::ok);
    node.loop.advance(std::chrono::seconds(120));
    CHECK(node.ours());
    CHECK(node.world.kernel.flushes_failed >= 1);
    if (at > 0 && !crashed) break;
  }
}

TEST_CASE("after rbd-nbd's death a stall lasts until the last request from before it is answered") {
  Adopting node;
  node.world.agent.start(true);
  REQUIRE(node.stage() == errc::ok);
  node.world.kernel.application_writes(node.device(), 0);  // in flight at its death
  node.world.ceph_csi.ends(node.index, false);
  node.world.kernel.application_writes(node.device(), 1);
  node.loop.advance(std::chrono::seconds(10));
  CHECK(node.world.kernel.answered == 1);
  CHECK(node.status().counts.longest_stall == duration::zero());
  // Others go on meanwhile.
  for (int second = 0; second < 50; ++second) {
    node.world.kernel.application_writes(node.device(), 2);
    node.loop.advance(std::chrono::seconds(1));
  }
  CHECK(node.status().counts.longest_stall > std::chrono::seconds(30));
  CHECK(node.status().counts.longest_stall < std::chrono::seconds(35));
}

TEST_CASE("rbd-nbd that died before the agent came is fenced only after its watch is gone") {
  Adopting node;
  const std::string client = node.world.ceph_csi.daemons.at(node.index);
  node.world.ceph_csi.ends(node.index, false);
  node.world.agent.start(true);
  CHECK(node.stage() != errc::ok);
  CHECK_FALSE(node.world.cluster.blocklisted.contains(client));
  node.loop.advance(std::chrono::seconds(90));
  CHECK(node.world.cluster.blocklisted.contains(client));
  CHECK(node.ours());
}

TEST_CASE("a client of this node that keeps its watch lives: it is not fenced") {
  Adopting node;
  const std::string client = node.world.ceph_csi.daemons.at(node.index);
  node.world.ceph_csi.daemons.clear();  // a process that cannot be seen from here
  node.device().alive = false;
  node.world.agent.start(true);
  CHECK(node.stage() != errc::ok);
  node.loop.advance(std::chrono::minutes(10));
  CHECK_FALSE(node.world.cluster.blocklisted.contains(client));
  CHECK_FALSE(node.device().alive);
}

TEST_CASE("rbd-nbd that gave its lock back and left proves nothing") {
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  node.world.ceph_csi.ends(node.index, true);
  node.loop.advance(std::chrono::seconds(5));
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
  CHECK_FALSE(node.device().alive);
}

namespace {

/// rbd-nbd serves a volume that was staged under the attachment "uid-1". It has the attachment "uid-2" by now.
struct AttachedAnew : Adopting {
  explicit AttachedAnew(bool exclusive) : Adopting(exclusive) {
    world.agent.start();
    REQUIRE(stage() == errc::ok);
    REQUIRE(want(Wish(plan::Attached{"uid-1"})) == errc::ok);
    world.attachment = {plan::Attachment::State::here, "uid-2", ""};
  }
  const plan::Record& record() { return world.disk.records.front(); }
  /// Its client is cut off, and another node has the image for a while.
  void is_cut_off() {
    const std::string other = "10.0.0.7:0/1";
    world.cluster.blocklist(world.ceph_csi.daemons.at(index));
    REQUIRE(world.cluster.visit(image(), other, true));
    world.cluster.leave(image(), other, true);
  }
  void ends(bool cleanly) {
    world.ceph_csi.ends(index, cleanly);
    loop.advance(std::chrono::minutes(1));
  }
};

}  // namespace

TEST_CASE("a volume that was attached anew while rbd-nbd served it is served after rbd-nbd's clean end",
          "[failure:192]") {
  AttachedAnew node(true);
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::ok);
  CHECK(node.record().proof.attachment_uid == "uid-2");
  CHECK(node.record().proof.reattached_as == "");
  node.ends(true);
  CHECK(node.want(Wish(plan::Healed{})) == errc::ok);
  CHECK(node.ours());
}

TEST_CASE("a volume that was attached anew while rbd-nbd served it without a lock waits for an operator override",
          "[failure:192]") {
  AttachedAnew node(false);
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::failed_precondition);
  CHECK(node.record().proof.attachment_uid == "uid-1");
  node.ends(GENERATE(true, false));
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
  node.loop.advance(std::chrono::minutes(2));
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
  CHECK_FALSE(node.record().failed);
  CHECK_FALSE(node.device().alive);
  CHECK(node.want(Wish(plan::Healed{true})) == errc::ok);
  CHECK(node.device().alive);
}

TEST_CASE("a volume that was attached anew while the cluster was silent is not lost when rbd-nbd ends",
          "[failure:192]") {
  AttachedAnew node(true);
  node.world.cluster.dead = true;
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::unreachable);
  node.world.cluster.revive();
  node.ends(true);
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
}

TEST_CASE("a volume whose rbd-nbd was cut off before it was attached anew is not served after rbd-nbd's end",
          "[failure:192]") {
  AttachedAnew node(GENERATE(true, false));
  node.is_cut_off();
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::failed_precondition);
  CHECK(node.record().proof.attachment_uid == "uid-1");
  node.ends(GENERATE(true, false));
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
  CHECK_FALSE(node.device().alive);
}

TEST_CASE("a volume that was detached and attached again after rbd-nbd's end is lost", "[failure:192]") {
  AttachedAnew node(true);
  node.ends(true);
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::unavailable);
  CHECK(node.want(Wish(plan::Healed{})) == errc::lost);
}

TEST_CASE("the new attachment of a volume that rbd-nbd serves is noted once no other client has the image open") {
  AttachedAnew node(true);
  node.image().watchers.insert("10.0.0.7:0/1");
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::unavailable);
  node.image().watchers.erase("10.0.0.7:0/1");
  CHECK(node.want(Wish(plan::Attached{"uid-2"})) == errc::ok);
  CHECK(node.record().proof.attachment_uid == "uid-2");
}

TEST_CASE("without attachments, rbd-nbd's lock proves ownership, or else an operator override counts") {
  const bool killed = GENERATE(true, false);
  Adopting node;
  node.world.attachment = {plan::Attachment::State::none, "", "attachRequired: false"};
  node.world.ceph_csi.ends(node.index, !killed);
  node.loop.advance(std::chrono::minutes(1));
  node.world.agent.start();
  CHECK(node.stage() == (killed ? errc::ok : errc::unproven));
  if (!killed) CHECK(node.want(Wish(plan::Healed{true})) == errc::ok);
  CHECK(node.ours());
}

TEST_CASE("a heal with --adopt ends rbd-nbd and serves its device, with exclusive-lock and without") {
  Adopting node(GENERATE(true, false));
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  CHECK(node.want(Wish(plan::Adopted{})) == errc::ok);
  CHECK(node.world.ceph_csi.daemons.empty());
  CHECK(node.device().alive);
  CHECK_FALSE(node.status().served_by_other);
}

TEST_CASE("a heal with --adopt ends an rbd-nbd that only reads, whoever writes the image, and serves its device") {
  Adopting node;
  node.wish.capability.read_only = true;
  const std::string writer = "10.0.0.7:0/1";
  node.world.ceph_csi.ends(node.index, true);
  node.world.kernel.devices.clear();
  node.world.kernel.mounts.clear();
  node.world.ceph_csi.stages(kId, node.wish.path, kId, node.wish.capability);
  node.image().lock_by(writer);
  node.image().watchers = {writer};
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  CHECK(node.want(Wish(plan::Adopted{})) == errc::ok);
  CHECK(node.world.ceph_csi.daemons.empty());
  CHECK(node.device().alive);
  CHECK(node.device().read_only);
  CHECK(node.image().lock_owner == writer);
}

TEST_CASE("a heal with --adopt ends no rbd-nbd that may write, although its volume is only read by now") {
  Adopting node;
  node.wish.capability.read_only = true;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  CHECK(node.want(Wish(plan::Adopted{})) != errc::ok);
  CHECK(node.world.ceph_csi.daemons.size() == 1);
  CHECK_FALSE(node.device().read_only);
}

TEST_CASE("rbd-nbd is not asked to leave an image that another node has open") {
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  node.image().watchers.insert("10.0.0.7:0/1");
  CHECK(node.want(Wish(plan::Adopted{})) == errc::in_use);
  CHECK(node.world.ceph_csi.daemons.contains(node.index));
}

TEST_CASE("an image that another node locked after rbd-nbd's death is not taken over") {
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  node.world.ceph_csi.ends(node.index, false);
  node.image().lock_owner = "10.0.0.7:0/1";
  node.image().watchers = {"10.0.0.7:0/1"};
  CHECK(node.want(Wish(plan::Healed{})) == errc::unproven);
  CHECK_FALSE(node.device().alive);
}

TEST_CASE("a device with the volume's identifier but without a stash that names it is not touched", "[rule:25]") {
  Adopting node;
  auto& stash = node.world.disk.stashes.at(node.wish.path);
  const int what = GENERATE(range(0, 5));
  CAPTURE(what);
  if (what == 0) node.world.disk.stashes.clear();
  if (what == 1) stash.device = "/dev/nbd7";
  if (what == 2) stash.image = "image-2";
  if (what == 3) stash.nbd = false;
  if (what == 4) stash.encrypted = true;
  node.world.agent.start();
  CHECK(node.stage() == errc::failed_precondition);
  CHECK(node.world.disk.records.empty());
}

TEST_CASE("a takeover that is interrupted anywhere is finished by the next start") {
  for (int at = 1; at < 40; ++at) {
    CAPTURE(at);
    Adopting node;
    node.world.agent.start();
    REQUIRE(node.stage() == errc::ok);
    node.world.ceph_csi.ends(node.index, false);
    if (!node.dies_at(at, Wish(plan::Healed{}))) break;
    node.loop.advance(std::chrono::seconds(120));
    CHECK(node.ours());
  }
}

TEST_CASE("a volume that ceph-csi staged is unstaged without a record: rbd-nbd's device and the stash are gone") {
  Adopting node;
  node.world.agent.start();
  CHECK(node.want(Wish(plan::Unstaged{node.wish.path})) == errc::ok);
  CHECK(node.world.kernel.mounts.empty());
  CHECK(node.world.kernel.devices.empty());
  CHECK(node.world.disk.stashes.empty());
}

TEST_CASE("what ceph-csi staged and this agent cannot take down is not said to be unstaged") {
  Adopting node;
  auto& stash = node.world.disk.stashes.at(node.wish.path);
  const int what = GENERATE(range(0, 4));
  CAPTURE(what);
  if (what == 0) node.world.ceph_csi.ends(node.index, false);
  if (what == 1) stash.nbd = false;
  if (what == 2) stash.device = "/dev/nbd7";
  if (what == 3) {
    auto pod = node.world.kernel.mounts.front();
    pod.target = "/kubelet/pods/a/mount";
    node.world.kernel.mounts.push_back(pod);
  }
  node.world.agent.start();
  CHECK(node.want(Wish(plan::Unstaged{node.wish.path})) != errc::ok);
  CHECK(node.world.kernel.devices.size() == 1);
  CHECK(node.world.disk.stashes.size() == 1);
}

TEST_CASE("a volume that rbd-nbd still serves is unstaged: its device and ceph-csi's stash are gone") {
  Adopting node;
  node.world.agent.start();
  REQUIRE(node.stage() == errc::ok);
  CHECK(node.want(Wish(plan::Unstaged{node.wish.path})) == errc::ok);
  CHECK(node.world.kernel.devices.empty());
  CHECK(node.world.disk.stashes.empty());
  CHECK(node.world.disk.records.empty());
}

TEST_CASE("the log file of ceph-csi's rbd-nbd goes with the volume where its stash says so") {
  Adopting node;
  REQUIRE(node.world.disk.logs.size() == 1);
  const bool removes = GENERATE(true, false);
  if (!removes) node.world.disk.stashes[node.wish.path].log_strategy = "preserve";
  node.world.agent.start();
  CHECK(node.want(Wish(plan::Unstaged{node.wish.path})) == errc::ok);
  CHECK(node.world.disk.logs.empty() == removes);
}
