// Tests the API client against a real API server. It shows that the scripted server of tests/support answers as a real
// one does. `scripts/lab/kubernetes env DIR` prints the variables. CORBD_LAB_KUBECONFIG says how to reach the server,
// CORBD_LAB_KUBE_NOBODY is the token of a user without rights, and CORBD_LAB_KUBE_FORGOTTEN is a version whose events
// the server has forgotten.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "corbd/kube/objects.hpp"
#include "corbd/kube/own_node.hpp"
#include "corbd/orchestrator/holder_nodes.hpp"
#include "corbd/orchestrator/startup_taint.hpp"
#include "support/api_client.hpp"
#include "support/api_server.hpp"
#include "support/folder.hpp"

using namespace corbd;
using namespace std::chrono_literals;
using boost::json::object;
using kube::Change;
using test::ApiClient;

namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Not read again after a refusal: the tests replace parts of it.
kube::Access admin() {
  auto access = kube::read_kubeconfig(env("CORBD_LAB_KUBECONFIG")).value();
  access.kubeconfig.clear();
  return access;
}

kube::Access with_token(const std::string& token) {
  auto access = admin();
  access.token = Secret(token);
  return access;
}

/// For names that no test before this one used: the server keeps what it is given.
std::string fresh(const std::string& name) { return name + "-" + std::to_string(std::random_device()()); }

const kube::Resource kNamespaces{"/api/v1/namespaces", "namespaces"};
const kube::Resource kEvents{"/api/v1/namespaces/default/events", "events"};

object node(const std::string& name, const std::string& zone) {
  return {{"metadata", {{"name", name}, {"labels", {{"zone", zone}}}}}};
}
object zone(const std::string& zone) { return {{"metadata", {{"labels", {{"zone", zone}}}}}}; }

object with_address(const std::string& address) {
  return {{"status",
           {{"addresses", boost::json::array{object{{"type", "InternalIP"}, {"address", address}}}},
            {"conditions", boost::json::array{object{{"type", "Ready"}, {"status", "False"}}}}}}};
}

std::string fresh_address() {
  std::random_device random;
  return "10." + std::to_string(random() % 256) + "." + std::to_string(random() % 256) + ".7";
}

/// Its exit code.
int kubectl(const std::string& arguments) {
  const auto program = std::filesystem::path(env("CORBD_LAB_KUBELET")).parent_path() / "kubectl";
  const std::string line = program.string() + " --kubeconfig " + env("CORBD_LAB_KUBECONFIG") + " --cache-dir " +
                           env("CORBD_LAB_KUBECONFIG") + ".cache " + arguments + " >/dev/null";
  return std::system(line.c_str());
}

std::vector<Change::Kind> kinds(const std::vector<Change>& events) {
  std::vector<Change::Kind> all;
  for (const auto& event : events) all.push_back(event.kind);
  return all;
}

}  // namespace

TEST_CASE("a real server: an object is made, read by its name, and listed alone", "[kube]") {
  ApiClient client(admin());
  const auto name = fresh("node");
  REQUIRE(client.create(kube::kNodes, node(name, "a")));
  REQUIRE(client.create(kube::kNodes, node(fresh("other"), "b")));
  const auto found = client.get(kube::kNodes, name);
  REQUIRE(found);
  CHECK(kube::node_of(*found).labels.at("zone") == "a");
  const auto listed = client.list(kube::kNodes, name, "0");
  REQUIRE(listed);
  CHECK(listed->items.size() == 1);
}

TEST_CASE("a real server: a list longer than a page comes whole", "[kube]") {
  ApiClient client(admin());
  const auto space = fresh("pages");
  REQUIRE(client.create(kNamespaces, {{"metadata", {{"name", space}}}}));
  const kube::Resource maps{"/api/v1/namespaces/" + space + "/configmaps", "configmaps"};
  constexpr std::size_t more_than_a_page = 501;
  for (std::size_t i = 0; i < more_than_a_page; ++i)
    REQUIRE(client.create(maps, {{"metadata", {{"name", "m" + std::to_string(i)}}}}));
  const auto all = client.list(maps);
  REQUIRE(all);
  CHECK(all->items.size() == more_than_a_page);
}

