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
  fence::Fencer fencer{loop.clock, monitors, [](const std::string& cluster) -> result<std::vector<std::string>> {
                         if (cluster != "lab") return Error{errc::not_found, "no cluster " + cluster};
                         return std::vector<std::string>{"10.0.0.1"};
                       }};
  fence::Asker asker{"lab", "admin", Secret("key")};

  result<fence::Report> fence(Texts blocks) {
    return test::Started<result<fence::Report>>(loop.io, fencer.fence(asker, {std::move(blocks)}, {})).get();
  }
  result<fence::Report> unfence(Texts blocks) {
    return test::Started<result<fence::Report>>(loop.io, fencer.unfence(asker, {std::move(blocks)}, {})).get();
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a fence is made once, lasts five years, and is taken away again") {
  Scene scene;
  CHECK(scene.fence({"10.0.0.7/32", "fd00::/64"}));
  CHECK(scene.monitors.listed() == Texts{"10.0.0.7/32", "fd00::/64"});
  CHECK(scene.monitors.lasting == 157784760s);
  CHECK(scene.fence({"10.0.0.7/32"}).value().changed.empty());
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

TEST_CASE("monitors without ranges get each address of a block") {
  Scene scene;
  scene.monitors.ranges = false;
  CHECK(scene.fence({"10.0.0.6/31"}));
  CHECK(scene.monitors.listed() == Texts{"10.0.0.6", "10.0.0.7"});
  CHECK(scene.unfence({"10.0.0.6/31"}));
  CHECK(scene.monitors.listed().empty());
}

TEST_CASE("a fence that was made by half says which half, and a repeat finishes it") {
  Scene scene;
  scene.monitors.refuses = "10.0.0.8/32";
  const auto half = scene.fence({"10.0.0.7/32", "10.0.0.8/32", "10.0.0.9/32"});
  CHECK(half.error().code == errc::permission_denied);
  CHECK(has(half.error().text, "fenced: 10.0.0.7/32, 10.0.0.9/32; not fenced: 10.0.0.8/32: no caps"));
  scene.monitors.refuses.clear();
  CHECK(scene.fence({"10.0.0.7/32", "10.0.0.8/32", "10.0.0.9/32"}).value().changed.size() == 1);
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

TEST_CASE("a request that names no cluster, an unknown one, or nobody to ask as, changes nothing") {
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

TEST_CASE("a dry run looks and changes nothing") {
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
