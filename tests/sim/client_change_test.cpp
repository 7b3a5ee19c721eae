// A volume's client is changed to one of its present user and key while applications use the device.
#include "corbd/core/gate.hpp"
#include "scene.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

const plan::Credential kNewUser{"node.1", Secret("the rotated key")};

/// A volume that is served, and whose user was rotated in the cluster. The old user is still there.
struct ChangingClient : Scene {
  ChangingClient() {
    world.agent.kill();
    world.agent.start(true);
  }
  void stage(plan::Staged wish = staged_wish(kId)) {
    staged = std::move(wish);
    REQUIRE(want(staged) == errc::ok);
    use_all();
    loop.advance(1s);
    before = client();
    world.cluster.users[kNewUser.user] = kNewUser.key;
  }
  plan::Staged again() const {
    auto wish = staged;
    wish.credential = kNewUser;
    return wish;
  }
  std::string client() { return world.agent.shell().status(kId)->client; }
  void use_all() {
    if (!staged.capability.read_only) return write_all();
    for (std::size_t block = 0; block < kBlocks; ++block) world.kernel.application_reads(device(), block);
  }
  /// The cluster answers nothing any more once the next record is written, and the application writes.
  void falls_silent_at_the_save() {
    world.calls.before_call = [this](const std::string& call) {
      if (call != "save record") return;
      world.calls.before_call = nullptr;
      world.cluster.dead = true;
      write_all();
    };
  }
  /// Its requests are answered, and neither kernel nor cluster saw a failure.
  void is_unnoticed() {
    use_all();
    loop.advance(1s);
    CHECK(waiting() == 0);
    CHECK(world.kernel.errors == 0);
    CHECK(world.cluster.blocklisted.empty());
    CHECK(world.agent.shell().status(kId)->counts.links_lost == 0);
    CHECK(world.agent.shell().timeline(kId).back().to == volume::Health::staged);
    for (const auto& rule : world.broken_rules) FAIL_CHECK(rule);
  }
  plan::Staged staged;
  std::string before;
};

}  // namespace

TEST_CASE("a repeated stage under another user moves the device to a client of that user, and nobody notices") {
  ChangingClient scene;
  auto wish = staged_wish(kId);
  SECTION("with exclusive-lock") {}
  SECTION("without exclusive-lock") { scene.image().exclusive = false; }
  SECTION("read-only") {
    scene.filled();
    wish.capability.read_only = true;
  }
  SECTION("a raw block volume of many writers") {
    wish = block_wish();
    wish.capability.shared = true;
    scene.image().shared = true;
  }
  scene.stage(wish);
  scene.use_all();
  REQUIRE(scene.want(scene.again()) == errc::ok);
  CHECK(scene.client() != scene.before);
  CHECK(scene.image().lock_owner != scene.before);
  scene.is_unnoticed();
}

TEST_CASE("a volume moves to the user that its Secret has now within ten minutes, without a call") {
  ChangingClient scene;
  scene.stage();
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.loop.advance(10min);
  CHECK(scene.client() != scene.before);
  CHECK(scene.world.disk.records.front().user == kNewUser.user);
  scene.is_unnoticed();
}

TEST_CASE("once a volume has moved, the end of its old user and of that one's tickets changes nothing") {
  ChangingClient scene;
  scene.stage();
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.world.cluster.users.erase("node");
  scene.world.cluster.end_tickets();
  scene.is_unnoticed();
}

TEST_CASE("a volume whose image the new user cannot open stays with its client and its user") {
  ChangingClient scene;
  scene.stage();
  scene.world.cluster.without_caps.insert(kNewUser.user);
  REQUIRE(scene.want(scene.again()) == errc::ok);
  CHECK(scene.client() == scene.before);
  CHECK(scene.world.disk.records.front().user == "node");
  scene.is_unnoticed();
}

TEST_CASE("a volume with a request that the cluster does not answer stays with its client, and moves later") {
  ChangingClient scene;
  scene.stage();
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.world.cluster.dead = true;
  scene.write_all();
  scene.loop.advance(20s);
  static_cast<void>(scene.world.agent.want(kId, plan::Authorized{kNewUser}));
  CHECK(scene.client() == scene.before);
  scene.world.cluster.revive();
  scene.loop.advance(10min);
  CHECK(scene.client() != scene.before);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a move that could not be made once the new user was taken is made later, without a call") {
  ChangingClient scene;
  scene.stage();
  scene.falls_silent_at_the_save();
  static_cast<void>(scene.world.agent.want(kId, scene.again()));
  CHECK(scene.world.disk.records.front().user == kNewUser.user);
  CHECK(scene.client() == scene.before);
  scene.world.cluster.revive();
  scene.loop.advance(15min);
  CHECK(scene.client() != scene.before);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
}

