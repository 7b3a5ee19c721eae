#include "corbd/kube/access.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;

namespace {

std::string config(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: other\n  context: {cluster: x, user: "
         "y}\n- name: here\n"
         "  context: {cluster: lab, user: me}\nclusters:\n- name: lab\n  cluster: {" +
         cluster + "}\nusers:\n- name: me\n  user: {" + user + "}\n";
}

std::string refused(const std::string& text) {
  const auto access = kube::parse_kubeconfig(text, "/etc/k/");
  return access ? "it was taken" : access.error().text;
}

}  // namespace

TEST_CASE("a pod's service account gives the access to the API server") {
  std::map<std::string, std::string> variables{{"KUBERNETES_SERVICE_HOST", "fd00::1"},
                                               {"KUBERNETES_SERVICE_PORT", "6443"}};
  const auto environment = [&](const char* name) { return variables[name]; };
  const auto access = kube::in_cluster(environment);
  REQUIRE(access);
  CHECK(access->host == "fd00::1");
  CHECK(access->port == 6443);
  CHECK(access->token_file == "/var/run/secrets/kubernetes.io/serviceaccount/token");
  http::Peer peer;
  peer.host = access->host;
  peer.port = access->port;
  CHECK(peer.text() == "[fd00::1]:6443");
  variables.erase("KUBERNETES_SERVICE_HOST");
  CHECK(kube::in_cluster(environment).error().code == errc::failed_precondition);
}

TEST_CASE("a kubeconfig's current context gives the access to the API server") {
  const auto access = kube::parse_kubeconfig(
      config("server: 'https://[::1]:6443/', certificate-authority: ca.pem", "token: abc"), "/etc/k/");
  REQUIRE(access);
  CHECK(access->host == "::1");
  CHECK(access->port == 6443);
  CHECK(access->authorities_file == "/etc/k/ca.pem");
  CHECK(access->token.reveal() == "abc");
  CHECK_FALSE(access->insecure);
}

TEST_CASE("a kubeconfig may contain certificates, name files, or turn verification off") {
  const auto access = kube::parse_kubeconfig(config("server: https://api, insecure-skip-tls-verify: true",
                                                    "client-certificate-data: YWI=, client-key: /k, tokenFile: /t"),
                                             "");
  REQUIRE(access);
  CHECK(access->port == 443);
  CHECK(access->insecure);
  CHECK(access->certificate == "ab");
  CHECK(access->key_file == "/k");
  CHECK(access->token_file == "/t");
}

TEST_CASE("the error names what a kubeconfig lacks or what is not supported") {
  CHECK_THAT(refused(":\t-"), ContainsSubstring("not YAML"));
  CHECK_THAT(refused("[]"), ContainsSubstring("not a kubeconfig"));
  CHECK_THAT(refused("current-context: a"), ContainsSubstring("no context 'a'"));
  CHECK_THAT(refused(config("server: ftp://x", "token: a")), ContainsSubstring("ftp://x"));
  CHECK_THAT(refused(config("server: https://x/path", "token: a")), ContainsSubstring("path"));
  CHECK_THAT(refused(config("server: https://x:y", "token: a")), ContainsSubstring("port"));
  CHECK_THAT(refused(config("server: https://x", "exec: {command: aws}")), ContainsSubstring("exec"));
  CHECK(kube::parse_kubeconfig(config("server: https://x", "exec: null, token: a"), ""));
  CHECK_THAT(refused(config("server: https://x", "token: a, as: other")), ContainsSubstring("(as)"));
  CHECK_THAT(refused(config("server: https://x, proxy-url: 'http://p'", "token: a")), ContainsSubstring("proxy-url"));
  CHECK_THAT(refused(config("server: https://x, tls-server-name: y", "token: a")),
             ContainsSubstring("tls-server-name"));
  CHECK_THAT(refused(config("server: https://x, certificate-authority-data: '!'", "token: a")),
             ContainsSubstring("base64"));
}

TEST_CASE("a token is read from its file without the white space around it") {
  const test::Folder folder;
  kube::Access access;
  access.token_file = folder.path() + "/token";
  CHECK_FALSE(kube::read_token(access));
  std::ofstream(access.token_file) << "\n abc \n";
  CHECK(kube::read_token(access)->reveal() == "abc");
}

TEST_CASE("a token's file is looked for beside the kubeconfig, and outranks a token in it, as in client-go") {
  const test::Folder folder;
  const auto access =
      kube::parse_kubeconfig(config("server: https://api", "token: text, tokenFile: keys/token"), folder.path() + "/");
  REQUIRE(access);
  CHECK(access->token_file == folder.path() + "/keys/token");
  CHECK(kube::read_token(*access)->reveal() == "text");
  std::filesystem::create_directory(folder.path() + "/keys");
  std::ofstream(access->token_file) << "file";
  CHECK(kube::read_token(*access)->reveal() == "file");
}
