#include "corbd/rbd/config_json.hpp"

#include <fstream>

#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using rbd::parse_config_json;

namespace {
constexpr std::string_view kTwo = R"([
  {"clusterID": "one", "monitors": ["10.0.0.1:6789", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]"], "rbd": {"radosNamespace": "tenant"}},
  {"clusterID": "two", "monitors": ["mon.example"], "cephFS": {"subvolumeGroup": "csi"}}
])";
}

TEST_CASE("a cluster is found by its id, with monitors and namespace as written") {
  const auto entry = parse_config_json(kTwo, "one");
  REQUIRE(entry);
  CHECK(entry->monitors == std::vector<std::string>{"10.0.0.1:6789", "[v2:10.0.0.2:3300,v1:10.0.0.2:6789]"});
  CHECK(entry->rados_namespace == "tenant");
}

TEST_CASE("a cluster without a namespace uses the default one") {
  const auto entry = parse_config_json(kTwo, "two");
  REQUIRE(entry);
  CHECK(entry->rados_namespace.empty());
}

TEST_CASE("keys of config.json match in any case") {
  const auto entry = parse_config_json(R"([{"CLUSTERID":"x","Monitors":["a"],"RBD":{"radosnamespace":"n"}}])", "x");
  REQUIRE(entry);
  CHECK(entry->monitors == std::vector<std::string>{"a"});
  CHECK(entry->rados_namespace == "n");
}

TEST_CASE("null in config.json counts as absent") {
  const auto entry = parse_config_json(R"([{"clusterID":"x","monitors":["a"],"rbd":null,"readAffinity":null}])", "x");
  REQUIRE(entry);
  CHECK(entry->rados_namespace.empty());
}

TEST_CASE("an unknown cluster is not_found and the known ids are named") {
  const auto entry = parse_config_json(kTwo, "three");
  REQUIRE_FALSE(entry);
  CHECK(entry.error().code == errc::not_found);
  CHECK_THAT(entry.error().text, ContainsSubstring("three"));
  CHECK_THAT(entry.error().text, ContainsSubstring("one, two"));
}

TEST_CASE("config.json without clusters or monitors is failed_precondition") {
  const std::string text = GENERATE("", " \n", "[]", R"([{"clusterID":"x"}])", R"([{"clusterID":"x","monitors":[]}])",
                                    R"([{"clusterID":"x","monitors":[""]}])", R"([{"clusterID":"x","monitors":null}])");
  const auto entry = parse_config_json(text, "x");
  REQUIRE_FALSE(entry);
  CHECK(entry.error().code == errc::failed_precondition);
}

TEST_CASE("a malformed config.json is invalid_argument") {
  const std::string text =
      GENERATE("{", "{}", "[1]", R"([{"clusterID":1}])", R"([{"clusterID":"x","monitors":"a"}])",
               R"([{"clusterID":"x","monitors":[1]}])", R"([{"clusterID":"x","monitors":["a"],"rbd":[]}])", "\xff");
  const auto entry = parse_config_json(text, "x");
  REQUIRE_FALSE(entry);
  CHECK(entry.error().code == errc::invalid_argument);
}

TEST_CASE("an invalid entry of another cluster is ignored, and named if the wanted cluster is not found") {
  const std::string text = R"([{"clusterID":"bad","monitors":"a"},{"clusterID":"x","monitors":["a"]}])";
  CHECK(parse_config_json(text, "x"));
  CHECK_THAT(parse_config_json(text, "y").error().text,
             ContainsSubstring("config.json") && ContainsSubstring("\"monitors\""));
}

TEST_CASE("the first of two entries with one cluster ID counts") {
  CHECK(parse_config_json(R"([{"clusterID":"x","monitors":["a"]},{"clusterID":"x","monitors":["b"]}])", "x")
            ->monitors.front() == "a");
}

TEST_CASE("settings of config.json without effect here are named") {
  const auto entry = parse_config_json(
      R"([{"clusterID":"x","monitors":["a"],"rbd":{"netNamespaceFilePath":"/net/x"},"readAffinity":{"enabled":true}}])",
      "x");
  REQUIRE(entry);
  REQUIRE(entry->ignored.size() == 1);
  CHECK_THAT(entry->ignored[0], ContainsSubstring("netNamespaceFilePath"));
  CHECK(parse_config_json(R"([{"clusterID":"x","monitors":["a"],"rbd":{"netNamespaceFilePath":"","mirrorDaemonCount":2},
                               "readAffinity":{"enabled":false}}])",
                          "x")
            ->ignored.empty());
}

TEST_CASE("read affinity is on where it is enabled, by its own labels if it has some") {
  const auto entry = parse_config_json(
      R"([{"clusterID":"x","monitors":["a"],"readAffinity":{"Enabled":true,"crushLocationLabels":["topology.kubernetes.io/zone",""]}}])",
      "x");
  REQUIRE(entry);
  CHECK(entry->read_affinity);
  CHECK(entry->crush_labels == std::vector<std::string>{"topology.kubernetes.io/zone"});
  CHECK_FALSE(parse_config_json(R"([{"clusterID":"x","monitors":["a"],"readAffinity":{"enabled":false}}])", "x")
                  ->read_affinity);
  CHECK_FALSE(
      parse_config_json(R"([{"clusterID":"x","monitors":["a"],"readAffinity":{"crushLocationLabels":[3]}}])", "x"));
}

TEST_CASE("the list of clusters has also those without monitors") {
  const auto all = rbd::parse_clusters(R"([{"clusterID":"a","monitors":["m1","m2"]},{"ClusterID":"b"}])");
  REQUIRE(all);
  REQUIRE(all->size() == 2);
  CHECK(all->at(0).monitors == std::vector<std::string>{"m1", "m2"});
  CHECK(all->at(1).cluster_id == "b");
  CHECK(all->at(1).monitors.empty());
  CHECK(rbd::parse_clusters("{}").error().code == errc::invalid_argument);
}

TEST_CASE("find_cluster reads the file anew and says which one is missing") {
  const test::Folder folder;
  const auto missing = rbd::find_cluster(folder.path(), "one");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::failed_precondition);
  CHECK_THAT(missing.error().text, ContainsSubstring(folder.path() + "/config.json"));
  std::ofstream(folder.path() + "/config.json") << kTwo;
  CHECK(rbd::find_cluster(folder.path(), "one"));
  std::ofstream(folder.path() + "/config.json") << "[]";
  CHECK_FALSE(rbd::find_cluster(folder.path(), "one"));
}

TEST_CASE("a cluster's reads go to the nearest OSD or, with the policy balance, to any") {
  const auto entry_with = [](const std::string& affinity) {
    return parse_config_json(R"([{"clusterID":"x","monitors":["a"],"readAffinity":)" + affinity + "}]", "x");
  };
  CHECK(entry_with(R"({"enabled":true,"policy":"balance"})")->balance_reads);
  CHECK_FALSE(entry_with(R"({"enabled":true,"policy":"localize"})")->balance_reads);
  CHECK_FALSE(entry_with(R"({"enabled":true})")->balance_reads);
  const auto wrong = entry_with(R"({"enabled":true,"policy":"random"})");
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().text, ContainsSubstring("write localize or balance"));
}
