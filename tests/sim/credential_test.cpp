// A volume's Ceph user and key, which others rotate while it runs.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "krbd.hpp"

using namespace corbd;
using namespace corbd::test;
using namespace std::chrono_literals;

namespace {

const plan::Credential kRotated{"node.1", Secret("the rotated key")};

/// A volume that is served, with an agent that heals.
struct Rotated : Scene {
  Rotated() {
    world.secrets_every = 24h;  // client_change_test.cpp has the looks from time to time
    world.agent.kill();
    world.agent.start(true);
    REQUIRE(want(staged_wish(kId)) == errc::ok);
    write_all();
    loop.advance(1s);
  }
  /// Stages another image by the same client, and returns the wish.
  plan::Staged stage_second(const std::string& image) {
    world.cluster.images[image].id = "id-2";
    auto wish = staged_wish(image);
    wish.path = "/staging/2";
    REQUIRE(want(wish, image) == errc::ok);
    return wish;
  }
  /// The cluster takes the new user beside the old one.
  void rotate() { world.cluster.users[kRotated.user] = kRotated.key; }
  std::string client() { return world.agent.shell().status(kId)->client; }
  void cut_off() { world.cluster.blocklist(client()); }
  void remove_old() { world.cluster.users.erase("node"); }
  void tell_secret(const plan::Credential& credential) { world.stage_secret = {"Secret ceph/node", credential, ""}; }
  plan::Staged again() const {
    auto wish = staged_wish(kId);
    wish.credential = kRotated;
    return wish;
  }
  void is_kept_as_a_pair() const {
    CHECK(world.disk.records.front().user == kRotated.user);
    CHECK(world.disk.keys.at(kId) == kRotated.key);
  }
};

}  // namespace

namespace {

/// The old user is gone, and the client that serves has no tickets any more: nothing that it asks gets an answer.
struct Ticketless : Rotated {
  Ticketless() {
    rotate();
    remove_old();
    world.cluster.end_tickets();
    write_all();
    loop.advance(2min);
    REQUIRE(waiting() > 0);
  }
};

}  // namespace

TEST_CASE("requests of a client whose tickets have ended wait without an error, and go on once it has new ones",
          "[failure:270]") {
  Ticketless scene;
  CHECK(scene.world.kernel.errors == 0);
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  scene.world.cluster.renew_tickets();
  scene.loop.advance(10s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
}

// Ceph 16.2 gave such a client no answers in five minutes (docs/sources.md#rotated-keys).
TEST_CASE("a volume whose client's tickets have ended goes on by a new client once its user is put back",
          "[failure:270]") {
  Ticketless scene;
  const auto client = scene.client();
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  scene.loop.advance(3min);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.cluster.has_entry(client));
}

TEST_CASE("a client that gets answers again before a second look is not taken for deaf", "[failure:270]") {
  Ticketless scene;
  const auto client = scene.client();
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "hearing") scene.loop.outside_in(10s, [&] { scene.world.cluster.renew_tickets(); });
  };
  scene.loop.advance(5min);
  CHECK(scene.waiting() == 0);
  CHECK_FALSE(scene.world.cluster.has_entry(client));
}

TEST_CASE("a volume that its client alone does not hear is served by a new one, whatever a busy neighbour hears",
          "[failure:270]") {
  Rotated scene;
  const std::string second = "image-2";
  scene.stage_second(second);
  const auto client = scene.client();
  REQUIRE(scene.world.agent.shell().status(second)->client == client);
  scene.world.cluster.deaf_for.insert({client, "id-2"});
  scene.world.kernel.application_writes(scene.world.kernel.devices.back(), 0);
  for (int i = 0; i < 300; ++i) {
    scene.world.kernel.application_writes(scene.device(), 0);
    scene.loop.advance(1s);
  }
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.cluster.has_entry(client));
}

TEST_CASE("an idle volume whose client does not hear the agent's own calls goes on by a new one", "[failure:270]") {
  Rotated scene;
  const auto client = scene.client();
  scene.remove_old();
  scene.world.cluster.end_tickets();
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  CHECK(scene.want(plan::Expanded{kPath}) == errc::unreachable);
  REQUIRE(scene.waiting() == 0);
  scene.loop.advance(3min);
  CHECK(scene.world.cluster.has_entry(client));
  CHECK(scene.want(plan::Expanded{kPath}) == errc::ok);
}

