// Which image is mapped by the kernel's client, with what, and which not.
#include "krbd.hpp"

using namespace corbd;
using namespace corbd::test;
using plan::Wish;
using namespace std::chrono_literals;

namespace {

const Secret kNewKey(std::string("AgAAAAAAAAAAAAAA"));  // of type aes256k

}  // namespace

TEST_CASE(
    "an image with a feature that the kernel does not know goes to nbd where that is allowed, and is refused by its "
    "feature elsewhere",
    "[failure:109]") {
  Scene scene;
  scene.image().features |= 64;
  auto wish = krbd_staged();
  const auto refused = error_of(scene, wish);
  CHECK_THAT(refused, ContainsSubstring("journaling"));
  CHECK(scene.world.disk.records.empty());
  wish.mounter = cephcsi::Mounter::krbd_if_able;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::nbd);
}

TEST_CASE(
    "a key that the kernel does not know takes a volume to nbd where that is allowed, and is refused without a trace "
    "elsewhere",
    "[failure:109]") {
  Scene scene;
  auto wish = krbd_staged();
  wish.credential.key = scene.world.cluster.users.at("node") = kNewKey;
  CHECK_THAT(error_of(scene, wish), ContainsSubstring("the type of the key"));
  CHECK(scene.world.disk.records.empty());
  CHECK(scene.world.kernel.devices.empty());
  wish.mounter = cephcsi::Mounter::krbd_if_able;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::nbd);
  // A kernel that came meanwhile does not change who serves it.
  scene.world.kernel.rbd_aes256k = true;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::nbd);
}

TEST_CASE("a volume that the kernel serves stays the kernel's when its user gets a key that the kernel does not know") {
  Scene scene;
  auto wish = krbd_staged();
  wish.mounter = cephcsi::Mounter::krbd_if_able;
  REQUIRE(scene.want(wish) == errc::ok);
  wish.credential.key = scene.world.cluster.users.at("node") = kNewKey;
  CHECK(scene.want(wish) == errc::ok);
  is_staged(scene.world);
}

TEST_CASE("a volume for the kernel client is refused without the rbd module, even if another mounter may try",
          "[failure:110]") {
  Scene scene;
  scene.world.kernel.rbd_module = false;
  auto wish = krbd_staged();
  wish.mounter = GENERATE(cephcsi::Mounter::krbd, cephcsi::Mounter::krbd_if_able);
  CHECK_THAT(error_of(scene, wish), ContainsSubstring("modprobe rbd"));
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE(
    "an image that another client has open is not mapped, and the refusal names the client and how long it has "
    "waited",
    "[failure:106]") {
  Scene scene;
  scene.image().watchers.insert(kStranger);
  CHECK(scene.want(krbd_staged()) == errc::in_use);
  scene.loop.advance(std::chrono::seconds(40));
  const auto refused = error_of(scene, krbd_staged());
  CHECK_THAT(refused, ContainsSubstring(kStranger));
  CHECK_THAT(refused, ContainsSubstring("40 s"));
  CHECK(scene.world.kernel.devices.empty());
  scene.image().watchers.clear();
  CHECK(scene.want(krbd_staged()) == errc::ok);
}

TEST_CASE("of two nodes that map an image at once, one that sees the other unmaps it before anything is written",
          "[failure:111]") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "map krbd") scene.image().watchers.insert(kStranger);
  };
  CHECK(scene.want(krbd_staged()) == errc::in_use);
  CHECK(scene.world.kernel.devices.empty());
  CHECK(scene.image().generation == 0);
  CHECK(scene.image().watchers == std::set<std::string>{kStranger});
}

