// On which node a foreign client runs, by an API server that knows some nodes.
#include "corbd/orchestrator/holder_nodes.hpp"

#include <algorithm>
#include <map>

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using State = plan::HolderNode::State;

namespace {

std::string node(const std::string& name, const std::string& address, const std::string& ready = "True",
                 const std::string& taint = "", const std::string& uid = "") {
  const std::string taints = taint.empty() ? "" : R"({"key":")" + taint + R"("})";
  return R"({"metadata":{"name":")" + name + R"(","uid":"uid-)" + (uid.empty() ? name : uid) +
         R"("},"spec":{"taints":[)" + taints + R"(]},"status":{"addresses":[{"type":"InternalIP","address":")" +
         address + R"("}],"conditions":[{"type":"Ready","status":")" + ready +
         R"(","lastTransitionTime":"2026-11-23T03:00:00Z"}]}})";
}

struct Scene {
  std::map<std::string, std::string> nodes;
  std::map<std::string, std::string> attachments;  ///< by node
  unsigned refuses = 0;                            ///< the status of every answer
  unsigned refuses_lists = 0;
  double random = 0;
  std::mutex mutex;
  int lists = 0;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) { answer(request, peer); }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  orchestrator::HolderNodes finder{
      loop.control(), loop.clock, orchestrator::read_nodes(&api, "driver"), {}, [this] { return random; }};
  CancelScope leaving;

  void answer(const ApiServer::Request& request, ApiServer::Peer& peer) {
    const std::lock_guard lock(mutex);
    const std::string path(request.target.substr(0, request.target.find('?')));
    if (refuses != 0) return peer.answer(refuses, R"({"kind":"Status","message":"no"})");
    if (path == "/api/v1/nodes") {
      ++lists;
      // A server that lists from its cache gives all at once.
      if (request.target.find("resourceVersion=") != std::string::npos) return peer.answer(500, "no pages");
      if (refuses_lists != 0) return peer.answer(refuses_lists, R"({"kind":"Status","message":"no lists"})");
      std::string items;
      for (const auto& [name, body] : nodes) items += (items.empty() ? "" : ",") + body;
      return peer.answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + items + "]}");
    }
    for (const auto& [name, body] : nodes)
      if (path == "/api/v1/nodes/" + name) return peer.object(request, 200, body);
    for (const auto& [name, body] : attachments)
      if (path.ends_with(kube::volume_attachment_name("v", "driver", name))) return peer.object(request, 200, body);
    peer.absent(request);
  }
  test::Started<plan::HolderNode> start(plan::Noted noted = {}, const std::string& host = "10.0.0.7",
                                        const std::string& nonce = "1") {
    plan::HolderQuery query{"v", host + ":0/" + nonce, host, std::move(noted)};
    return {loop.io, finder.find(std::move(query), leaving)};
  }
  plan::HolderNode find(plan::Noted noted = {}, const std::string& host = "10.0.0.7", const std::string& nonce = "1") {
    return start(std::move(noted), host, nonce).get();
  }
  bool proves_dead(const plan::Noted& noted = {}, const std::string& nonce = "1") {
    return plan::is_proven_dead({.address = "10.0.0.7:0/" + nonce, .node = find(noted, "10.0.0.7", nonce)});
  }
};

/// One node, n7, which the API server lists as slowly as it is told.
class SlowNodes final : public orchestrator::NodeReader {
 public:
  struct State {
    duration takes{};
    int lists = 0;
    bool out_of_service = false;
  };
  SlowNodes(const executor& control, Clock& clock, State& state) : control_(control), clock_(clock), state_(state) {}
  task<kube::answer<kube::Node>> node(std::string, Until) override { co_return only(); }
  task<kube::answer<std::vector<kube::Node>>> nodes(Until until) override {
    ++state_.lists;
    const auto at = clock_.now() + state_.takes;
    co_await sleep_until(control_, clock_, std::min(at, until.deadline), until.scope);
    if (clock_.now() < at) co_return kube::api_error({errc::timed_out, "no answer yet"});
    co_return std::vector{only()};
  }
  task<kube::answer<kube::VolumeAttachment>> attachment(std::string, std::string, Until) override {
    co_return kube::api_error({errc::not_found, "not attached"});
  }

 private:
  kube::Node only() const {
    kube::Node node;
    node.name = "n7";
    node.addresses = {"10.0.0.7"};
    node.ready = true;
    node.out_of_service = state_.out_of_service;
    return node;
  }
  const executor control_;
  Clock& clock_;
  State& state_;
};

