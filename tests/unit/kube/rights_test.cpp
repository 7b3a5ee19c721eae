#include "corbd/kube/rights.hpp"

#include <boost/json/parse.hpp>

#include "scene.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using test::always;
using test::ApiServer;
using Scene = test::ApiScene;

namespace {

std::vector<kube::Allowed> reviewed(Scene& scene) {
  return scene.run(kube::review_rights(scene.api(), "rbd.csi.ceph.com", {}));
}

}  // namespace

TEST_CASE("each right is asked about in RBAC's words, and the driver's object by its name") {
  Scene scene(always(201, R"({"status":{"allowed":true}})"));
  const auto all = reviewed(scene);
  const auto asked = scene.server.requests();
  REQUIRE(all.size() == kube::rights().size());
  REQUIRE(asked.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].yes == true);
    CHECK(asked[i].target == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    const auto attributes = boost::json::parse(asked[i].body).at("spec").at("resourceAttributes").as_object();
    CHECK(attributes.at("verb").as_string() == all[i].right->verb);
    CHECK(attributes.at("group").as_string() == all[i].right->group);
    CHECK(attributes.at("resource").as_string() == all[i].right->resource);
    CHECK(attributes.contains("name") == all[i].right->of_this_driver);
  }
}

TEST_CASE("a refused right is told apart from one that the server says nothing about") {
  Scene refuses(always(201, R"({"status":{"allowed":false}})"));
  for (const auto& one : reviewed(refuses)) CHECK(one.yes == false);
  Scene says_nothing(always(201, "{}"));
  for (const auto& one : reviewed(says_nothing)) CHECK_FALSE(one.yes);
}

TEST_CASE("only the right to Secrets may be granted by namespace") {
  for (const auto& right : kube::rights()) CHECK(right.by_namespace == (right.resource == "secrets"));
}

TEST_CASE("a server that does not answer is asked once") {
  Scene scene(always(500, "boom"));
  const auto all = reviewed(scene);
  REQUIRE(all.size() == 1);
  CHECK_FALSE(all[0].yes);
  CHECK_THAT(all[0].text, ContainsSubstring("boom") || ContainsSubstring("500"));
}

TEST_CASE("a server is not checked again while its last answer is recent enough") {
  Scene scene(test::thing);
  REQUIRE(scene.run(scene.api().look(5min, {})));
  CHECK(scene.server.requests().back().target == "/version");
  REQUIRE(scene.run(scene.api().look(5min, {})));
  CHECK(scene.server.requests().size() == 1);
  REQUIRE(scene.run(scene.api().look(0s, {})));
  REQUIRE(scene.get());
  CHECK(scene.server.requests().size() == 3);
}

TEST_CASE("a server that left a request unanswered is checked again, however recently it answered another") {
  Scene scene([](const ApiServer::Request& request, ApiServer::Peer& peer) {
    if (request.target.ends_with("/gone")) {
      peer.send("HTTP/1.1 200 x\r\nContent-Length: 100\r\n\r\n{");
      peer.close();
      return;
    }
    peer.answer(request.target.ends_with("/absent") ? 404 : 200, "{}");
  });
  REQUIRE(scene.run(scene.api().look(5min, {})));
  REQUIRE_FALSE(scene.get("absent"));
  REQUIRE(scene.run(scene.api().look(5min, {})));
  CHECK(scene.server.requests().size() == 2);
  REQUIRE_FALSE(scene.get("gone"));
  const auto before = scene.server.requests().size();
  REQUIRE(scene.run(scene.api().look(5min, {})));
  CHECK(scene.server.requests().size() == before + 1);
}

TEST_CASE("a server counts as answering if it knows the caller, even if it grants nothing") {
  Scene refuses(always(403, R"({"kind":"Status","reason":"Forbidden"})"));
  CHECK(refuses.run(refuses.api().look(5min, {})));
  // The API server has a version. What has none, or refuses without a Status, is something else.
  for (const unsigned status : {401u, 403u, 404u, 500u}) {
    Scene scene(always(status, ""));
    CHECK_FALSE(scene.run(scene.api().look(5min, {})));
  }
}