TEST_CASE("a volume in use is not unmapped because another client has opened its image") {
  Scene scene;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.image().watchers.insert(kStranger);
  auto elsewhere = krbd_staged();
  elsewhere.path += "-2";
  static_cast<void>(scene.world.agent.want(kId, elsewhere));
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("a raw block volume that many nodes write is mapped beside them") {
  Scene scene;
  scene.image().shared = true;
  scene.image().watchers.insert(kStranger);
  auto wish = krbd_staged(true);
  wish.capability.shared = true;
  CHECK(scene.want(wish) == errc::ok);
  CHECK(scene.device().kind == device::Kind::krbd);
}

TEST_CASE("the lock of a client that died is broken before the map, and its client is cut off for good first",
          "[failure:107]") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = kStranger;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "break lock") CHECK(scene.world.cluster.has_entry(kStranger));
    if (call == "map krbd") CHECK(scene.image().lock_owner.empty());
  };
  CHECK(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.world.cluster.has_entry(kStranger));
}

TEST_CASE("a write of a client that died with its lock does not land hours after the kernel has mapped the image",
          "[failure:107][rule:2]") {
  Scene scene;
  scene.filled();
  scene.image().lock_owner = kStranger;
  REQUIRE(scene.want(krbd_staged()) == errc::ok);
  scene.world.cluster.entries_age(6 * 24h);
  const auto before = scene.image().blocks;
  scene.world.cluster.late_write("id-1", kStranger);
  CHECK(scene.image().blocks == before);
  for (const auto& rule : scene.world.broken_rules) FAIL_CHECK(rule);
}

TEST_CASE("an image that was made again under its name is not mapped for the old one") {
  Scene scene;
  scene.world.calls.before_call = [&](const std::string& call) {
    if (call == "map krbd") scene.image().id = "id-2";
  };
  CHECK(scene.want(krbd_staged()) == errc::not_found);
  CHECK(scene.world.kernel.devices.empty());
}

TEST_CASE("a map that outlasts its caller is awaited, not repeated", "[failure:112]") {
  Scene scene;
  scene.world.calls.delayed = "map krbd";
  CHECK(scene.want(krbd_staged()) != errc::ok);
  CHECK(scene.want(krbd_staged()) != errc::ok);
  scene.loop.advance(std::chrono::seconds(60));
  CHECK(scene.want(krbd_staged()) == errc::ok);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("two volumes on one image are not both given to the kernel, which could not tell their devices apart") {
  Scene scene;
  scene.filled();
  REQUIRE(scene.want(read_only()) == errc::ok);
  auto other = read_only();
  other.path += "-2";
  CHECK(scene.want(other, "image-2") == errc::in_use);
  CHECK(scene.world.kernel.devices.size() == 1);
}

TEST_CASE("the volume's options and the node's CRUSH location are passed to the kernel") {
  Scene scene;
  auto wish = krbd_staged();
  wish.source.kernel.map = "queue_depth=64";
  scene.world.disk.reads.location = "host:a|zone:b";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.rbd_options == "queue_depth=64,read_from_replica=localize,crush_location=host:a|zone:b");
}

TEST_CASE("the node's CRUSH location is passed to librbd") {
  Scene scene;
  scene.world.disk.reads.location = "host:a|zone:b";
  REQUIRE(scene.want(staged_wish(kId)) == errc::ok);
  CHECK(scene.world.cluster.options_asked ==
        std::set<std::string>{"crush_location=host=a zone=b", "rbd_read_from_replica_policy=localize"});
}

TEST_CASE("the cluster's default map options come before the volume's, and make no writable volume read-only",
          "[failure:242]") {
  Scene scene;
  auto wish = krbd_staged();
  wish.source.kernel.map = "queue_depth=64";
  scene.world.cluster.default_map_options = "ms_mode=secure,ro";
  REQUIRE(scene.want(wish) == errc::ok);
  CHECK(scene.world.kernel.rbd_options == "ms_mode=secure,ro,rw,queue_depth=64");
}

TEST_CASE("default map options that only the agent may give are refused by their name", "[failure:242]") {
  Scene scene;
  scene.world.cluster.default_map_options = "name=admin";
  CHECK_THAT(error_of(scene, krbd_staged()), ContainsSubstring("rbd_default_map_options") && ContainsSubstring("name"));
  CHECK(scene.world.kernel.devices.empty());
}