struct SlowScene {
  SlowNodes::State nodes;
  double random = 0;
  test::Loop loop;
  orchestrator::HolderNodes::Config config;
  CancelScope leaving;
  std::unique_ptr<orchestrator::HolderNodes> finder;

  explicit SlowScene(orchestrator::HolderNodes::Config how = {}) : config(how) {
    finder = std::make_unique<orchestrator::HolderNodes>(loop.control(), loop.clock,
                                                         std::make_unique<SlowNodes>(loop.control(), loop.clock, nodes),
                                                         config, [this] { return random; });
  }
  ~SlowScene() { loop.run(finder->stop({})); }
  test::Started<plan::HolderNode> start(plan::Noted noted = {}) {
    return {loop.io, finder->find({"v", "10.0.0.7:0/1", "10.0.0.7", std::move(noted)}, leaving)};
  }
  /// Looks for a client that the image's metadata puts on n7, for as long as one look may take.
  plan::HolderNode look() {
    auto begun = start({{"n7"}, {}});
    loop.advance(4s);
    return begun.get();
  }
};

}  // namespace

TEST_CASE("the holder's node is found by the name in the image's metadata, without a list of nodes") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  scene.attachments["n7"] = R"({"metadata":{"uid":"u","creationTimestamp":"2026-11-22T03:00:00Z"}})";
  const auto found = scene.find({{"n7"}, {}});
  CHECK(found.name == "n7");
  CHECK(found.state == State::not_ready);
  CHECK(found.since == "2026-11-23T03:00:00Z");
  CHECK(found.attached == true);
  CHECK(found.attached_since == "2026-11-22T03:00:00Z");
  CHECK(scene.lists == 0);
}

TEST_CASE("among nodes that use the image, the holder's is the one with the client's address") {
  Scene scene;
  scene.nodes["n6"] = node("n6", "10.0.0.6");
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  const auto found = scene.find({{}, {"n6", "n7"}});
  CHECK(found.name == "n7");
  CHECK(found.state == State::ready);
  CHECK(found.attached == false);
  CHECK(scene.lists == 0);
}

TEST_CASE("a client that no metadata names is looked up in one list of all nodes, which several looks share") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK(scene.find().name == "n7");
  CHECK(scene.find().state == State::not_ready);
  CHECK(scene.find({}, "10.0.0.8").name.empty());
  CHECK(scene.lists == 1);
  scene.loop.clock.advance(5min);
  CHECK(scene.find({}, "10.0.0.8").name.empty());
  CHECK(scene.lists == 2);
}

TEST_CASE("look-ups at the same time share one list of all nodes, which is requested a random part of a second later") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  scene.nodes["n8"] = node("n8", "10.0.0.8");
  scene.random = 0.75;
  auto one = scene.start();
  auto other = scene.start({}, "10.0.0.8");
  CHECK(scene.loop.clock.next() - scene.loop.clock.now() == 750ms);
  scene.loop.advance(750ms);
  CHECK(one.get().name == "n7");
  CHECK(other.get().name == "n8");
  CHECK(scene.lists == 1);
}

TEST_CASE("a node without an object is gone if it once had the client's address and no other node has it now") {
  Scene scene;
  const auto never = scene.find({{"n7"}, {}});
  CHECK(never.state == State::unknown);
  CHECK(never.why.find("never saw") != std::string::npos);
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK(scene.find({{"n7"}, {}}).state == State::not_ready);
  scene.nodes.clear();
  const auto gone = scene.find({{"n7"}, {}});
  CHECK(gone.name == "n7");
  CHECK(gone.state == State::gone);
  CHECK(gone.attached == false);
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  scene.loop.clock.advance(30s);
  const auto other = scene.find({{"n7"}, {}});
  CHECK(other.name == "n8");
  CHECK(other.state == State::ready);
}

TEST_CASE("a node without the client's address is not the client's node") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.70", "True", "node.kubernetes.io/out-of-service");
  const auto found = scene.find({{"n7"}, {}});
  CHECK(found.name.empty());
  CHECK(found.state == State::unknown);
  CHECK(found.why.find("n7") != std::string::npos);
}

TEST_CASE("an address that two nodes share identifies neither") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "True", "node.kubernetes.io/out-of-service");
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  CHECK(scene.find().name.empty());
}