TEST_CASE("an image whose close gets no answers is closed once its user is put back", "[failure:270]") {
  Rotated scene;
  scene.remove_old();
  scene.world.cluster.end_tickets();
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  for (int looks = 0; looks < 2; ++looks) {
    CHECK(scene.want(kUnstaged) == errc::unreachable);
    scene.loop.advance(30s);
  }
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("the next agent serves a volume whose client's tickets have ended, under the user that the Secret has",
          "[failure:270]") {
  Ticketless scene;
  scene.tell_secret(kRotated);
  scene.kill_and_start(true);
  scene.loop.advance(1min);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  scene.is_kept_as_a_pair();
}

TEST_CASE("a volume whose client's tickets have ended is served by a client of the user that the Secret has",
          "[failure:270]") {
  Ticketless scene;
  const bool staged_again = GENERATE(false, true);
  CAPTURE(staged_again);
  if (!staged_again) scene.tell_secret(kRotated);
  if (staged_again) REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.loop.advance(2min);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  scene.is_kept_as_a_pair();
}

TEST_CASE("a client without tickets is given up once each volume that it serves has another user, or gets no answers",
          "[failure:270]") {
  Rotated scene;
  const std::string second = "image-2";
  auto wish = scene.stage_second(second);
  scene.rotate();
  scene.remove_old();
  scene.world.cluster.end_tickets();
  const auto write = [&](KernelDevice& device) { scene.world.kernel.application_writes(device, 0); };
  write(scene.device());
  REQUIRE(scene.want(scene.again()) == errc::ok);
  const auto client = scene.client();
  scene.loop.advance(3min);
  CHECK(scene.waiting() == 1);
  CHECK_FALSE(scene.world.cluster.has_entry(client));
  SECTION("it has another user") {
    wish.credential = kRotated;
    REQUIRE(scene.want(wish, second) == errc::ok);
  }
  SECTION("it gets no answers") { write(scene.world.kernel.devices.back()); }
  scene.loop.advance(3min);
  CHECK(scene.device().requests.empty());
  CHECK(scene.world.cluster.has_entry(client));
}

TEST_CASE("a volume whose client has no tickets any more leaves the node, although its image never closes",
          "[failure:270]") {
  Rotated scene;
  scene.remove_old();
  scene.world.cluster.end_tickets();
  CHECK(scene.want(kUnstaged) == errc::unreachable);
  CHECK(scene.want(kUnstaged) == errc::ok);
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a volume that was given up under a client without tickets can be staged again here under the new user",
          "[failure:270]") {
  Ticketless scene;
  REQUIRE(scene.want(plan::GivenUp{}) == errc::ok);
  const duration pause = GENERATE(duration(0s), duration(2min));
  scene.loop.advance(pause);
  REQUIRE(scene.want(kUnstaged) == errc::ok);
  scene.loop.advance(4min);
  CHECK(scene.want(scene.again()) == errc::ok);
}

TEST_CASE("a volume whose client has no tickets any more goes on after a second rotation, which only the Secret has",
          "[failure:270]") {
  Ticketless scene;
  REQUIRE(scene.want(scene.again()) == errc::ok);
  const plan::Credential second{"node.2", Secret("the key after that")};
  scene.world.cluster.users = {{second.user, second.key}};
  scene.tell_secret(second);
  scene.loop.advance(2min);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.disk.records.front().user == second.user);
}

TEST_CASE(
    "while data hang, the cluster is asked once a minute whether a client's user is let in, and no Secret is read",
    "[failure:270]") {
  Rotated scene;
  scene.world.cluster.data_hang = true;
  scene.write_all();
  scene.loop.advance(4min);
  scene.tell_secret(kRotated);
  int trials = 0;
  scene.world.calls.before_call = [&](const std::string& call) { trials += call == "may serve anew" ? 1 : 0; };
  const auto asked_before = scene.world.secret_asked;
  scene.loop.advance(10min);
  CHECK(trials >= 5);
  CHECK(trials <= 11);
  CHECK(scene.world.secret_asked == asked_before);
}

TEST_CASE("a client that waits for data stays if a new client of its user would wait as well", "[failure:270]") {
  Rotated scene;
  scene.world.cluster.data_hang = true;
  scene.write_all();
  scene.rotate();
  const auto client = scene.client();
  SECTION("its volume has no other user") {}
  SECTION("its volume has another user") { REQUIRE(scene.want(scene.again()) == errc::ok); }
  scene.loop.advance(10min);
  CHECK(scene.waiting() > 0);
  CHECK_FALSE(scene.world.cluster.has_entry(client));
}

