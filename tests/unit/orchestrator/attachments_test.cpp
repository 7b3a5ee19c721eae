// Under which VolumeAttachment the volumes of this node are here.
#include "corbd/orchestrator/attachments.hpp"

#include <algorithm>
#include <thread>

#include "support/api_server.hpp"
#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/scripted_volumes.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::ApiServer;
using volume::Health;

namespace {

class Scripted final : public test::ScriptedVolumes {
  void granted(const std::string&, const plan::Wish& wish) override {
    all.front().attachment_uid = std::get<plan::Attached>(wish).uid;
  }
};

bool is_of_node(const ApiServer::Request& request) { return request.target.find("/nodes/") != request.target.npos; }

struct Scene {
  std::atomic<unsigned> status = 200;
  std::atomic<bool> has_node = true;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (is_of_node(request) && has_node) return peer.object(request, 200, "{}");
    const unsigned now = status;
    peer.object(
        request, now,
        now == 200
            ? R"({"metadata":{"uid":"uid-1"},"spec":{"attacher":"driver","nodeName":"node-1"},"status":{"attached":true}})"
            : R"({"kind":"Status","message":"no"})");
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  orchestrator::Attachments attachments{loop.control(), loop.clock, &api, {"driver", "node-1"}};
  Scripted volumes;
  Scene() {
    volumes.all.emplace_back().volume_id = "v";
    volumes.all.front().node = "node-1";
  }
  std::string& uid() { return volumes.all.front().attachment_uid; }
  ~Scene() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Scene& self) {
    co_await self.attachments.stop({});
    co_return true;
  }
  bool comes(std::function<bool()> condition) {
    const auto end = loop.clock.now() + 10min;
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < end) loop.clock.advance(1s);
      return condition();
    });
  }
};

}  // namespace

TEST_CASE("a volume without a known attachment learns it at the agent's start") {
  Scene scene;
  scene.attachments.start(scene.volumes);
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}

TEST_CASE("a volume that knows its attachment costs the API server nothing at the agent's start") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.attachments.start(scene.volumes);
  scene.loop.io.poll();
  CHECK(scene.loop.clock.next() == time_point::max());
  CHECK(scene.server.requests().empty());
}

TEST_CASE("a volume that rbd-nbd may serve learns a new attachment at the agent's start", "[failure:192]") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.volumes.all.front().adopting = true;
  scene.attachments.start(scene.volumes);
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}

TEST_CASE("a volume learns its attachment when it is staged, not when it is healed") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.attachments.start(scene.volumes);
  scene.attachments.note(volume::Change{{}, "v", Health::reconnecting, Health::staged, ""});
  CHECK(scene.server.requests().empty());
  scene.attachments.note(volume::Change{{}, "v", Health::staging, Health::staged, ""});
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}

TEST_CASE("a volume that is staged or published again learns a new attachment", "[failure:192]") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.attachments.start(scene.volumes);
  scene.attachments.note_again("v");
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
  const auto asked = scene.volumes.wishes.size();
  scene.attachments.note_again("v");
  REQUIRE(scene.comes([&] { return scene.server.requests().size() == 2; }));
  scene.loop.io.poll();
  CHECK(scene.volumes.wishes.size() == asked);
}

TEST_CASE("a volume that may have been elsewhere before its new attachment is not asked for again and again") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.volumes.outcome = Error{errc::failed_precondition, "nothing shows that nobody else had it"};
  scene.attachments.start(scene.volumes);
  scene.attachments.note_again("v");
  REQUIRE(scene.comes([&] { return scene.volumes.wishes.size() == 1; }));
  scene.loop.io.poll();
  CHECK(scene.loop.clock.next() == time_point::max());
}

TEST_CASE(
    "an attachment that is asked for under another driver's or node's name, or for a node that does not exist, is not "
    "known",
    "[failure:193]") {
  Scene scene;
  scene.status = 404;
  scene.volumes.all.front().attachment_uid = "uid-0";
  scene.attachments.start(scene.volumes);
  const auto looked = [&] { return test::Started<plan::Attachment>(scene.loop.io, scene.attachments.look("v")).get(); };
  CHECK(looked().state == plan::Attachment::State::away);
  scene.volumes.all.front().driver = "driver";
  CHECK(looked().state == plan::Attachment::State::away);
  const int what = GENERATE(range(0, 3));
  if (what == 0) scene.volumes.all.front().driver = "another";
  if (what == 1) scene.has_node = false;
  if (what == 2) scene.volumes.all.front().node = "node-2";
  CHECK(looked().state == plan::Attachment::State::unknown);
  CHECK_THAT(looked().why, ContainsSubstring(what == 0 ? "--drivername" : "--nodeid"));
  CHECK(looked().maybe_away);
}

