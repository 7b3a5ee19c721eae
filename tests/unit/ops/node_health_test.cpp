// The one judgement that status, probes and metrics show.
#include "corbd/ops/node_health.hpp"

#include <algorithm>

#include "corbd/ops/health.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using ops::NodeFacts;
using ops::Outsider;
using ops::Registration;
using ops::Verdict;
using volume::Health;

namespace {

const Error kGone{errc::unavailable, "it is gone"};

ops::Component component(const NodeFacts& facts, const std::string& name) {
  const auto health = ops::judge(facts);
  const auto found = std::ranges::find(health.components, name, &ops::Component::name);
  return found == health.components.end() ? ops::Component{name, Verdict::ok, "there is none"} : *found;
}

Verdict verdict_of(const NodeFacts& facts) { return ops::judge(facts).verdict(); }

/// Facts with the bits of `wrong` set: one for each thing that can be wrong with the node.
NodeFacts facts_with(unsigned wrong) {
  NodeFacts facts;
  const auto bit = [&](unsigned number) { return (wrong >> number & 1) != 0; };
  if (bit(0)) facts.loop_lag = 30s;
  if (bit(1)) facts.csi = kGone;
  if (bit(2)) facts.drivers[device::Kind::nbd] = kGone;
  if (bit(3)) facts.state_dir = kGone;
  if (bit(4)) facts.registration = {Registration::State::waits, ""};
  if (bit(5)) facts.registration = {Registration::State::refused, "no"};
  if (bit(6)) facts.api_server = {Outsider::State::silent, "no"};
  if (bit(7)) facts.system_bus = {Outsider::State::silent, "no"};
  if (bit(8)) facts.cordoned = "yesterday";
  if (bit(9)) facts.volumes[Health::lost] = 1;
  if (bit(11)) facts.told_to_end = ops::ToldFacts{1s, 200s};
  if (bit(10)) facts.keeper = ops::KeeperFacts{.deaths = 1, .signal = 9, .since_last = 5min};
  return facts;
}

}  // namespace

TEST_CASE("a node about which nothing is wrong is OK, ready and alive") {
  const auto health = ops::judge({});
  CHECK(health.verdict() == Verdict::ok);
  CHECK(health.ready());
  CHECK(health.alive());
  CHECK(health.not_ready().empty());
}

TEST_CASE("whatever is wrong, the verdict is never OK while /readyz or /healthz is not") {
  for (unsigned wrong = 0; wrong < 1u << 12; ++wrong) {
    const auto health = ops::judge(facts_with(wrong));
    INFO(wrong);
    CHECK((health.verdict() == Verdict::ok) == (wrong == 0));
    if (!health.alive()) CHECK_FALSE(health.ready());
    CHECK(health.ready() == health.not_ready().empty());
    CHECK((ops::readyz(health).status == 200) == health.ready());
    CHECK((ops::healthz(health).status == 200) == health.alive());
    // Bits 0 to 5 keep a volume from being staged, the others do not.
    CHECK(health.ready() == ((wrong & 0x3f) == 0));
  }
}