TEST_CASE(
    "a real server: a watch of one node delivers only its changes, ends cleanly, and continues after its last version",
    "[kube]") {
  ApiClient client(admin()), other(admin());
  const auto mine = fresh("node"), theirs = fresh("other");
  REQUIRE(client.create(kube::kNodes, node(mine, "a")));
  REQUIRE(client.create(kube::kNodes, node(theirs, "a")));
  const auto before = client.list(kube::kNodes, mine, "0");
  REQUIRE(before);
  REQUIRE(client.patch(kube::kNodes, theirs, zone("b")));
  const auto changed = client.patch(kube::kNodes, mine, zone("b"));
  REQUIRE(changed);
  const auto [events, ended] = client.watch(kube::kNodes, mine, before->version, 5s);
  CHECK(ended);
  REQUIRE_FALSE(events.empty());
  const auto& modified = events.front();
  CHECK(modified.kind == Change::Kind::modified);
  CHECK(kube::node_of(modified.object).labels.at("zone") == "b");
  CHECK(modified.version == changed->at("metadata").at("resourceVersion").as_string());
  for (const auto& event : events)
    if (event.kind != Change::Kind::bookmark) CHECK(event.object.at("metadata").at("name").as_string() == mine);

  // Whether a bookmark came so soon is the server's business.
  REQUIRE(client.patch(kube::kNodes, mine, zone("c")));
  const auto [later, ended_again] = client.watch(kube::kNodes, mine, events.back().version, 3s);
  CHECK(ended_again);
  REQUIRE_FALSE(later.empty());
  CHECK(kinds(later).front() == Change::Kind::modified);
  CHECK(kube::node_of(later.front().object).labels.at("zone") == "c");
}

TEST_CASE("a real server: the labels of this node arrive, and follow changes", "[kube]") {
  ApiClient client(admin());
  const auto name = fresh("node");
  REQUIRE(client.create(kube::kNodes, node(name, "a")));
  kube::OwnNode own(client.io.get_executor(), *client.clock, &client.api(), name);
  own.start();
  const auto in_zone = [&](const std::string& zone) {
    return test::eventually(client.io, [&] {
      const auto labels = own.labels();
      return labels && labels->at("zone") == zone;
    });
  };
  CHECK(in_zone("a"));
  REQUIRE(client.patch(kube::kNodes, name, zone("b")));
  CHECK(in_zone("b"));
  client.run([](kube::OwnNode& node) -> task<bool> {
    co_await node.stop({});
    co_return true;
  }(own));
}

TEST_CASE("a real server: a JSON patch removes one taint, and nothing if another client has changed the list",
          "[kube]") {
  ApiClient client(admin());
  const auto name = fresh("node");
  const auto taint = [](const char* key) { return object{{"key", key}, {"effect", "NoExecute"}}; };
  const auto key = orchestrator::startup_taint("rbd.csi.ceph.com");
  auto made = node(name, "a");
  made["spec"] = object{{"taints", boost::json::array{taint("gpu"), taint(key.c_str()), taint("other")}}};
  REQUIRE(client.create(kube::kNodes, made));
  // The server adds taints of its own to a node that is not ready.
  const auto has = [&](const std::string& one) {
    const auto keys = kube::node_of(client.get(kube::kNodes, name).value()).taints;
    return std::ranges::find(keys, one) != keys.end();
  };
  const auto removal = [&] { return kube::without_taint(client.get(kube::kNodes, name).value(), key); };
  const auto sent = [&](const boost::json::array& patch) { return client.json_patch(kube::kNodes, name, patch); };
  const auto stale = removal();
  REQUIRE(kubectl("taint node " + name + " gpu-") == 0);
  CHECK_FALSE(sent(stale));
  CHECK(has(key));
  const auto fitting = removal();
  CHECK(sent(fitting));
  CHECK_FALSE(has(key));
  CHECK(has("other"));
  // The rights of deploy/kubernetes/base are not enough, and the error says what lacks.
  ApiClient agent(kube::read_kubeconfig(env("CORBD_LAB_KUBE_AGENT")).value());
  const auto refused = agent.json_patch(kube::kNodes, name, fitting);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.code == errc::permission_denied);
  CHECK_THAT(refused.error().error.text, ContainsSubstring("patch"));
}