// changes X9
TEST_CASE("a volume that was staged under another node's name is neither here nor away, and no attachment is noted",
          "[failure:193]") {
  Scene scene;
  scene.volumes.all.front().node = "node-2";
  scene.attachments.start(scene.volumes);
  const auto found = test::Started<plan::Attachment>(scene.loop.io, scene.attachments.look("v")).get();
  CHECK(found.state == plan::Attachment::State::unknown);
  CHECK(found.maybe_away);
  CHECK_THAT(found.why, ContainsSubstring("set --nodeid node-2"));
  scene.attachments.note_again("v");
  scene.loop.io.poll();
  CHECK(scene.loop.clock.next() == time_point::max());
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a volume whose record names no node learns the node's name once its attachment is seen") {
  Scene scene;
  scene.uid() = "uid-1";
  scene.volumes.all.front().node.clear();
  scene.attachments.start(scene.volumes);
  CHECK(scene.comes([&] { return scene.volumes.wishes.size() == 1; }));
}

TEST_CASE("an API server that fails is asked again, and one that knows no attachment is not") {
  Scene scene;
  scene.status = 503;
  scene.attachments.start(scene.volumes);
  REQUIRE(scene.comes([&] { return scene.server.requests().size() >= 3; }));
  scene.status = 404;
  std::size_t asked = 0;
  REQUIRE(scene.comes([&] {
    const bool rests = asked == scene.server.requests().size() && scene.loop.clock.next() == time_point::max();
    asked = scene.server.requests().size();
    return rests;
  }));
  CHECK(scene.volumes.wishes.empty());
}

TEST_CASE("a volume that is not served yet learns its attachment once it is") {
  Scene scene;
  scene.volumes.outcome = Error{errc::unavailable, "not served now"};
  scene.attachments.start(scene.volumes);
  REQUIRE(scene.comes([&] { return scene.volumes.wishes.size() >= 2; }));
  scene.volumes.outcome = {};
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}

// --- while an attachment is neither here nor away

namespace {

bool is_watch(const ApiServer::Request& request) { return request.target.find("watch=1") != request.target.npos; }
bool is_get(const ApiServer::Request& request) { return request.target.find('?') == request.target.npos; }
const std::string kName = kube::volume_attachment_name("v", "driver", "node-1");

std::string attachment(bool attached, const std::string& node = "node-1") {
  return R"({"metadata":{"name":")" + kName + R"(","uid":"uid-1"},"spec":{"attacher":"driver","nodeName":")" + node +
         R"("},"status":{"attached":)" + (attached ? "true" : "false") + "}}";
}

struct Leaving {
  ~Leaving() { gone = true; }
  std::atomic<bool>& gone;
};

/// Attached only once `attach` is set: then a watch says so.
struct Waiting {
  std::atomic<bool> attach = false, may_watch = true, gone = false;  ///< gone: who watched
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (is_get(request)) return peer.object(request, 200, attachment(attach));
    if (!may_watch) return peer.answer(403, R"({"kind":"Status","reason":"Forbidden","message":"no"})");
    if (!is_watch(request))
      return peer.answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[)" + attachment(false) + "]}");
    if (request.target.find("sendInitialEvents") != request.target.npos)
      return peer.answer(422, R"({"kind":"Status","reason":"Invalid","message":"no"})");
    peer.begin();
    while (!attach) std::this_thread::sleep_for(1ms);
    peer.piece(R"({"type":"MODIFIED","object":)" + attachment(true) + "}\n");
    const Leaving leaving{gone};
    peer.hang();
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  std::vector<std::string> changed;
  test::ScriptedVolumes volumes;
  orchestrator::Attachments attachments;
  explicit Waiting(bool watch_all = false)
      : attachments(loop.control(), loop.clock, &api,
                    {"driver", "node-1", 10s, watch_all, [this](const std::string& id) { changed.push_back(id); }}) {
    attachments.start(volumes);
  }
  ~Waiting() {
    attach = true;
    test::Started<bool>(loop.io, stopped(*this)).get();
  }
  static task<bool> stopped(Waiting& self) {
    co_await self.attachments.stop({});
    co_return true;
  }
  plan::Attachment::State ask() { return test::Started<plan::Attachment>(loop.io, attachments.ask("v")).get().state; }
  bool comes(std::function<bool()> condition) {
    return test::eventually(loop.io, [&] {
      if (loop.clock.next() < loop.clock.now() + 90s) loop.clock.advance(1s);
      return condition();
    });
  }
  std::size_t asked(bool (*what)(const ApiServer::Request&)) const {
    const auto all = server.requests();
    return static_cast<std::size_t>(std::ranges::count_if(all, what));
  }
};

using State = plan::Attachment::State;

}  // namespace