TEST_CASE("an agent ends, or hands over, although a client without tickets never closes its image", "[failure:270]") {
  Ticketless scene;
  scene.tell_secret(kRotated);
  scene.loop.advance(2min);
  REQUIRE(scene.waiting() == 0);
  SECTION("it ends") { scene.loop.run(scene.world.agent.leave_well()); }
  SECTION("it hands over") { scene.world.agent.hand_over(true); }
  scene.write_all();
  scene.loop.advance(10s);
  CHECK(scene.world.kernel.errors == 0);
}

// field report 1
TEST_CASE("a volume whose user was renamed is healed under the new user once its old one is removed", "[failure:220]") {
  Rotated scene;
  scene.rotate();
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.remove_old();
  scene.cut_off();
  scene.write_all();
  scene.loop.advance(10s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  scene.is_kept_as_a_pair();
}

// changes X1 (d)
TEST_CASE("a user and key that a repeated stage brings are kept at once, so that they outlive the agent",
          "[failure:220]") {
  Rotated scene;
  scene.rotate();
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.is_kept_as_a_pair();
  scene.remove_old();
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.secret_asked == 0);
}

TEST_CASE("a repeated stage with a user that the cluster does not know succeeds, and people hear of the bad Secret") {
  Rotated scene;
  REQUIRE(scene.want(scene.again()) == errc::ok);
  CHECK(scene.world.disk.records.front().user == "node");
  REQUIRE_FALSE(scene.world.notices.empty());
  CHECK(scene.world.notices.back().second.reason == "CredentialRefused");
  CHECK_THAT(scene.world.notices.back().second.message, ContainsSubstring("knows no user node.1"));
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("a volume is healed by its old key, whatever bad ones were staged while the old one's user had no rights") {
  Rotated scene;
  scene.world.cluster.without_caps.insert("node");
  scene.kill_and_start();
  auto wish = staged_wish(kId);
  wish.credential.key = Secret("edited badly");
  for (int tries = 0; tries < 3; ++tries) {
    CHECK(scene.want(wish) != errc::ok);
    CHECK(scene.want(plan::Healed{}) != errc::ok);
  }
  scene.world.cluster.without_caps.clear();
  // Each of both keys in turn.
  const bool healed = scene.want(plan::Healed{}) == errc::ok || scene.want(plan::Healed{}) == errc::ok;
  CHECK(healed);
}

TEST_CASE("a repeated stage with a user that could not heal the volume keeps the one that can, and says why") {
  Rotated scene;
  scene.rotate();
  std::string why;
  SECTION("it may only read") {
    scene.world.cluster.readers.insert(kRotated.user);
    why = "user node.1 may only read";
  }
  SECTION("it may not fence") { why = scene.world.cluster.cannot_fence[kRotated.user] = "user node.1 may not fence"; }
  REQUIRE(scene.want(scene.again()) == errc::ok);
  CHECK(scene.world.disk.records.front().user == "node");
  CHECK(scene.world.disk.keys.at(kId) == staged_wish(kId).credential.key);
  REQUIRE_FALSE(scene.world.notices.empty());
  CHECK(scene.world.notices.back().second.reason == "CredentialRefused");
  CHECK_THAT(scene.world.notices.back().second.message, ContainsSubstring(why));
}

TEST_CASE("a repeated stage with a user that may fence no more than the old one is followed") {
  Rotated scene;
  scene.rotate();
  scene.world.cluster.cannot_fence = {{"node", "it may not"}, {kRotated.user, "it may not"}};
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.is_kept_as_a_pair();
}

TEST_CASE("a user and a key that could not be written stay a pair when only the key's file takes something") {
  Rotated scene;
  scene.rotate();
  scene.world.disk.state = Disk::State::full;
  REQUIRE(scene.want(scene.again()) == errc::ok);
  scene.cut_off();
  scene.write_all();
  scene.loop.advance(10s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.cluster.knows(scene.world.disk.records.front().user, scene.world.disk.keys.at(kId)));
  CHECK(scene.world.disk.records.front().user == "node");
  scene.world.disk.state = Disk::State::good;
  scene.cut_off();
  scene.write_all();
  scene.loop.advance(10s);
  scene.is_kept_as_a_pair();
}

TEST_CASE("a credential that the cluster takes after the next agent got the files is not written to them") {
  Rotated scene;
  scene.rotate();
  scene.world.cluster.slow = 4500ms;
  asio::co_spawn(scene.loop.io, scene.world.agent.shell().want(kId, scene.again(), {}), asio::detached);
  scene.loop.advance(1s);
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  scene.world.agent.node.has_lock = nullptr;
  scene.loop.advance(20s);
  CHECK(scene.world.disk.records.front().user == "node");
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("an agent that leaves while it waits for a Secret asks the cluster nothing more") {
  Rotated scene;
  scene.rotate();
  scene.tell_secret(kRotated);
  scene.world.secret_takes = 8s;
  scene.world.calls.error = Error{errc::permission_denied, "denied"};
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "refresh") scene.world.calls.fail_at = 1;
  };
  asio::co_spawn(scene.loop.io, scene.world.agent.shell().want(kId, plan::Expanded{kPath}, {}), asio::detached);
  scene.loop.advance(1s);
  REQUIRE(scene.world.secret_asked == 1);
  REQUIRE(scene.loop.run(scene.world.agent.quiesce()));
  int asked = 0;
  scene.world.calls.before_call = [&](const std::string&) { ++asked; };
  scene.loop.advance(20s);
  CHECK(asked == 0);
}

