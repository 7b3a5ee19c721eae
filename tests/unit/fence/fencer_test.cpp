// What a fencing call does to a cluster, and what it says of a half of it.
#include "corbd/fence/fencer.hpp"

#include "support/catch.hpp"
#include "support/helpers.hpp"
#include "support/monitors.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using image::AddressBlock;
using Texts = std::vector<std::string>;

namespace {

struct Scene {
  test::Loop loop;
  test::Monitors monitors;
  fence::Fencer fencer{monitors,
                       [](const std::string& cluster) -> result<std::vector<std::string>> {
                         if (cluster != "lab") return Error{errc::not_found, "no cluster " + cluster};
                         return std::vector<std::string>{"10.0.0.1"};
                       },
                       [this](Until) { return look(); }};
  fence::NodeWriters node;
  std::function<void()> meanwhile = [] {};  ///< somebody else does that during a look at the node
  fence::Asker asker{"lab", "admin", Secret("key")};

  result<fence::Report> fence(Texts blocks, std::chrono::seconds lasts = fence::kLasting) {
    return test::Started<result<fence::Report>>(loop.io, fencer.fence(asker, {std::move(blocks), lasts}, {})).get();
  }
  task<fence::NodeWriters> look() {
    meanwhile();
    co_return node;
  }
  result<fence::SelfCheck> self_check(bool unfence) {
    return test::Started<result<fence::SelfCheck>>(loop.io, fencer.self_check(asker, unfence, {})).get();
  }
  /// This node is fenced, and its client was cut off and has ended.
  void fence_this_node() {
    CHECK(fence({"10.0.0.7/32"}, 24h));
    monitors.now.own = {"10.0.0.7:0/9"};
    monitors.clients = image::OwnClients{.known = {"10.0.0.7:0/5"}};
  }
  result<fence::Report> unfence(Texts blocks) {
    return test::Started<result<fence::Report>>(loop.io, fencer.unfence(asker, {std::move(blocks)}, {})).get();
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a fence lasts five years, and is taken away again") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.7/32", "fd00::/64"}));
  CHECK(scene.monitors.listed() == Texts{"10.0.0.7/32", "fd00::/64"});
  CHECK(scene.monitors.lasting == 157784760s);
  CHECK(scene.unfence({"10.0.0.7/32"}));
  CHECK(scene.monitors.listed() == Texts{"fd00::/64"});
  CHECK(scene.unfence({"10.0.0.7/32"}).value().changed.empty());
}

TEST_CASE("a fence that another node has made is answered only after this node's clients have the map") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.7/32"}));
  CHECK(scene.fence({"10.0.0.7/32"}));
  CHECK(scene.monitors.calls == 2);
}

TEST_CASE("a repeated fence keeps its end, and a request for a longer one is refused", "[failure:164]") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.7/32"}, 24h));
  CHECK(scene.fence({"10.0.0.7/32"}, 1h));
  scene.monitors.pass(10h);
  const auto refused = scene.fence({"10.0.0.7/32"}, 24h);
  CHECK(refused.error().code == errc::failed_precondition);
  CHECK(scene.monitors.left("10.0.0.7/32") == 14h);
}

TEST_CASE("a fence of several years may be repeated until its last week", "[failure:164]") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.7/32"}));
  scene.monitors.pass(fence::kLasting - 7 * 24h);
  CHECK(scene.fence({"10.0.0.7/32"}));
  scene.monitors.pass(24h);
  CHECK(scene.fence({"10.0.0.7/32"}).error().code == errc::failed_precondition);
}

TEST_CASE("an address stays fenced for its own time when the wider fence around it is taken away",
          "[failure:164][rule:2]") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.0/24"}, 7 * 24h));
  CHECK(scene.fence({"10.0.0.7/32"}, 24h));
  CHECK(scene.unfence({"10.0.0.0/24"}));
  scene.monitors.pass(23h);
  CHECK(scene.monitors.now.find("10.0.0.7:0/1") != nullptr);
  CHECK(scene.monitors.now.find("10.0.0.8:0/1") == nullptr);
}