TEST_CASE("a node says how many volumes it has room for, by what, and warns when that is reached") {
  NodeFacts facts;
  CHECK(component(facts, "room").text == "there is none");
  facts.capacity = {3, "300 MiB of memory"};
  facts.volumes = {{Health::staged, 1}, {Health::staging, 1}};
  CHECK(component(facts, "room").verdict == Verdict::ok);
  CHECK(component(facts, "room").text == "for 3 volumes, by 300 MiB of memory; has 2");
  facts.volumes[Health::staged] = 2;
  CHECK(component(facts, "room").verdict == Verdict::warning);
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("a startup taint that is still on the node is a warning with its reason, and no probe fails for it") {
  NodeFacts facts;
  facts.startup_taint = "kubelet has not registered this driver yet";
  CHECK(component(facts, "startup-taint").verdict == Verdict::warning);
  CHECK_THAT(component(facts, "startup-taint").text, ContainsSubstring("kubelet has not registered"));
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("an agent that died is news for an hour, and then no warning any more") {
  NodeFacts facts;
  facts.keeper = ops::KeeperFacts{.deaths = 2, .signal = 11, .since_last = 59min};
  CHECK(component(facts, "keeper").verdict == Verdict::warning);
  CHECK(component(facts, "keeper").text.find("2 times, last 59 min ago after signal 11") != std::string::npos);
  facts.keeper->since_last = 1h;
  CHECK(verdict_of(facts) == Verdict::ok);
}

TEST_CASE("an agent that was told to end shows how long it has waited for the next one, and is critical after 15 s") {
  NodeFacts facts;
  facts.told_to_end = ops::ToldFacts{14s, 200s};
  CHECK(component(facts, "agent").verdict == Verdict::warning);
  CHECK_THAT(component(facts, "agent").text,
             ContainsSubstring("14 s ago; serves on until the next agent asks, for 3 min"));
  facts.told_to_end->since = 15s;
  CHECK(component(facts, "agent").verdict == Verdict::critical);
  CHECK_THAT(component(facts, "agent").text, ContainsSubstring("kubectl rollout undo"));
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("agents that die again and again are critical, until one has lived for five minutes", "[failure:163]") {
  NodeFacts facts;
  facts.keeper = ops::KeeperFacts{.deaths = 8, .signal = 6, .since_last = 33s, .pause = 32s};
  CHECK(component(facts, "keeper").verdict == Verdict::critical);
  CHECK_THAT(component(facts, "keeper").text, ContainsSubstring("8 times") && ContainsSubstring("a pause of 32 s"));
  CHECK(ops::judge(facts).ready());
  facts.keeper->since_last = 5min + 32s;
  CHECK(component(facts, "keeper").verdict == Verdict::warning);
  facts.keeper = ops::KeeperFacts{.deaths = 2, .signal = 9, .since_last = 1s, .pause = 100ms};
  CHECK(component(facts, "keeper").verdict == Verdict::warning);
}

TEST_CASE("a keeper that does not listen to its agent is a warning") {
  NodeFacts facts;
  facts.keeper = ops::KeeperFacts{.deaf = true};
  CHECK(component(facts, "keeper").verdict == Verdict::warning);
}

TEST_CASE("a control thread that is ten seconds late does not count as alive") {
  NodeFacts facts;
  facts.loop_lag = 9999ms;
  CHECK(ops::judge(facts).alive());
  facts.loop_lag = 10s;
  CHECK_FALSE(ops::judge(facts).alive());
  CHECK_THAT(component(facts, "agent").text, ContainsSubstring("10 s late"));
}

TEST_CASE("a missing part that the agent needs is critical, with its reason") {
  for (const unsigned bit : {1u, 2u, 3u}) {
    const auto facts = facts_with(1u << bit);
    CHECK(verdict_of(facts) == Verdict::critical);
    CHECK(ops::judge(facts).not_ready().size() == 1);
    CHECK_THAT(ops::judge(facts).not_ready().front(), ContainsSubstring("it is gone"));
  }
}

TEST_CASE("an agent that kubelet has not registered is not ready, and critical once kubelet refused") {
  NodeFacts facts;
  CHECK(component(facts, "kubelet").verdict == Verdict::ok);
  facts.registration = {Registration::State::waits, ""};
  CHECK(component(facts, "kubelet").verdict == Verdict::warning);
  facts.registration = {Registration::State::refused, "another driver has the name"};
  CHECK(component(facts, "kubelet").verdict == Verdict::critical);
  CHECK_THAT(component(facts, "kubelet").text, ContainsSubstring("another driver has the name"));
  facts.registration = {Registration::State::registered, ""};
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("a driver that another program registers is a warning, and the node stays ready") {
  NodeFacts facts;
  facts.registration = {Registration::State::elsewhere, "somebody answers there"};
  CHECK(component(facts, "kubelet").verdict == Verdict::warning);
  CHECK(component(facts, "kubelet").text == "another program registers this driver: somebody answers there");
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("a silent API server or system bus is a warning with its effect, and the node stays ready") {
  for (const bool bus : {false, true}) {
    NodeFacts facts;
    auto& one = bus ? facts.system_bus : facts.api_server;
    const std::string name = bus ? "d-bus" : "api-server";
    one = {Outsider::State::unused, "not a pod"};
    CHECK(component(facts, name).verdict == Verdict::ok);
    one = {Outsider::State::answers, ""};
    CHECK(component(facts, name).verdict == Verdict::ok);
    one = {Outsider::State::silent, "no route"};
    CHECK(component(facts, name).verdict == Verdict::warning);
    CHECK_THAT(component(facts, name).text, ContainsSubstring("no route. Meanwhile "));
    CHECK(ops::judge(facts).ready());
  }
}

TEST_CASE("a drained node is a warning that says since when and how it ends, and stays ready") {
  NodeFacts facts;
  facts.cordoned = "2026-01-31T12:00:00Z";
  CHECK(verdict_of(facts) == Verdict::warning);
  CHECK_THAT(component(facts, "agent").text,
             ContainsSubstring("drained since 2026-01-31T12:00:00Z") && ContainsSubstring("corbd drain --undo"));
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("a volume state that needs a person is critical, and one that may pass by itself a warning") {
  for (const auto health : {Health::unproven, Health::lost, Health::failed})
    CHECK(ops::verdict(health) == Verdict::critical);
  for (const auto health : {Health::absent, Health::reconnecting}) CHECK(ops::verdict(health) == Verdict::warning);
  for (const auto health : {Health::staged, Health::staging, Health::unstaging})
    CHECK(ops::verdict(health) == Verdict::ok);
}

TEST_CASE("volumes are counted by their state, and the worst one decides") {
  NodeFacts facts;
  CHECK(component(facts, "volumes").text == "none");
  facts.volumes = {{Health::staged, 2}, {Health::reconnecting, 1}};
  CHECK(component(facts, "volumes").verdict == Verdict::warning);
  CHECK(component(facts, "volumes").text == "2 staged, 1 reconnecting (see: corbd volumes -o wide)");
  facts.volumes[Health::lost] = 1;
  CHECK(component(facts, "volumes").verdict == Verdict::critical);
  CHECK(ops::judge(facts).ready());
}

TEST_CASE("a cluster that does not answer is critical, one with an old request a warning") {
  NodeFacts facts;
  auto& cluster = facts.clusters["a"];
  cluster.volumes = 2;
  cluster.oldest_request = 9999ms;
  CHECK(component(facts, "cluster a").verdict == Verdict::ok);
  cluster.oldest_request = 10s;
  CHECK(component(facts, "cluster a").verdict == Verdict::warning);
  CHECK(component(facts, "cluster a").text == "2 volumes, a request has waited for 10 s");
  cluster.oldest_request = 0s;
  cluster.unserved = 1;
  cluster.does_not_answer = true;
  CHECK(component(facts, "cluster a").verdict == Verdict::critical);
  CHECK(component(facts, "cluster a").text == "2 volumes, 1 without a server, does not answer");
}

TEST_CASE("a cluster that has fenced this node is critical, and its line says why") {
  NodeFacts facts;
  facts.clusters["a"].node_fenced = "its blocklist refuses 10.0.0.0/24";
  CHECK(component(facts, "cluster a").verdict == Verdict::critical);
  CHECK_THAT(component(facts, "cluster a").text, ContainsSubstring("its blocklist refuses 10.0.0.0/24"));
}

TEST_CASE("volumes that the next start would refuse are a warning of their cluster, with the reason", "[failure:232]") {
  volume::Status good, refused;
  good.cluster_id = refused.cluster_id = "prod";
  refused.refused_again = "image pool/a has rbd_cache=true";
  NodeFacts facts;
  ops::tally(facts, {good, refused}, heal::HealQueue({}));
  const auto cluster = component(facts, "cluster prod");
  CHECK(cluster.verdict == Verdict::warning);
  CHECK_THAT(cluster.text, ContainsSubstring("2 volumes, 1 that the next start or handover will not serve: image "
                                             "pool/a has rbd_cache=true"));
}

TEST_CASE("volumes whose flushes fail over a lost cache are a warning that counts them") {
  volume::Status good, lossy;
  good.health = lossy.health = Health::staged;
  lossy.cache_lost = true;
  NodeFacts facts;
  ops::tally(facts, {good, lossy}, heal::HealQueue({}));
  const auto volumes = component(facts, "volumes");
  CHECK(volumes.verdict == Verdict::warning);
  CHECK_THAT(volumes.text, ContainsSubstring("2 staged, 1 whose flushes fail") && ContainsSubstring("corbd volumes"));
}

TEST_CASE("a volume whose kernel client the cluster cut off is critical, although it is staged", "[failure:268]") {
  volume::Status status;
  status.health = volume::Health::staged;
  status.kernel_refused = "10.0.0.1:0/7";
  NodeFacts facts;
  ops::tally(facts, {status}, heal::HealQueue({}));
  const auto volumes = component(facts, "volumes");
  CHECK(volumes.verdict == Verdict::critical);
  CHECK_THAT(volumes.text, ContainsSubstring("1 staged, 1 whose kernel client"));
}

TEST_CASE("helpers that hang are one warning that names each") {
  NodeFacts facts;
  facts.hanging = {{"mount /dev/nbd0", 77, 60s}, {"mkfs.xfs", 78, 3h}};
  CHECK(component(facts, "helpers").verdict == Verdict::warning);
  CHECK(component(facts, "helpers").text ==
        "pid 77 has hung for 60 s: mount /dev/nbd0; pid 78 has hung for 3 h: mkfs.xfs");
}

TEST_CASE("unclaimed devices are named with the way out, and those of the kernel client count as healthy") {
  NodeFacts facts;
  facts.unclaimed[device::Kind::krbd] = 2;
  CHECK(verdict_of(facts) == Verdict::ok);
  CHECK_THAT(component(facts, "rbd devices").text,
             ContainsSubstring("2 devices of the kernel client, staged by ceph-csi"));
  facts.unclaimed[device::Kind::nbd] = 5;
  CHECK(verdict_of(facts) == Verdict::warning);
  CHECK_THAT(component(facts, "nbd devices").text, ContainsSubstring("5 unclaimed devices: no record or no Ceph key") &&
                                                       ContainsSubstring("restart kubelet"));
}

TEST_CASE("a node that cannot stage for a minute makes one Event with every reason, and another when it can again") {
  ops::Announcements announcements;
  const time_point start = time_point() + 1h;
  const auto bad = facts_with(0b110);
  CHECK(announcements.step({}, start).empty());
  CHECK(announcements.step(bad, start).empty());
  CHECK(announcements.step(bad, start + 59s).empty());
  const auto told = announcements.step(bad, start + 60s);
  REQUIRE(told.size() == 1);
  CHECK(told[0].reason == "AgentNotReady");
  CHECK(told[0].warning);
  CHECK_THAT(told[0].message, ContainsSubstring("csi-socket: it is gone; nbd: it is gone."));
  CHECK(announcements.step(bad, start + 1h).empty());
  const auto again = announcements.step({}, start + 2h);
  REQUIRE(again.size() == 1);
  CHECK(again[0].reason == "AgentReady");
  CHECK_FALSE(again[0].warning);
  CHECK(announcements.step({}, start + 3h).empty());
}

TEST_CASE("a node that is not ready for less than a minute makes no Event, however often") {
  ops::Announcements announcements;
  time_point now = time_point() + 1h;
  for (int times = 0; times < 5; ++times, now += 50s) {
    CHECK(announcements.step(facts_with(2), now).empty());
    CHECK(announcements.step(facts_with(2), now + 40s).empty());
    CHECK(announcements.step(facts_with(1u << 6), now + 45s).empty());
  }
}

TEST_CASE("a port of the metrics that another process has for a minute makes an Event and a warning with the reason") {
  ops::Announcements announcements;
  const time_point start = time_point() + 1h;
  NodeFacts facts;
  facts.metrics = {"127.0.0.1:9680 is in use", 59s};
  CHECK(component(facts, "metrics").verdict == Verdict::ok);
  CHECK(announcements.step(facts, start).empty());
  facts.metrics.since = 60s;
  CHECK(component(facts, "metrics").verdict == Verdict::warning);
  CHECK_THAT(component(facts, "metrics").text, ContainsSubstring("not served for 60 s: 127.0.0.1:9680 is in use"));
  CHECK(ops::judge(facts).ready());
  const auto told = announcements.step(facts, start + 60s);
  REQUIRE(told.size() == 1);
  CHECK(told[0].reason == "MetricsNotServed");
  CHECK_THAT(told[0].message, ContainsSubstring("9680"));
  REQUIRE(announcements.step({}, start + 70s).size() == 1);
}

TEST_CASE(
    "a node that the API server does not know by this agent's name is a warning, and keeps nothing from serving") {
  NodeFacts facts;
  facts.own_node = Error{errc::not_found, "the API server knows no node 'n1': set --nodeid"};
  CHECK(component(facts, "node").verdict == Verdict::warning);
  CHECK_THAT(component(facts, "node").text, ContainsSubstring("--nodeid"));
  CHECK(ops::judge(facts).ready());
}

TEST_CASE(
    "a cluster whose pool is full is critical and names the pool, and is silent only if it left another question open",
    "[failure:131]") {
  const bool silent = GENERATE(false, true);
  heal::HealQueue queue({});
  heal::HealEntry entry;
  entry.volume_id = "1";
  entry.cluster_id = "a";
  queue.add(entry, time_point());
  REQUIRE(queue.start(time_point()).size() == 1);
  queue.ended("1", heal::Outcome::unreachable, time_point(), 0.5);
  std::vector<volume::Status> all(2);
  for (auto& one : all) {
    one.cluster_id = "a";
    one.health = Health::reconnecting;
    one.unserved = true;
    one.last_error = Error{errc::pool_full, "pool volumes is full"};
  }
  if (silent) all[1].last_error = Error{errc::unreachable, "no monitor answers"};
  NodeFacts facts;
  ops::tally(facts, all, queue);
  CHECK(facts.clusters["a"].does_not_answer == silent);
  CHECK(component(facts, "cluster a").verdict == Verdict::critical);
  CHECK_THAT(component(facts, "cluster a").text, ContainsSubstring("pool volumes is full"));
  CHECK((component(facts, "cluster a").text.find("does not answer") != std::string::npos) == silent);
}

TEST_CASE("the facts of volumes and clusters come from the volumes' statuses") {
  std::vector<volume::Status> all(3);
  all[0].health = Health::staged;
  all[0].cluster_id = all[1].cluster_id = "a";
  all[0].oldest = 7s;
  all[1].health = Health::reconnecting;
  all[1].unserved = true;
  all[1].last_error = Error{errc::node_fenced, "fenced"};
  all[2].health = Health::staged;
  all[2].cluster_id = "b";
  NodeFacts facts;
  ops::tally(facts, all, heal::HealQueue({}));
  CHECK(facts.volumes == std::map<Health, std::uint32_t>{{Health::staged, 2}, {Health::reconnecting, 1}});
  REQUIRE(facts.clusters.size() == 2);
  CHECK(facts.clusters["a"].volumes == 2);
  CHECK(facts.clusters["a"].unserved == 1);
  CHECK(facts.clusters["a"].oldest_request == 7s);
  CHECK(facts.clusters["a"].node_fenced == "fenced");
  CHECK_FALSE(facts.clusters["b"].does_not_answer);
}
