// Under which VolumeAttachment the volumes of this node are here.
#include "corbd/heal/attachments.hpp"

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
  void granted(const std::string&, const volume::Wish& wish) override { all.front().attachment_uid = std::get<volume::Attached>(wish).uid; }
};

struct Scene {
  std::atomic<unsigned> status = 200;
  test::Loop loop;
  BlockingPool pool{loop.control(), loop.clock, 1};
  ApiServer server{[this](const ApiServer::Request&, ApiServer::Peer& peer) {
    const unsigned now = status;
    peer.answer(now, now == 200 ? R"({"metadata":{"uid":"uid-1"},"spec":{"attacher":"driver","nodeName":"node-1"},"status":{"attached":true}})"
                                : R"({"kind":"Status","message":"no"})");
  }};
  kube::Api api{loop.control(), loop.clock, pool, server.access()};
  heal::Attachments attachments{loop.control(), loop.clock, &api, {"driver", "node-1"}};
  Scripted volumes;
  Scene() { volumes.all.emplace_back().volume_id = "v"; }
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

TEST_CASE("a volume that does not know its attachment at the agent's start is told") {
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

TEST_CASE("a volume that is staged is told its attachment, one that is healed is not") {
  Scene scene;
  scene.uid() = "uid-0";
  scene.attachments.start(scene.volumes);
  scene.attachments.note(volume::Change{{}, "v", Health::reconnecting, Health::staged, ""});
  CHECK(scene.server.requests().empty());
  scene.attachments.note(volume::Change{{}, "v", Health::staging, Health::staged, ""});
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}

TEST_CASE("a server that fails is asked again, one that knows no attachment is not") {
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

TEST_CASE("a volume that is not served yet is told once it is") {
  Scene scene;
  scene.volumes.outcome = Error{errc::unavailable, "not served now"};
  scene.attachments.start(scene.volumes);
  REQUIRE(scene.comes([&] { return scene.volumes.wishes.size() >= 2; }));
  scene.volumes.outcome = {};
  CHECK(scene.comes([&] { return scene.uid() == "uid-1"; }));
}
