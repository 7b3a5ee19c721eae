#include "corbd/rbd/cluster_mapping.hpp"

#include <filesystem>
#include <fstream>

#include "corbd/rbd/config_json.hpp"
#include "support/catch.hpp"
#include "support/folder.hpp"

using namespace corbd;
using image::Place;
using rbd::mapped_clusters;
using rbd::mapped_places;
using rbd::parse_cluster_mapping;

namespace {

constexpr std::string_view kMapping = R"([
  {"clusterIDMapping": {"site-a": "site-b"}, "RBDPoolIDMapping": [{"1": "2"}, {"3": "1", "4": "5"}], "CephFSFscIDMapping": [{"1": "1"}]},
  {"clusterIDMapping": {"site-c": "site-d"}, "RBDPoolIDMapping": [{"1": "9"}]},
  {"clusterIDMapping": {"site-e": "site-a"}, "RBDPoolIDMapping": [{"1": "7"}]}
])";

}  // namespace

TEST_CASE("every pool mapping of every entry with the cluster is tried, in the file's order") {
  const auto mappings = parse_cluster_mapping(kMapping);
  REQUIRE(mappings);
  const auto places = mapped_places(*mappings, {"site-a", 1});
  REQUIRE(places);
  CHECK(*places == std::vector<Place>{{"site-b", 2}, {"site-b", 3}, {"site-e", 7}});
  CHECK(mapped_clusters(*mappings, "site-a") == std::vector<std::string>{"site-b", "site-e"});
}

TEST_CASE("a mapping works in both directions", "[failure:221]") {
  const auto mappings = parse_cluster_mapping(kMapping);
  REQUIRE(mappings);
  CHECK(*mapped_places(*mappings, {"site-b", 5}) == std::vector<Place>{{"site-a", 4}});
  CHECK(mapped_clusters(*mappings, "site-d") == std::vector<std::string>{"site-c"});
}

TEST_CASE("a cluster or pool without a mapping is nowhere else") {
  const auto mappings = parse_cluster_mapping(kMapping);
  REQUIRE(mappings);
  CHECK(mapped_places(*mappings, {"site-x", 1})->empty());
  CHECK(mapped_places(*mappings, {"site-a", 77})->empty());
  CHECK(mapped_clusters(*mappings, "site-x").empty());
}

TEST_CASE("keys of cluster-mapping.json match in any case, but ids do not") {
  const auto mappings = parse_cluster_mapping(R"([{"CLUSTERIDMAPPING":{"A":"b"},"rbdPoolIdMapping":[{"1":"2"}]}])");
  REQUIRE(mappings);
  CHECK(*mapped_places(*mappings, {"A", 1}) == std::vector<Place>{{"b", 2}});
  CHECK(mapped_places(*mappings, {"a", 1})->empty());
}

TEST_CASE("a malformed cluster-mapping.json is refused with the file and the key") {
  struct Row {
    std::string text, names;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"{", "not JSON"},
      {"{}", "not an array"},
      {"[1]", "not an object"},
      {R"([{"clusterIDMapping":[]}])", "\"clusterIDMapping\" is not an object"},
      {R"([{"clusterIDMapping":{"a":1}}])", "\"clusterIDMapping\" maps \"a\""},
      {R"([{"RBDPoolIDMapping":{"1":"2"}}])", "\"RBDPoolIDMapping\" is not an array"},
      {R"([{"RBDPoolIDMapping":["1"]}])", "\"RBDPoolIDMapping\" has an entry"},
      {R"([{"RBDPoolIDMapping":[{"1":2}]}])", "\"RBDPoolIDMapping\" maps \"1\""},
  }));
  const auto mappings = parse_cluster_mapping(row.text);
  REQUIRE_FALSE(mappings);
  CHECK(mappings.error().code == errc::invalid_argument);
  CHECK_THAT(mappings.error().text, ContainsSubstring("cluster-mapping.json") && ContainsSubstring(row.names));
}

TEST_CASE("a pool that is mapped to something other than a number is refused when it is needed") {
  const std::string other = GENERATE("", "two", "-1", "2 ", "99999999999999999999");
  const auto mappings =
      parse_cluster_mapping(R"([{"clusterIDMapping":{"a":"b"},"RBDPoolIDMapping":[{"1":")" + other + R"("}]}])");
  REQUIRE(mappings);
  const auto places = mapped_places(*mappings, {"a", 1});
  if (other.empty()) {
    CHECK(places->empty());
    return;
  }
  REQUIRE_FALSE(places);
  CHECK(places.error().code == errc::invalid_argument);
}

TEST_CASE("cluster-mapping.json need not be there") {
  const test::Folder folder;
  CHECK(rbd::read_cluster_mapping(folder.path())->empty());
  std::ofstream(folder.path() + "/cluster-mapping.json") << " \n";
  CHECK(rbd::read_cluster_mapping(folder.path())->empty());
}

TEST_CASE("the swap of a ConfigMap's symbolic link is seen at the next use") {
  const test::Folder folder;
  const auto publish = [&](const std::string& version, const std::string& monitor, const std::string& other) {
    std::filesystem::create_directory(folder.path() + "/" + version);
    std::ofstream(folder.path() + "/" + version + "/config.json")
        << R"([{"clusterID":"a","monitors":[")" + monitor + R"("]}])";
    std::ofstream(folder.path() + "/" + version + "/cluster-mapping.json")
        << R"([{"clusterIDMapping":{"a":")" + other + R"("}}])";
    std::filesystem::create_directory_symlink(version, folder.path() + "/..data_tmp");
    std::filesystem::rename(folder.path() + "/..data_tmp", folder.path() + "/..data");
  };
  publish("..1", "mon-1", "b");
  for (const char* file : {"config.json", "cluster-mapping.json"})
    std::filesystem::create_symlink(std::string("..data/") + file, folder.path() + "/" + file);
  CHECK(rbd::find_cluster(folder.path(), "a")->monitors.front() == "mon-1");
  publish("..2", "mon-2", "c");
  CHECK(rbd::find_cluster(folder.path(), "a")->monitors.front() == "mon-2");
  CHECK(mapped_clusters(*rbd::read_cluster_mapping(folder.path()), "a") == std::vector<std::string>{"c"});
}
