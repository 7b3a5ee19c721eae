#include "corbd/rbd/cluster_mapping.hpp"

#include <charconv>

#include "corbd/core/file.hpp"
#include "go_json.hpp"

namespace corbd::rbd {
namespace {

namespace json = boost::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr GoJson kMappingFile("cluster-mapping.json");

result<> read_pairs(const json::object& from, std::string_view key, Pairs& into) {
  for (const auto& entry : from) {
    if (!entry.value().is_string())
      return kMappingFile.wrong("\"" + std::string(key) + "\" maps \"" + std::string(entry.key()) +
                                "\" to something that is not a string: correct it in the ConfigMap");
    into.emplace_back(entry.key(), entry.value().get_string());
  }
  return {};
}

result<ClusterMapping> read_mapping(const json::object& object) {
  ClusterMapping mapping;
  const auto clusters = kMappingFile.object_at(object, "clusterIDMapping");
  if (!clusters) return clusters.error();
  if (*clusters != nullptr)
    if (auto read = read_pairs(**clusters, "clusterIDMapping", mapping.clusters); !read) return read.error();
  const auto pools = kMappingFile.array_at(object, "RBDPoolIDMapping");
  if (!pools) return pools.error();
  if (*pools == nullptr) return mapping;
  for (const auto& pool : **pools) {
    if (!pool.is_object())
      return kMappingFile.wrong(
          "\"RBDPoolIDMapping\" has an entry that is not an object: write {\"<pool id>\": \"<pool id>\"}");
    if (auto read = read_pairs(pool.get_object(), "RBDPoolIDMapping", mapping.pools); !read) return read.error();
  }
  return mapping;
}

/// Returns the other side of a pair, or "" if `id` is on neither side.
std::string_view other_side(const std::pair<std::string, std::string>& pair, std::string_view id) {
  if (pair.first == id) return pair.second;
  if (pair.second == id) return pair.first;
  return {};
}

}  // namespace

result<std::vector<ClusterMapping>> parse_cluster_mapping(std::string_view text) {
  const auto list = kMappingFile.list(text);
  if (!list) return list.error();
  std::vector<ClusterMapping> mappings;
  if (!*list) return mappings;
  for (const auto& value : **list) {
    auto mapping = read_mapping(value.get_object());
    if (!mapping) return mapping.error();
    mappings.push_back(std::move(*mapping));
  }
  return mappings;
}

result<std::vector<image::Place>> mapped_places(const std::vector<ClusterMapping>& mappings, const image::Place& of) {
  const std::string pool_id = std::to_string(of.pool_id);
  std::vector<image::Place> places;
  for (const auto& mapping : mappings)
    for (const auto& clusters : mapping.clusters) {
      const auto cluster = other_side(clusters, of.cluster_id);
      if (cluster.empty()) continue;
      for (const auto& pools : mapping.pools) {
        const auto pool = other_side(pools, pool_id);
        if (pool.empty()) continue;
        image::Place place{std::string(cluster), -1};
        const auto [end, failed] = std::from_chars(pool.data(), pool.data() + pool.size(), place.pool_id);
        if (failed != std::errc() || end != pool.data() + pool.size() || place.pool_id < 0)
          return kMappingFile.wrong("\"RBDPoolIDMapping\" maps pool " + pool_id + " to \"" + std::string(pool) +
                                    "\": write the other pool's ID");
        places.push_back(std::move(place));
      }
    }
  return places;
}

std::vector<std::string> mapped_clusters(const std::vector<ClusterMapping>& mappings, std::string_view cluster_id) {
  std::vector<std::string> clusters;
  for (const auto& mapping : mappings)
    for (const auto& pair : mapping.clusters)
      if (const auto other = other_side(pair, cluster_id); !other.empty()) clusters.emplace_back(other);
  return clusters;
}

result<std::vector<ClusterMapping>> read_cluster_mapping(const std::string& config_dir) {
  const auto text = read_file(config_dir + "/cluster-mapping.json", kMaxConfigFile);
  if (!text && text.error().code == errc::not_found) return std::vector<ClusterMapping>();
  if (!text) return text.error();
  auto mappings = parse_cluster_mapping(*text);
  if (!mappings) return with_context("in " + config_dir, mappings.error());
  return mappings;
}

result<std::vector<image::Place>> mapped_places(const std::string& config_dir, const image::Place& of) {
  const auto mappings = read_cluster_mapping(config_dir);
  if (!mappings) return mappings.error();
  return mapped_places(*mappings, of);
}

result<std::vector<std::string>> mapped_clusters(const std::string& config_dir, std::string_view cluster_id) {
  const auto mappings = read_cluster_mapping(config_dir);
  if (!mappings) return mappings.error();
  return mapped_clusters(*mappings, cluster_id);
}

}  // namespace corbd::rbd