TEST_CASE("an address stays fenced when the wider fence around it ends first", "[failure:164]") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.0/24"}, 1h));
  CHECK(scene.fence({"10.0.0.7/32"}, 24h));
  scene.monitors.pass(2h);
  CHECK(scene.monitors.now.find("10.0.0.7:0/1") != nullptr);
}

TEST_CASE("a fence can be taken away before and after the wider one around it, and after its own end",
          "[failure:164]") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.0/24"}));
  CHECK(scene.fence({"10.0.0.7/32"}, 24h));
  const auto gone = scene.unfence({"10.0.0.7/32"});
  REQUIRE(gone);
  CHECK(gone->changed.size() == 1);
  CHECK(gone->remain.size() == 1);
  CHECK(scene.unfence({"10.0.0.7/32"}).value().changed.empty());
  CHECK(scene.monitors.listed() == Texts{"10.0.0.0/24"});
}

TEST_CASE("monitors without ranges get each address of a block") {
  Scene scene;
  scene.monitors.ranges = false;
  CHECK(scene.fence({"10.0.0.6/31"}));
  CHECK(scene.monitors.listed() == Texts{"10.0.0.6", "10.0.0.7"});
  CHECK(scene.unfence({"10.0.0.6/31"}));
  CHECK(scene.monitors.listed().empty());
}

TEST_CASE("a partly made fence names both halves, and a repeat finishes it") {
  Scene scene;
  scene.monitors.refuses = "10.0.0.8/32";
  const auto half = scene.fence({"10.0.0.7/32", "10.0.0.8/32", "10.0.0.9/32"});
  CHECK(half.error().code == errc::permission_denied);
  CHECK(has(half.error().text, "fenced: 10.0.0.7/32, 10.0.0.9/32; not fenced: 10.0.0.8/32: no caps"));
  scene.monitors.refuses.clear();
  CHECK(scene.fence({"10.0.0.7/32", "10.0.0.8/32", "10.0.0.9/32"}));
  CHECK(scene.monitors.listed().size() == 3);
  scene.monitors.refuses = "10.0.0.9/32";
  CHECK(has(scene.unfence({"10.0.0.7/32", "10.0.0.9/32"}).error().text,
            "unfenced: 10.0.0.7/32; not unfenced: 10.0.0.9/32"));
}

TEST_CASE("an address of an expanded block that failed is named") {
  Scene scene;
  scene.monitors.ranges = false;
  scene.monitors.refuses = "10.0.0.7";
  const auto half = scene.fence({"10.0.0.6/31"});
  CHECK(has(half.error().text, "fenced: 10.0.0.6; not fenced: 10.0.0.7"));
}

TEST_CASE("a repeat for monitors without ranges goes on where the call before ended") {
  Scene scene;
  scene.monitors.ranges = false;
  scene.monitors.refuses = "10.0.0.11";
  CHECK_FALSE(scene.fence({"10.0.0.8/29"}, 24h));
  scene.monitors.refuses.clear();
  scene.monitors.pass(30min);
  scene.monitors.added = 0;
  CHECK(scene.fence({"10.0.0.8/29"}, 24h));
  // The first, by which the monitors' clock is known, and the one that was refused.
  CHECK(scene.monitors.added == 2);
  for (const auto& entry : scene.monitors.now.entries) CHECK(scene.monitors.left(entry.text()) >= 24h);
}

TEST_CASE("a request without a known cluster or a Ceph user changes nothing") {
  Scene scene;
  scene.asker.cluster_id = "";
  CHECK(scene.fence({"10.0.0.7/32"}).error().code == errc::invalid_argument);
  scene.asker.cluster_id = "other";
  CHECK(scene.fence({"10.0.0.7/32"}).error().code == errc::not_found);
  scene.asker = {"lab", "", Secret("key")};
  CHECK(scene.fence({"10.0.0.7/32"}).error().code == errc::invalid_argument);
  scene.asker = {"lab", "admin", Secret()};
  CHECK(scene.fence({"10.0.0.7/32"}).error().code == errc::invalid_argument);
  CHECK(scene.monitors.calls == 0);
}