TEST_CASE("an attachment that is not attached yet is watched by name, and its change is reported", "[failure:115]") {
  Waiting scene;
  REQUIRE(scene.ask() == State::unknown);
  REQUIRE(scene.comes([&] { return scene.asked(is_watch) > 1; }));
  CHECK(scene.changed.empty());
  scene.attach = true;
  CHECK(scene.comes([&] { return scene.changed == std::vector<std::string>{"v"}; }));
  for (const auto& request : scene.server.requests()) CHECK(request.target.find(kName) != request.target.npos);
}

TEST_CASE("the watch of an attachment ends once it is known to be here or elsewhere") {
  Waiting scene;
  REQUIRE(scene.ask() == State::unknown);
  REQUIRE(scene.comes([&] { return scene.asked(is_watch) > 1; }));
  scene.attach = true;
  REQUIRE(scene.comes([&] { return !scene.changed.empty(); }));
  REQUIRE(scene.ask() == State::here);
  CHECK(scene.comes([&] { return scene.gone.load(); }));
}

TEST_CASE("an agent that may not watch an attachment reads it again only when asked", "[failure:115]") {
  Waiting scene;
  scene.may_watch = false;
  REQUIRE(scene.ask() == State::unknown);
  REQUIRE(scene.comes([&] { return scene.asked(is_get) > 1; }));
  scene.attachments.note(volume::Change{{}, "v", Health::reconnecting, Health::staged, ""});
  const auto before = scene.server.requests().size();
  REQUIRE(scene.ask() == State::unknown);
  scene.loop.poll();
  CHECK(scene.server.requests().size() == before + 1);
}

TEST_CASE("one watch of all attachments replaces a watch of each, and never counts as the proof") {
  Waiting scene(true);
  REQUIRE(scene.comes([&] { return scene.asked(is_watch) > 1; }));
  REQUIRE(scene.ask() == State::unknown);
  scene.attach = true;
  CHECK(scene.comes([&] { return scene.changed == std::vector<std::string>{"v"}; }));
  CHECK(scene.asked(is_get) == 1);
  CHECK(scene.ask() == State::here);
  CHECK(scene.asked(is_get) == 2);
}

TEST_CASE("an attachment that nobody waits for is not watched") {
  Waiting scene;
  REQUIRE(test::Started<plan::Attachment>(scene.loop.io, scene.attachments.look("v")).get().state == State::unknown);
  scene.loop.poll();
  CHECK(scene.server.requests().size() == 1);
}

// --- drivers whose volumes are not attached

namespace {

/// There is no VolumeAttachment; the CSIDriver is what the test says.
struct Unattached {
  unsigned status;
  std::string driver;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target == "/apis/storage.k8s.io/v1/csidrivers/driver") return peer.object(request, status, driver);
    if (is_of_node(request)) return peer.object(request, 200, "{}");
    peer.absent(request);
  }};
  kube::Api api{loop.control(), loop.clock, pool, pool, server.access()};
  orchestrator::Attachments attachments{loop.control(), loop.clock, &api, {"driver", "node-1"}};
  Unattached(unsigned answers, std::string object) : status(answers), driver(std::move(object)) {}
  ~Unattached() { test::Started<bool>(loop.io, stopped(*this)).get(); }
  static task<bool> stopped(Unattached& self) {
    co_await self.attachments.stop({});
    co_return true;
  }
  plan::Attachment ask() { return test::Started<plan::Attachment>(loop.io, attachments.ask("v")).get(); }
};

}  // namespace

TEST_CASE("a missing attachment means nothing if the CSIDriver does not attach its volumes") {
  Unattached scene(200, R"({"spec":{"attachRequired":false}})");
  CHECK(scene.ask().state == State::none);
  CHECK(scene.loop.clock.next() == time_point::max());
}

TEST_CASE("a missing attachment counts as away if the CSIDriver attaches its volumes, is missing, or cannot be read") {
  const auto [status, driver] = GENERATE(
      table<unsigned, std::string>({{200, R"({"spec":{"attachRequired":true}})"},
                                    {200, R"({"spec":{}})"},
                                    {404, R"({"kind":"Status","message":"no driver"})"},
                                    {403, R"({"kind":"Status","reason":"Forbidden","message":"not for you"})"}}));
  Unattached scene(status, driver);
  const auto found = scene.ask();
  CHECK(found.state == State::away);
  CHECK((found.why.find("not for you") != std::string::npos) == (status == 403));
}

TEST_CASE("a CSIDriver that attaches no volumes is read once for each stage") {
  Unattached scene(200, R"({"spec":{"attachRequired":false}})");
  test::ScriptedVolumes volumes;
  volumes.all.emplace_back().volume_id = "v";
  scene.attachments.start(volumes);
  REQUIRE(test::eventually(scene.loop.io, [&] { return scene.server.requests().size() == 2; }));
  CHECK(test::eventually(scene.loop.io, [&] { return scene.loop.clock.next() == time_point::max(); }));
  CHECK(volumes.wishes.empty());
}
