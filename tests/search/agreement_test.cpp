// The search and the simulator tell the same stories, and come to the same end: what a step does here is what it does
// there, where the real shell carries it out.
#include <set>
#include <string>

#include "sim/scene.hpp"
#include "sim/two_agents.hpp"
#include "story.hpp"

using namespace corbd;
using search::Client;
using search::kNobody;
using search::Story;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;

namespace {

const std::string kTool = "10.0.0.8:0/7", kRescue = "10.0.0.9:0/8";

std::string whose(const std::string& address) {
  if (address.empty()) return "nobody";
  const auto host = image::host_of(address);
  return host == "10.0.0.1" ? "node 1" : host == "10.0.0.2" ? "node 2" : "another";
}
std::string whose(search::Ref client) {
  if (client == kNobody) return "nobody";
  const int node = search::node_of(client);
  return node < 0 ? "another" : "node " + std::to_string(node + 1);
}

std::string listed(const std::set<std::string>& all) {
  std::string said;
  for (const auto& one : all) said += one + ", ";
  return said;
}

/// The shared part.
std::string shown(const test::FakeImage& image) {
  std::set<std::string> watchers;
  for (const auto& watcher : image.watchers) watchers.insert(whose(watcher));
  return "lock: " + whose(image.lock_owner) + (image.lock_handle == test::FakeImage::kKept ? ", kept" : "") +
         "; watches: " + listed(watchers);
}
std::string shown(const search::World& world) {
  std::set<std::string> watchers;
  for (search::Ref client = 1; client < search::kRefs; ++client)
    if (world.clients.at(client).watches) watchers.insert(whose(client));
  return "lock: " + whose(world.image.owner) + (world.image.kept ? ", kept" : "") + "; watches: " + listed(watchers);
}

std::string shown(bool there, bool complete, bool failed, bool uid, bool broken, bool call, const char* stamp) {
  if (!there) return "no record";
  return std::string("record: ") + (complete ? "complete" : "begun") + (failed ? ", given up" : "") +
         (uid ? ", with its attachment" : "") + (broken ? ", broke a lock" : "") +
         (call ? ", calls for the lock" : "") + ", " + stamp;
}

/// A node's own part.
std::string shown(const test::World& node, const test::FakeImage& image) {
  const auto& devices = node.kernel.devices;
  const std::string device = devices.empty() ? "no device; " : devices.front().alive ? "alive; " : "dead; ";
  if (node.disk.records.empty()) return device + "no record";
  const auto& record = node.disk.records.front();
  const auto& proof = record.proof;
  const char* stamp = !proof.modified                     ? "no stamp"
                      : *proof.modified == image.modified ? "the image's stamp"
                                                          : "another stamp";
  const bool complete = !record.stagings.empty() && record.stagings.front().complete;
  return device + shown(true, complete, record.failed, !proof.attachment_uid.empty(), proof.lock_break.has_value(),
                        proof.lock_call.has_value(), stamp);
}
std::string shown(const search::World& world, int node) {
  const search::Node& of = world.nodes.at(static_cast<std::size_t>(node));
  const bool alive = of.device.link != search::Device::dead;
  const std::string device = !of.device.there ? "no device; " : alive ? "alive; " : "dead; ";
  const auto& record = of.record;
  const char* stamp = record.modified == 0                      ? "no stamp"
                      : record.modified == world.image.modified ? "the image's stamp"
                                                                : "another stamp";
  return device + shown(record.there, record.staging == 2, record.failed, record.uid != 0, record.break_before != 0,
                        record.lock_call != kNobody, stamp);
}

/// Both, with one node.
struct Both {
  Scene scene;
  Story story;
  Both() {
    scene.filled();
    scene.world.attachment = {plan::Attachment::State::here, "uid-1", ""};
  }
  void agree(errc outcome = errc::ok) {
    CHECK(story.outcome == outcome);
    CHECK(shown(story.now) == shown(scene.image()));
    CHECK(shown(story.now, 0) == shown(scene.world, scene.image()));
  }
  void staged() {
    CHECK(scene.want(test::staged_wish(kId)) == errc::ok);
    CHECK(scene.want(plan::Attached{"uid-1"}) == errc::ok);
    story.stage();
    story.attach();
    agree();
  }
  void heals(errc outcome = errc::ok) {
    CHECK(scene.want(plan::Healed{}) == outcome);
    story.heal();
    agree(outcome);
  }
  void kill_and_start() {
    scene.kill_and_start();
    story.kill_and_start();
  }
  /// The dead client's watch ends.
  void watch_ends() {
    scene.loop.advance(31s);
    story.happens("the watch ends of a client");
  }
};

}  // namespace

TEST_CASE("the search agrees with the simulator about a stage, and what it leaves") {
  Both both;
  both.staged();
  CHECK(both.scene.want(test::kUnstaged) == errc::ok);
  both.story.unstage();
  both.agree();
}

TEST_CASE("the search agrees with the simulator about an agent that dies and heals") {
  Both both;
  both.staged();
  both.kill_and_start();
  both.heals();
  both.kill_and_start();
  both.watch_ends();
  both.heals();
}

