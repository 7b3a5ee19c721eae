// Many volumes, and many calls, at once. docs/failures.md has the number of each story.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using plan::Wish;
using test::kId;
using test::Scene;
using namespace std::chrono_literals;

namespace {

task<> ask(Scene& in, std::map<errc, int>& into, std::string id) {
  const auto done = co_await in.world.agent.shell().want(id, Wish(test::staged_wish(id)), {});
  ++into[done ? errc::ok : done.error().code];
}

/// A node with many volumes, its healer, and how many volumes are on their way from an open image to a served device.
struct Node : Scene {
  explicit Node(int volumes) : gate(loop.control(), loop.clock) {
    world.agent.kill();
    world.cluster.images.clear();
    for (int number = 0; number < volumes; ++number) {
      ids.push_back("image-" + std::to_string(number));
      world.cluster.images[ids.back()].id = "id-" + std::to_string(number);
    }
    world.agent.start(true);
    world.calls.before_call = [this](const std::string& call) {
      if (call == "open") most_at_once = std::max(most_at_once, ++under_way);
      if (call == "kernel reconfigure") --under_way;
    };
  }
  ~Node() {
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  void stage_all() {
    for (const auto& id : ids) gate.spawn(ask(*this, ends, id));
    loop.advance(5min);
    under_way = most_at_once = 0;
  }
  int alive() const {
    return static_cast<int>(std::count_if(world.kernel.devices.begin(), world.kernel.devices.end(),
                                          [](const auto& device) { return device.alive; }));
  }
  std::vector<std::string> ids;
  std::map<errc, int> ends;
  int under_way = 0, most_at_once = 0;
  Gate gate;
};

}  // namespace

TEST_CASE("a thousand calls that want the same are one operation", "[failure:22][rule:13]") {
  Scene scene;
  Gate gate(scene.loop.control(), scene.loop.clock);
  std::map<errc, int> ends;
  for (int call = 0; call < 1000; ++call) gate.spawn(ask(scene, ends, kId));
  scene.loop.advance(1min);
  CHECK(ends == std::map<errc, int>{{errc::ok, 1000}});
  CHECK(scene.image().generation == 1);
  CHECK(scene.world.calls.made < 40);
}

TEST_CASE("the 200 volumes of a node that boots are all staged, each formatted once", "[failure:24]") {
  Node node(200);
  node.stage_all();
  CHECK(node.ends == std::map<errc, int>{{errc::ok, 200}});
  CHECK(node.alive() == 200);
  for (const auto& [name, image] : node.world.cluster.images) CHECK(image.generation == 1);
}

TEST_CASE("the 200th volume of a node takes as many calls as the 10th") {
  Node node(200);
  std::map<std::size_t, std::pair<int, int>> calls;
  for (std::size_t number = 1; number <= node.ids.size(); ++number) {
    const auto& id = node.ids[number - 1];
    const auto before = std::pair(node.world.calls.made, node.world.kernel.inventories);
    const auto stage = test::staged_wish(id);
    REQUIRE(node.want(stage, id) == errc::ok);
    REQUIRE(node.want(test::published(stage, "/pods/" + id), id) == errc::ok);
    calls[number] = {node.world.calls.made - before.first, node.world.kernel.inventories - before.second};
  }
  CHECK(calls[200] == calls[10]);
}

// Each inventory reads several files of each device, on the control thread.
TEST_CASE("an unpublish and an unstage look at their own device, not at every device of the node") {
  Scene scene;
  const auto stage = test::staged();
  REQUIRE(scene.want(stage) == errc::ok);
  REQUIRE(scene.want(test::published(stage, "/t")) == errc::ok);
  const int before = scene.world.kernel.inventories;
  CHECK(scene.want(plan::Unpublished{"/t"}) == errc::ok);
  CHECK(scene.want(plan::Unstaged{stage.path}) == errc::ok);
  CHECK(scene.world.kernel.inventories == before);
}

TEST_CASE("after a machine that slept until its client was cut off, 300 volumes are healed, at most 16 at a time",
          "[failure:44]") {
  Node node(300);
  node.stage_all();
  REQUIRE(node.alive() == 300);
  node.world.cluster.blocklist(node.world.agent.client());
  node.loop.leap(2h);
  node.loop.advance(5min);
  CHECK(node.alive() == 300);
  CHECK(node.most_at_once > 1);
  CHECK(node.most_at_once <= 16);
}

TEST_CASE("300 volumes of an agent that died are healed, at most 16 at a time, while another is staged",
          "[failure:24]") {
  Node node(300);
  node.stage_all();
  node.world.agent.kill();
  node.world.agent.start(true);
  node.world.cluster.images["new"].id = "id-new";
  CHECK(node.want(test::staged_wish("new"), "new") == errc::ok);
  node.loop.advance(5min);
  CHECK(node.alive() == 301);
  CHECK(node.most_at_once <= 17);
}