TEST_CASE("a stage of a volume that nobody serves goes by its own user, and keeps it with its key") {
  Rotated scene;
  scene.world.agent.kill();
  scene.rotate();
  scene.remove_old();
  scene.world.agent.start();
  CHECK(scene.want(scene.again()) == errc::ok);
  CHECK(scene.device().alive);
  scene.is_kept_as_a_pair();
}

TEST_CASE("an agent that dies at any call of a stage under a new user leaves a user and a key that belong together",
          "[failure:220]") {
  for (int at = 1;; ++at) {
    Rotated scene;
    scene.rotate();
    scene.world.calls.crash_at = at;
    bool died = false;
    try {
      static_cast<void>(scene.world.agent.want(kId, scene.again()));
    } catch (const Crash&) {
      died = true;
    }
    scene.world.calls.crash_at = 0;
    INFO("call " << at);
    CHECK(scene.world.cluster.knows(scene.world.disk.records.front().user, scene.world.disk.keys.at(kId)));
    if (!died) break;
  }
}

TEST_CASE("a volume of the kernel client is mapped under the user of its last stage") {
  Scene scene;
  scene.filled();
  auto wish = GENERATE(krbd_staged(), read_only());
  REQUIRE(scene.want(wish) == errc::ok);
  wish.credential = kRotated;
  scene.world.cluster.users = {{kRotated.user, kRotated.key}};
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.world.disk.records.front().user == kRotated.user);
  CHECK(scene.world.disk.keys.at(kId) == kRotated.key);
  REQUIRE(scene.want(unstaged()) == errc::ok);
  CHECK(scene.want(wish) == errc::ok);
}

TEST_CASE("a kernel's volume whose key file is gone takes its stage's user and key only if the cluster does",
          "[failure:20]") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  const bool known = GENERATE(false, true);
  CAPTURE(known);
  if (known) scene.world.cluster.users[kRotated.user] = kRotated.key;
  scene.world.disk.keys.clear();
  scene.world.agent.kill();
  scene.world.agent.start(true);
  auto wish = krbd_staged();
  wish.credential = kRotated;
  wish.claim.volume = "pv-1";  // so that the record is written
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.want(published()) == errc::ok);
  CHECK(scene.world.disk.records.front().user == (known ? kRotated.user : krbd_staged().credential.user));
  CHECK(scene.world.disk.keys.contains(kId) == known);
  const auto told = [](const auto& notice) { return notice.second.reason == "CredentialRefused"; };
  CHECK(std::ranges::any_of(scene.world.notices, told) == !known);
  CHECK(scene.loop.run(scene.world.agent.quiesce()));
}

// peers P5
TEST_CASE("a volume whose user the cluster refuses is healed by what its Secret has now", "[failure:220]") {
  Rotated scene;
  scene.rotate();
  scene.remove_old();
  scene.tell_secret(kRotated);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.device().alive);
  scene.is_kept_as_a_pair();
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.secret_asked == 1);
}

TEST_CASE("the Secret is asked only after the cluster has refused the user and key that are here") {
  Rotated scene;
  scene.tell_secret(kRotated);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  CHECK(scene.world.secret_asked == 0);
}

