// What KMSs ask of the API server, against a scripted one.
#include "kms_kubernetes.hpp"

#include "support/api_client.hpp"
#include "support/api_server.hpp"

using namespace corbd;
using test::ApiServer;

namespace {

struct Scene {
  explicit Scene(unsigned status, std::string body)
      : server([=](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(status, body); }),
        client(server.access()),
        kubernetes(&client.api()) {}
  ApiServer server;
  test::ApiClient client;
  agent::KmsKubernetes kubernetes;
};

}  // namespace

TEST_CASE("a KMS gets the decoded fields of a Secret, and the texts of a ConfigMap") {
  Scene secrets(200, R"({"metadata": {"name": "s"}, "data": {"token": "aHZzLg=="}})");
  CHECK(secrets.client.run(secrets.kubernetes.secret("team", "s", {})).value().at("token").reveal() == "hvs.");
  CHECK(secrets.server.requests().front().target == "/api/v1/namespaces/team/secrets/s");
  Scene maps(200, R"({"metadata": {"name": "c"}, "data": {"vaultAddress": "https://v"}})");
  CHECK(maps.client.run(maps.kubernetes.config_map("team", "c", {})).value().at("vaultAddress") == "https://v");
}

TEST_CASE("a KMS gets a token that is made for a service account") {
  Scene scene(201, R"({"status": {"token": "canary"}})");
  CHECK(scene.client.run(scene.kubernetes.account_token("team", "sa", {"vault"}, {})).value().reveal() == "canary");
  const auto asked = scene.server.requests().front();
  CHECK(asked.method == "POST");
  CHECK(asked.target == "/api/v1/namespaces/team/serviceaccounts/sa/token");
  CHECK_THAT(asked.body, ContainsSubstring(R"("audiences":["vault"])"));
}

TEST_CASE("what is missing at the API server is told as such, with its name, and so is a missing right") {
  Scene absent(
      404, R"({"kind": "Status", "reason": "NotFound", "message": "no", "details": {"name": "s", "kind": "secrets"}})");
  const auto missing = absent.client.run(absent.kubernetes.secret("team", "s", {}));
  CHECK(missing.error().code == errc::not_found);
  CHECK_THAT(missing.error().text, ContainsSubstring("Secret team/s"));
  Scene forbidden(403, R"({"kind": "Status", "reason": "Forbidden"})");
  const auto refused = forbidden.client.run(forbidden.kubernetes.account_token("team", "sa", {}, {}));
  CHECK(refused.error().code == errc::permission_denied);
  CHECK_THAT(refused.error().text, ContainsSubstring("'create' on 'serviceaccounts/token'"));
}

TEST_CASE("a tenant or a name that is none of Kubernetes is not asked for") {
  Scene scene(200, "{}");
  for (const char* name : {"", "..", "a/b", "a%2f", "Team", "a b"}) {
    CHECK(scene.client.run(scene.kubernetes.secret(name, "s", {})).error().code == errc::failed_precondition);
    CHECK(scene.client.run(scene.kubernetes.config_map("team", name, {})).error().code == errc::failed_precondition);
    CHECK(scene.client.run(scene.kubernetes.account_token(name, "sa", {}, {})).error().code ==
          errc::failed_precondition);
  }
  CHECK(scene.server.requests().empty());
}

TEST_CASE("without an API server a KMS is told why there is none") {
  agent::KmsKubernetes kubernetes(Error{errc::failed_precondition, "this is not a pod"});
  test::Loop loop;
  CHECK_THAT(loop.run(kubernetes.secret("team", "s", {})).error().text, ContainsSubstring("this is not a pod"));
}