TEST_CASE("a real server: the agent's service account sees a node as out of service while kubectl has it tainted so",
          "[kube]") {
  ApiClient client(admin());
  const auto name = fresh("node"), address = fresh_address();
  REQUIRE(client.create(kube::kNodes, node(name, "a")));
  REQUIRE(client.patch({"/api/v1/nodes/" + name, "nodes/status"}, "status", with_address(address)));
  ApiClient agent(kube::read_kubeconfig(env("CORBD_LAB_KUBE_AGENT")).value());
  orchestrator::HolderNodes finder{
      agent.io.get_executor(), *agent.clock, orchestrator::read_nodes(&agent.api(), "rbd.csi.ceph.com"), {}};
  CancelScope leaving;
  const auto state = [&] {
    const auto found = agent.run(finder.find({"volume", address + ":0/1", address, {{name}, {}}}, leaving));
    CHECK(found.name == name);
    CHECK(found.attached == false);
    return found.state;
  };
  using State = plan::HolderNode::State;
  CHECK(state() == State::not_ready);
  // As docs/dead-node.md has them.
  REQUIRE(kubectl("taint nodes " + name + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute") == 0);
  CHECK(state() == State::out_of_service);
  REQUIRE(kubectl("taint nodes " + name + " node.kubernetes.io/out-of-service-") == 0);
  CHECK(state() == State::not_ready);
  agent.run([](orchestrator::HolderNodes& nodes) -> task<bool> {
    co_await nodes.stop({});
    co_return true;
  }(finder));
}

TEST_CASE("a real server: a version that is too old is expired, and a future one is a server error", "[kube]") {
  ApiClient client(admin());
  test::expect_expired(client, kEvents, env("CORBD_LAB_KUBE_FORGOTTEN"));
  // A list with pages does not come from the server's cache, whose answer would be 504.
  const auto future = client.list(kube::kNodes, "", "999999999");
  REQUIRE_FALSE(future);
  CHECK(future.error().error.code == errc::unavailable);
}

TEST_CASE("a real server: its refusals have their codes", "[kube]") {
  ApiClient client(admin());
  test::expect_absent(client, kube::kVolumeAttachments, fresh("nothing"));
  const auto twice = node(fresh("node"), "a");
  REQUIRE(client.create(kube::kNodes, twice));
  test::expect_taken(client, kube::kNodes, twice);
  ApiClient stranger(with_token("nonsense"));
  test::expect_stranger(stranger, kube::kNodes);
  ApiClient nobody(with_token(env("CORBD_LAB_KUBE_NOBODY")));
  test::expect_forbidden(nobody, kube::kVolumeAttachments);
  test::expect_forbidden(nobody, kube::kPersistentVolumes);
}

TEST_CASE("a real server: a token that is replaced in its file is read anew after the 401", "[kube]") {
  const test::Folder folder;
  const std::string file = folder.path() + "/token";
  const auto good = admin();
  std::ofstream(file) << "nonsense";
  auto access = good;
  access.token = Secret();
  access.token_file = file;
  ApiClient client(access);
  test::expect_stranger(client, kube::kNodes);
  std::ofstream(file) << std::string(good.token.reveal()) << "\n";
  CHECK(client.list(kube::kNodes));
}

TEST_CASE("a real server: it is trusted by its own authorities only", "[kube]") {
  auto access = admin();
  access.authorities_file.clear();
  access.authorities = test::pki("other-ca.pem");
  ApiClient client(access);
  test::expect_stranger(client, kube::kNodes);
}

TEST_CASE("a real server: a volume's Event is created, and its count raised", "[kube]") {
  ApiClient client(admin());
  const object involved{{"kind", "PersistentVolume"}, {"apiVersion", "v1"}, {"name", "pv-1"}};
  const auto made = client.create(kEvents, {{"metadata", {{"generateName", "pv-1."}}},
                                            {"involvedObject", involved},
                                            {"reason", "VolumeStalled"},
                                            {"message", "no answer for 30 s"},
                                            {"type", "Warning"},
                                            {"count", 1},
                                            {"source", {{"component", "corbd"}, {"host", "node-1"}}}});
  REQUIRE(made);
  const std::string name(made->at("metadata").at("name").as_string());
  const auto counted = client.patch(kEvents, name, {{"count", 2}});
  REQUIRE(counted);
  CHECK(counted->at("count").to_number<int>() == 2);
  CHECK(client.get(kEvents, name)->at("message").as_string() == "no answer for 30 s");
}