TEST_CASE("a volume's status has the user and key that serve it, before and after a move") {
  ChangingClient scene;
  scene.stage();
  const auto old = volume::shown("node", scene.staged.credential.key);
  const auto fresh = volume::shown(kNewUser.user, kNewUser.key);
  CHECK(scene.world.agent.shell().status(kId)->keys.present == old);
  REQUIRE(scene.want(scene.again()) == errc::ok);
  const auto keys = scene.world.agent.shell().status(kId)->keys;
  CHECK(keys.present == fresh);
  CHECK_FALSE(keys.next);
}

TEST_CASE("the client of the old user ends with its last image") {
  ChangingClient scene;
  scene.stage();
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.loop.advance(1s);
  CHECK(scene.world.cluster.ended.contains(scene.before));
  scene.is_unnoticed();
}

TEST_CASE("an agent that leaves while the old client's image closes fails no request that the kernel is sending",
          "[failure:158]") {
  ChangingClient scene;
  Calm calm;
  scene.stage(block_wish());
  scene.world.hazards = &calm;
  bool half_sent = false;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call != "close image") return;
    scene.world.calls.before_call = nullptr;
    scene.world.cluster.dead = true;
    for (std::size_t block = 0; block < kBlocks; ++block) scene.world.kernel.application_writes(scene.device(), block);
    half_sent = std::ranges::any_of(scene.device().requests, &KernelRequest::half_sent);
  };
  Gate gate(scene.loop.control(), scene.loop.clock);
  gate.spawn([](ChangingClient& of) -> task<> {
    static_cast<void>(co_await of.world.agent.shell().want(kId, of.again(), {}));
  }(scene));
  scene.loop.advance(200ms);
  REQUIRE(half_sent);
  scene.loop.run(scene.world.agent.leave_well());
  scene.world.agent.kill();
  CHECK(scene.world.kernel.errors == 0);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
  scene.world.hazards = nullptr;
}

TEST_CASE("a volume that cannot move tells which user it is to have and why, until its Secret is put back") {
  ChangingClient scene;
  scene.stage();
  scene.world.cluster.without_caps.insert(kNewUser.user);
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.loop.advance(10min);
  auto keys = scene.world.agent.shell().status(kId)->keys;
  CHECK(keys.present == volume::shown("node", scene.staged.credential.key));
  CHECK(keys.next == volume::shown(kNewUser.user, kNewUser.key));
  CHECK_FALSE(keys.why_not.empty());
  scene.world.stage_secret = {"Secret ceph/node", scene.staged.credential, ""};
  scene.loop.advance(10min);
  keys = scene.world.agent.shell().status(kId)->keys;
  CHECK_FALSE(keys.next);
  CHECK(keys.why_not.empty());
}

TEST_CASE("a volume that stays with its earlier client, since a request waits, says so in an Event") {
  ChangingClient scene;
  scene.stage();
  scene.falls_silent_at_the_save();
  static_cast<void>(scene.world.agent.want(kId, scene.again()));
  const auto keys = scene.world.agent.shell().status(kId)->keys;
  CHECK(keys.present == volume::shown("node", scene.staged.credential.key));
  CHECK(keys.next == volume::shown(kNewUser.user, kNewUser.key));
  CHECK_FALSE(keys.why_not.empty());
  const auto told = std::ranges::find(scene.world.notices, "ClientNotChanged",
                                      [](const auto& notice) { return notice.second.reason; });
  REQUIRE(told != scene.world.notices.end());
  CHECK_THAT(told->second.message, ContainsSubstring("Keep the earlier user and key"));
}

TEST_CASE("a volume needs the user in its files too until they have the one that the cluster took") {
  ChangingClient scene;
  scene.stage();
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.world.cluster.users.erase("node");
  scene.world.agent.kill();
  scene.world.agent.start(true);
  scene.world.disk.state = Disk::State::full;
  CHECK(scene.want(plan::Healed{}) == errc::state_write);
  REQUIRE(scene.world.disk.records.front().user == "node");
  const auto keys = [&] { return scene.world.agent.shell().status(kId)->keys; };
  CHECK(keys().present->user == kNewUser.user);
  CHECK(keys().others == std::vector<std::string>{"node"});
  scene.world.disk.state = Disk::State::good;
  REQUIRE(scene.want(plan::Healed{}) == errc::ok);
  CHECK(keys().others.empty());
}