TEST_CASE("an API server that refuses or is unreachable leaves the node unknown and no client proven dead") {
  Scene scene;
  scene.refuses = 403;
  const auto refused = scene.find({{"n7"}, {}});
  CHECK(refused.state == State::unknown);
  CHECK_FALSE(refused.why.empty());
  CHECK_FALSE(plan::is_proven_dead({.address = "10.0.0.7:0/1", .node = refused}));
  orchestrator::HolderNodes alone{scene.loop.control(),
                                  scene.loop.clock,
                                  orchestrator::read_nodes(Error{errc::unavailable, "no API server"}, "driver"),
                                  {}};
  const plan::HolderQuery query{"v", "10.0.0.7:0/1", "10.0.0.7", {{"n7"}, {}}};
  const auto none = test::Started<plan::HolderNode>(scene.loop.io, alone.find(query, scene.leaving)).get();
  CHECK(none.name == "n7");
  CHECK(none.state == State::unknown);
}

TEST_CASE("while nodes cannot be listed no client is proven dead, and the reason says so", "[failure:161]") {
  Scene scene;
  scene.refuses_lists = GENERATE(429u, 403u, 410u);
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
  scene.nodes.clear();
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
  CHECK(scene.find({{"n7"}, {}}).why.find("no lists") != std::string::npos);
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown", "node.kubernetes.io/out-of-service");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
}

TEST_CASE("a node that is gone proves dead only the clients that were seen on it", "[failure:161]") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}, "1"));
  scene.nodes.clear();
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}, "2"));
  CHECK(scene.proves_dead({{"n7"}, {}}, "1"));
}

TEST_CASE("a sighting of a client on a node counts for an hour", "[failure:161]") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
  scene.nodes.clear();
  scene.loop.clock.advance(59min);
  CHECK(scene.proves_dead({{"n7"}, {}}));
  scene.loop.clock.advance(2min);
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
}

TEST_CASE("a node that came back under another UID proves nothing of a client that was seen before", "[failure:161]") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown", "node.kubernetes.io/out-of-service", "another");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}, "1"));
  CHECK(scene.proves_dead({{"n7"}, {}}, "2"));
  scene.nodes.clear();
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}, "1"));
}

TEST_CASE("a node that is out of service proves nothing of an address that another node has too", "[failure:161]") {
  Scene scene;
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown", "node.kubernetes.io/out-of-service");
  scene.nodes["n8"] = node("n8", "10.0.0.7");
  CHECK_FALSE(scene.proves_dead({{"n7"}, {}}));
  scene.nodes.erase("n8");
  scene.loop.clock.advance(30s);
  CHECK(scene.proves_dead({{"n7"}, {}}));
}

TEST_CASE("a node is proven dead only by a list made after its client was first seen") {
  Scene scene;
  CHECK(scene.find({}, "10.0.0.8").name.empty());
  scene.nodes["n7"] = node("n7", "10.0.0.7", "Unknown", "node.kubernetes.io/out-of-service");
  CHECK(scene.proves_dead({{"n7"}, {}}));
  CHECK(scene.lists == 2);
  scene.loop.clock.advance(1s);
  CHECK(scene.proves_dead({{"n7"}, {}}, "2"));
  CHECK(scene.lists == 3);
  scene.loop.clock.advance(1s);
  CHECK(scene.proves_dead({{"n7"}, {}}, "2"));
  CHECK(scene.lists == 3);
}

TEST_CASE("a failed list of nodes is not requested again at every look") {
  Scene scene;
  scene.refuses_lists = 429;
  CHECK(scene.find().why.find("no lists") != std::string::npos);
  CHECK(scene.find().name.empty());
  CHECK(scene.lists == 1);
  scene.refuses_lists = 0;
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  scene.loop.clock.advance(30s);
  CHECK(scene.find().name == "n7");
}

TEST_CASE("a list of nodes that takes longer than a look is not begun again, and a later look finds it",
          "[failure:161]") {
  SlowScene scene;
  scene.nodes.takes = 50s;
  auto early = scene.start();
  scene.loop.advance(4s);
  CHECK(early.get().name.empty());
  CHECK_THAT(early.get().why, ContainsSubstring("still being read"));
  scene.loop.advance(44s);
  auto late = scene.start();
  scene.loop.advance(2s);
  CHECK(late.get().name == "n7");
  scene.loop.advance(29s);
  CHECK(scene.start().get().name == "n7");
  CHECK(scene.nodes.lists == 1);
}