TEST_CASE("a dry run reads the blocklist and changes nothing") {
  Scene scene;
  scene.monitors.now.own = {"10.0.0.7:0/5"};
  fence::Order order{{"10.0.0.7/32"}};
  order.dry_run = true;
  const auto seen =
      test::Started<result<fence::Report>>(scene.loop.io, scene.fencer.fence(scene.asker, order, {})).get();
  CHECK(seen.value().changed.size() == 1);
  CHECK(scene.monitors.calls == 0);
}

TEST_CASE("the clients to fence are those that serve; without one, the client that asked") {
  Scene scene;
  scene.monitors.now.own = {"10.0.0.7:0/5", "10.0.0.7:0/6", "[fd00::7]:0/6", "10.0.0.9:0/1"};
  const auto ask = [&] {
    const auto found =
        test::Started<result<fence::Fencer::Clients>>(scene.loop.io, scene.fencer.clients(scene.asker, {})).get();
    Texts all;
    for (const auto& address : found.value().addresses) all.push_back(address.text());
    return all;
  };
  CHECK(ask() == Texts{"10.0.0.7/32", "fd00::7/128", "10.0.0.9/32"});
  scene.monitors.now.serving = {"10.0.0.7:0/6", "[fd00::7]:0/6"};
  CHECK(ask() == Texts{"10.0.0.7/32", "fd00::7/128"});
}

TEST_CASE("a fenced node that is clean is let in again by its own check, and only if that is asked for") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.0/24"}));
  scene.fence_this_node();
  const auto looked = scene.self_check(false);
  REQUIRE(looked);
  REQUIRE(looked->fences.size() == 2);
  CHECK(looked->fences.front().verdict() == fence::Verdict::unknown);
  CHECK(looked->fences.back().verdict() == fence::Verdict::clean);
  CHECK(scene.monitors.listed() == Texts{"10.0.0.0/24", "10.0.0.7/32"});
  const auto done = scene.self_check(true);
  REQUIRE(done);
  REQUIRE(done->removed.size() == 1);
  CHECK(done->removed.front().text() == "10.0.0.7/32");
  REQUIRE(done->remain.size() == 1);
  CHECK(done->remain.front().text() == "10.0.0.0/24");
  CHECK(scene.monitors.listed() == Texts{"10.0.0.0/24"});
}

TEST_CASE("a node that is not clean stays fenced, whatever is asked for", "[failure:142]") {
  Scene scene;
  scene.fence_this_node();
  scene.node.programs = {"rbd-nbd, process 7"};
  const auto done = scene.self_check(true);
  REQUIRE(done);
  CHECK(done->removed.empty());
  CHECK(done->fences.front().verdict() == fence::Verdict::unclean);
  CHECK(scene.monitors.listed() == Texts{"10.0.0.7/32"});
}

TEST_CASE("a fence that ended and was made again during the check stays", "[failure:142]") {
  Scene scene;
  scene.fence_this_node();
  scene.meanwhile = [&] { scene.monitors.now.entries.front().until += 1h; };
  const auto done = scene.self_check(true);
  REQUIRE(done);
  REQUIRE(done->fences.size() == 1);
  CHECK(done->fences.front().verdict() == fence::Verdict::unknown);
  CHECK(scene.monitors.listed() == Texts{"10.0.0.7/32"});
}

TEST_CASE("a check whose agent cannot end its own clients fails, and leaves the fence") {
  Scene scene;
  scene.fence_this_node();
  scene.monitors.clients = Error{errc::permission_denied, "no caps"};
  CHECK(scene.self_check(true).error().code == errc::permission_denied);
  CHECK(scene.monitors.listed() == Texts{"10.0.0.7/32"});
}

TEST_CASE("a program that only fences checks no node") {
  Scene scene;
  fence::Fencer only{scene.monitors,
                     [](const std::string&) -> result<std::vector<std::string>> { return Texts{"10.0.0.1"}; }};
  const auto done =
      test::Started<result<fence::SelfCheck>>(scene.loop.io, only.self_check(scene.asker, true, {})).get();
  CHECK(done.error().code == errc::unimplemented);
}