TEST_CASE("the search agrees with the simulator about a death between the break of a lock and the lock") {
  Both both;
  both.staged();
  both.kill_and_start();
  both.scene.world.calls.crash_in = "acquire lock";
  CHECK_THROWS_AS(both.scene.world.agent.want(kId, plan::Wish(plan::Healed{})), test::Crash);
  both.story.happens("its agent heals");
  both.story.ends_with("its agent breaks its dead lock");
  both.scene.world.agent.kill();
  both.scene.world.agent.start();
  both.story.kill_and_start();
  both.agree();
  both.heals();
}

TEST_CASE("the search agrees with the simulator about a handover") {
  Both both;
  both.staged();
  both.scene.world.agent.hand_over();
  both.story.hand_over();
  both.agree();
  both.heals();
  both.kill_and_start();
  both.heals();
}

TEST_CASE("the search agrees with the simulator about a tool that takes a dead client's lock") {
  Both both;
  both.staged();
  both.kill_and_start();
  both.watch_ends();
  REQUIRE(both.scene.world.cluster.maintain(both.scene.image(), kTool));
  both.story.happens("a tool opens the image, and takes its lock");
  both.heals(errc::unproven);
  both.scene.world.cluster.leave(both.scene.image(), kTool, true);
  both.story.happens("the tool leaves");
  both.heals();
}

TEST_CASE("the search agrees with the simulator about a rescue host that writes") {
  Both both;
  both.staged();
  const bool cleanly = GENERATE(true, false);
  both.scene.loop.advance(61s);
  both.kill_and_start();
  REQUIRE(both.scene.world.cluster.visit(both.scene.image(), kRescue, true));
  both.story.happens("an operator has the lock's owner cut off for a rescue host, which takes the lock");
  both.story.happens("the rescue host writes");
  both.story.happens("a write arrives of a client");
  both.heals(errc::unproven);
  both.scene.world.cluster.leave(both.scene.image(), kRescue, cleanly);
  both.story.happens(cleanly ? "the rescue host leaves" : "the rescue host dies");
  if (!cleanly) both.story.happens("the watch ends of a client");
  both.heals(errc::unproven);
}

TEST_CASE("the search agrees with the simulator about a client that is cut off while it serves") {
  Both both;
  both.staged();
  both.scene.world.cluster.blocklist(both.scene.world.agent.client());
  both.scene.loop.advance(1s);
  // Nobody else in the search blocks a client of its own accord: a rescue host that leaves at once.
  both.story.happens("an operator has the lock's owner cut off for a rescue host, which takes the lock");
  both.story.happens("the rescue host leaves");
  both.story.happens("its agent learns that its client is cut off");
  both.scene.image().lock_owner.clear();
  both.scene.image().changed();
  both.heals();
}

TEST_CASE("the search agrees with the simulator about a node that is cut off while its volume moves") {
  test::TwoAgents two(test::Way::watch_ends);
  Story story(true);
  two.bring_up(two.a);
  story.stage(0);
  story.attach(0);
  two.cut_off();
  two.moves();
  story.happens("it is cut off from the cluster", 0);
  story.happens("the volume is attached to the other node");
  two.bring_up(two.b);
  story.happens("the watch ends of a client");
  story.stage(1);
  story.attach(1);
  const auto agree = [&] {
    CHECK(shown(story.now) == shown(two.image()));
    CHECK(shown(story.now, 0) == shown(two.a, two.image()));
    CHECK(shown(story.now, 1) == shown(two.b, two.image()));
  };
  agree();
  two.comes_back();
  two.advance(5min);
  story.happens("it reaches the cluster again", 0);
  story.happens("its agent learns that its client is cut off", 0);
  story.heal(0);
  CHECK(story.outcome == errc::lost);
  story.heal(0);
  agree();
}

TEST_CASE("a predecessor of the search hands over in the order of the life of an agent") {
  using lifecycle::HandingOver;
  auto life = test::serving_life({.handover = true, .in_pod = true, .leave_grace = 200s});
  auto action = test::advance(life, lifecycle::Woken{time_point(), true});
  std::vector<HandingOver> order;
  while (!std::holds_alternative<lifecycle::LastAction>(action)) {
    const auto* gives = std::get_if<lifecycle::HandingOverAction>(&action);
    if (gives != nullptr) order.push_back(gives->what);
    const bool asks = lifecycle::is(action, lifecycle::Serving::ask_next);
    action = test::advance(life, asks ? lifecycle::Event(lifecycle::Answered{true}) : lifecycle::Done{});
    REQUIRE(order.size() < 100);
  }
  // "its next agent begins, and has its records", with no operation under way; then it gives its links; then it ends.
  const auto at = [&](HandingOver what) { return std::ranges::find(order, what) - order.begin(); };
  CHECK(at(HandingOver::quiesce) < at(HandingOver::hand_over_lock));
  CHECK(at(HandingOver::hand_over_lock) < at(HandingOver::stop_new_work));
  CHECK(at(HandingOver::stop_new_work) < at(HandingOver::hand_over_links));
  CHECK(at(HandingOver::hand_over_links) < static_cast<std::ptrdiff_t>(order.size()));
}