TEST_CASE("a stage that brings the present pair again takes the refused one back") {
  ChangingClient scene;
  scene.stage();
  scene.world.cluster.without_caps.insert(kNewUser.user);
  REQUIRE(scene.want(scene.again()) == errc::ok);
  const auto keys = [&] { return scene.world.agent.shell().status(kId)->keys; };
  REQUIRE(keys().next);
  REQUIRE(scene.want(scene.staged) == errc::ok);
  CHECK_FALSE(keys().next);
  CHECK(keys().others.empty());
}

TEST_CASE("a volume leaves a client that goes on to serve another volume, and follows no client") {
  ChangingClient scene;
  const std::string second = "image-2";
  scene.world.cluster.images[second].id = "id-2";
  auto wish = staged_wish(second);
  wish.path = "/staging/2";
  REQUIRE(scene.want(wish, second) == errc::ok);
  scene.stage();
  const auto client_of = [&](const std::string& id) { return scene.world.agent.shell().status(id)->client; };
  REQUIRE(client_of(second) == scene.before);
  REQUIRE(scene.want(scene.again()) == errc::ok);
  CHECK(client_of(second) == scene.before);
  scene.is_unnoticed();
  wish.credential = kNewUser;
  REQUIRE(scene.want(wish, second) == errc::ok);
  CHECK(client_of(second) == scene.client());
  scene.is_unnoticed();
}

TEST_CASE("idle volumes move to the user of their Secret beside each other, and busy ones one after another") {
  ChangingClient scene;
  constexpr int kMore = 3;
  const auto id = [](int number) { return "image-more-" + std::to_string(number); };
  for (int number = 0; number < kMore; ++number) {
    scene.world.cluster.images[id(number)].id = "more-" + std::to_string(number);
    auto wish = staged_wish(id(number));
    wish.path = "/staging/more-" + std::to_string(number);
    REQUIRE(scene.want(wish, id(number)) == errc::ok);
  }
  scene.stage();
  const bool busy = GENERATE(true, false);
  const auto write_all = [&] {
    for (auto& device : scene.world.kernel.devices)
      if (!device.backend.empty()) scene.world.kernel.application_writes(device, 0);
  };
  scene.loop.advance(15min);
  if (busy) write_all();
  int under_way = 0, most = 0;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "keep lock") most = std::max(most, ++under_way);
    if (call == "end lock watch") --under_way;
  };
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.loop.advance(10min);
  CHECK((most == 1) == busy);
  for (int number = 0; number < kMore; ++number)
    CHECK(scene.world.agent.shell().status(id(number))->client == scene.client());
  CHECK(scene.client() != scene.before);
  scene.is_unnoticed();
}

TEST_CASE("a Secret that the cluster does not take is tried again with growing pauses, and a corrected one at once") {
  ChangingClient scene;
  scene.stage();
  const plan::Credential bad{kNewUser.user, Secret("edited badly")};
  scene.world.stage_secret = {"Secret ceph/node", bad, ""};
  scene.loop.advance(2h);
  CHECK(scene.client() == scene.before);
  CHECK(scene.world.notices.size() >= 3);
  CHECK(scene.world.notices.size() <= 7);
  scene.world.stage_secret = {"Secret ceph/node", kNewUser, ""};
  scene.loop.advance(6min);
  CHECK(scene.client() != scene.before);
  scene.is_unnoticed();
}

TEST_CASE("an agent that dies at any call of a move, or one of whose calls fails, serves the volume again") {
  const auto trouble = GENERATE(&Calls::crash_at, &Calls::crash_after_at, &Calls::fail_at, &Calls::fail_after_at);
  for (int at = 1;; ++at) {
    ChangingClient scene;
    scene.stage();
    scene.write_all();
    scene.world.calls.*trouble = at;
    bool died = false;
    try {
      static_cast<void>(scene.world.agent.want(kId, scene.again()));
    } catch (const Crash&) {
      died = true;
    }
    const bool reached = died || scene.world.calls.*trouble <= 0;
    scene.world.calls.*trouble = 0;
    if (died) scene.kill_and_start(true);
    scene.loop.advance(3min);
    INFO("call " << at);
    CHECK(scene.waiting() == 0);
    CHECK(scene.world.kernel.errors == 0);
    CHECK(scene.world.cluster.knows(scene.world.disk.records.front().user, scene.world.disk.keys.at(kId)));
    for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
    if (!reached) break;
  }
}