TEST_CASE("an agent that starts without a volume's key file heals the volume by its Secret, and keeps what it found",
          "[failure:20]") {
  Rotated scene;
  const bool renamed = GENERATE(false, true);
  if (renamed) scene.rotate();
  if (renamed) scene.remove_old();
  const auto credential = renamed ? kRotated : staged_wish(kId).credential;
  scene.tell_secret(credential);
  scene.world.disk.keys.clear();
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.write_all();
  scene.loop.advance(10s);
  CHECK(scene.waiting() == 0);
  CHECK(scene.world.kernel.errors == 0);
  CHECK(scene.world.disk.records.front().user == credential.user);
  CHECK(scene.world.disk.keys.at(kId) == credential.key);
}

TEST_CASE("a volume whose key file is gone names the file and the way out if no Secret has its key", "[failure:20]") {
  Rotated scene;
  scene.world.disk.keys.clear();
  SECTION("there is no API server") {
    scene.kill_and_start();
    CHECK(scene.want(plan::Healed{}) == errc::unavailable);
    CHECK_THAT(scene.error(), ContainsSubstring("/keys/image-1 does not exist: stage it again") &&
                                  ContainsSubstring("No API server knows its Secret"));
  }
  SECTION("it cannot be read") {
    scene.world.stage_secret = {"Secret ceph/node", std::nullopt, "forbidden"};
    scene.kill_and_start();
    CHECK(scene.want(plan::Healed{}) == errc::unavailable);
    CHECK_THAT(scene.error(), ContainsSubstring("/keys/image-1 does not exist: stage it again") &&
                                  ContainsSubstring("Secret ceph/node cannot be asked for it: forbidden"));
  }
  SECTION("the cluster refuses it") {
    scene.tell_secret(kRotated);
    scene.kill_and_start();
    CHECK(scene.want(plan::Healed{}) == errc::unauthenticated);
    CHECK_THAT(scene.error(), ContainsSubstring("Secret ceph/node has this user and key too: correct it"));
  }
  CHECK(scene.want(staged_wish(kId)) == errc::ok);
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("a refusal says whether the Secret's own user and key were refused too, and what to do", "[failure:220]") {
  Rotated scene;
  scene.remove_old();
  scene.kill_and_start();
  SECTION("the same") {
    scene.tell_secret(staged_wish(kId).credential);
    CHECK(scene.want(plan::Healed{}) == errc::unauthenticated);
    CHECK_THAT(scene.error(), ContainsSubstring("Secret ceph/node has this user and key too: correct it"));
  }
  SECTION("others") {
    scene.tell_secret(kRotated);
    CHECK(scene.want(plan::Healed{}) == errc::unauthenticated);
    CHECK_THAT(scene.error(), ContainsSubstring("another user or key (user node.1), and the cluster refuses them too"));
  }
  SECTION("it cannot be read") {
    scene.world.stage_secret = {"Secret ceph/node", std::nullopt, "forbidden"};
    CHECK(scene.want(plan::Healed{}) == errc::unauthenticated);
    CHECK_THAT(scene.error(), ContainsSubstring("Secret ceph/node cannot be asked for others: forbidden"));
  }
  SECTION("there is no API server") {
    CHECK(scene.want(plan::Healed{}) == errc::unauthenticated);
    CHECK_THAT(scene.error(), ContainsSubstring("No API server knows its Secret"));
  }
  CHECK(scene.world.disk.records.front().user == "node");
  // Nothing is lost by the tries.
  scene.world.cluster.users["node"] = staged_wish(kId).credential.key;
  CHECK(scene.want(plan::Healed{}) == errc::ok);
}

TEST_CASE("a user without rights is replaced by the one that its Secret names now") {
  Rotated scene;
  scene.rotate();
  scene.world.cluster.without_caps.insert("node");
  scene.tell_secret(kRotated);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::ok);
  scene.is_kept_as_a_pair();
}

TEST_CASE("a user of the Secret that can only read does not heal a volume that is written to, and the error says so") {
  Rotated scene;
  scene.rotate();
  scene.remove_old();
  scene.world.cluster.readers.insert(kRotated.user);
  scene.tell_secret(kRotated);
  scene.kill_and_start();
  CHECK(scene.want(plan::Healed{}) == errc::permission_denied);
  CHECK_THAT(scene.error(), ContainsSubstring("another user or key (user node.1), and the cluster refuses them too"));
}