TEST_CASE("a list of nodes that never ends is given up, and looks have its error until the next one") {
  SlowScene scene;
  scene.nodes.takes = 1h;
  auto early = scene.start();
  scene.loop.advance(60s);
  CHECK_THAT(scene.start().get().why, ContainsSubstring("no answer yet"));
  CHECK(scene.nodes.lists == 1);
  scene.nodes.takes = 0s;
  scene.loop.advance(30s);
  CHECK(scene.start().get().name == "n7");
  CHECK(scene.nodes.lists == 2);
}

TEST_CASE("a look that needs a list begun after its client was seen waits for the next one, not for that under way") {
  SlowScene scene;
  scene.nodes.takes = 2s;
  auto other = scene.start();
  scene.loop.advance(1s);
  scene.nodes.out_of_service = true;
  auto proving = scene.start({{"n7"}, {}});
  scene.loop.advance(1s);
  CHECK_FALSE(proving.done());
  CHECK(scene.nodes.lists == 2);
  scene.loop.advance(2s);
  CHECK(proving.get().state == State::out_of_service);
}

TEST_CASE("a list of nodes that takes longer than a look proves a node dead if it began after the death was seen") {
  SlowScene scene;
  scene.nodes.takes = 10s;
  CHECK(scene.look().state == State::ready);
  auto any = scene.start();
  scene.loop.advance(41s);
  CHECK(any.get().name.empty());
  scene.nodes.out_of_service = true;
  // The list that is there was asked for before that.
  const auto early = scene.look();
  CHECK(early.state == State::unknown);
  CHECK_THAT(early.why, ContainsSubstring("still being read"));
  scene.loop.advance(2min);
  const auto proven = scene.look();
  CHECK(proven.state == State::out_of_service);
  CHECK(proven.attached == false);
  scene.loop.advance(2min);
  CHECK(scene.look().state == State::out_of_service);
}

TEST_CASE("an old list of nodes, and one that was asked for before a node died again, prove nothing of it") {
  SlowScene scene;
  scene.nodes.takes = 10s;
  scene.nodes.out_of_service = true;
  CHECK(scene.look().state == State::unknown);
  scene.loop.advance(41s);
  SECTION("it is old") {
    scene.loop.advance(5min);
    CHECK(scene.look().state == State::unknown);
    scene.loop.advance(2min);
    CHECK(scene.look().state == State::out_of_service);
  }
  SECTION("the node lived meanwhile") {
    scene.nodes.out_of_service = false;
    CHECK(scene.look().state == State::ready);
    scene.nodes.out_of_service = true;
    CHECK(scene.look().state == State::unknown);
    scene.loop.advance(2min);
    CHECK(scene.look().state == State::out_of_service);
  }
}

TEST_CASE("malformed Nodes in a list crash no agent and hide no other node of the list") {
  Scene scene;
  scene.nodes["a"] = "7";
  scene.nodes["b"] = R"({"metadata":7,"status":{"addresses":7,"conditions":[7]},"spec":{"taints":"x"}})";
  scene.nodes["c"] = R"({"metadata":{"name":[]},"status":{"addresses":[7,{"type":"InternalIP","address":{}}]}})";
  scene.nodes["n7"] = node("n7", "10.0.0.7");
  CHECK(scene.find().name == "n7");
  CHECK(scene.lists == 1);
}

TEST_CASE("a look whose deadline comes before its turn to list the nodes leaves the list to later looks") {
  orchestrator::HolderNodes::Config config;
  config.spread = 10s;
  SlowScene scene(config);
  scene.random = 0.5;
  auto early = scene.start();
  scene.loop.advance(4s);
  CHECK_THAT(early.get().why, ContainsSubstring("still being read"));
  CHECK(scene.nodes.lists == 0);
  auto late = scene.start();
  scene.loop.advance(1s);
  CHECK(late.get().name == "n7");
  CHECK(scene.nodes.lists == 1);
}

TEST_CASE("an agent that ends waits for no list of nodes") {
  SlowScene scene;
  scene.nodes.takes = 50s;
  auto look = scene.start();
  scene.leaving.cancel();
  scene.loop.run(scene.finder->stop({}));
  CHECK(look.get().name.empty());
  CHECK_FALSE(scene.start().get().why.empty());
  CHECK(scene.nodes.lists == 1);
}
