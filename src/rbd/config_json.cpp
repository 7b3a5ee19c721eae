#include "corbd/rbd/config_json.hpp"

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "go_json.hpp"

namespace corbd::rbd {
namespace {

namespace json = boost::json;

constexpr GoJson kFile("config.json");

/// Drops empty texts.
result<std::vector<std::string>> texts_at(const json::object& object, const char* key, const std::string& form) {
  std::vector<std::string> texts;
  const auto list = kFile.array_at(object, key);
  if (!list) return list.error();
  if (*list == nullptr) return texts;
  for (const auto& text : **list) {
    if (!text.is_string())
      return kFile.wrong("\"" + std::string(key) + "\" has an entry that is not a string: write \"" + form + "\"");
    if (!text.get_string().empty()) texts.emplace_back(text.get_string());
  }
  return texts;
}

result<> read_affinity(const json::object& affinity, ClusterEntry& entry) {
  const auto* enabled = GoJson::find(affinity, "enabled");
  entry.read_affinity = enabled != nullptr && enabled->is_bool() && enabled->get_bool();
  const auto policy = kFile.text_at(affinity, "policy");
  if (!policy) return policy.error();
  entry.balance_reads = *policy == "balance";
  if (!policy->empty() && !entry.balance_reads && *policy != "localize")
    return kFile.wrong("\"policy\" of \"readAffinity\" is \"" + printable(*policy) + "\": write localize or balance");
  auto labels = texts_at(affinity, "crushLocationLabels", "topology.kubernetes.io/zone");
  if (!labels) return labels.error();
  entry.crush_labels = std::move(*labels);
  return {};
}

result<> read_rbd(const json::object& rbd, ClusterEntry& entry) {
  auto ns = kFile.text_at(rbd, "radosNamespace");
  if (!ns) return ns.error();
  entry.rados_namespace = std::move(*ns);
  const auto network = kFile.text_at(rbd, "netNamespaceFilePath");
  if (!network) return network.error();
  if (!network->empty())
    entry.ignored.push_back(
        "rbd.netNamespaceFilePath: the agent reaches the cluster from its own network namespace, so the node must have "
        "a route to it");
  return {};
}

result<ClusterEntry> read_entry(const json::object& object) {
  ClusterEntry entry;
  auto id = kFile.text_at(object, "clusterID");
  if (!id) return id.error();
  entry.cluster_id = std::move(*id);
  auto monitors = texts_at(object, "monitors", "address:port");
  if (!monitors) return monitors.error();
  entry.monitors = std::move(*monitors);
  const auto rbd = kFile.object_at(object, "rbd");
  if (!rbd) return rbd.error();
  if (*rbd != nullptr)
    if (auto read = read_rbd(**rbd, entry); !read) return read.error();
  const auto affinity = kFile.object_at(object, "readAffinity");
  if (!affinity) return affinity.error();
  if (*affinity != nullptr)
    if (auto read = read_affinity(**affinity, entry); !read) return read.error();
  return entry;
}

result<json::array> entries_of(std::string_view text) {
  auto list = kFile.list(text);
  if (!list) return list.error();
  if (!*list)
    return Error{errc::failed_precondition, "config.json is empty: it must list the clusters and their monitors"};
  return std::move(**list);
}

std::string ids_text(const std::vector<std::string>& ids) {
  std::string text;
  for (const auto& id : ids) text += (text.empty() ? "" : ", ") + id;
  return text;
}

}  // namespace

result<ClusterEntry> parse_config_json(std::string_view text, std::string_view cluster_id) {
  if (cluster_id.empty()) return Error{errc::invalid_argument, "the cluster ID is empty"};
  const auto entries = entries_of(text);
  if (!entries) return entries.error();
  std::vector<std::string> ids;
  std::optional<Error> bad;  // perhaps of another cluster
  for (const auto& value : *entries) {
    auto entry = read_entry(value.get_object());
    if (!entry) {
      bad = entry.error();
      continue;
    }
    if (entry->cluster_id == cluster_id) {
      if (entry->monitors.empty())
        return Error{errc::failed_precondition,
                     "config.json lists no monitors for cluster \"" + entry->cluster_id + "\": add them"};
      return std::move(*entry);
    }
    ids.push_back(std::move(entry->cluster_id));
  }
  if (bad) return *bad;
  if (ids.empty())
    return Error{errc::failed_precondition,
                 "config.json lists no cluster: add \"" + std::string(cluster_id) + "\" to it"};
  return Error{errc::not_found,
               "config.json has no cluster \"" + std::string(cluster_id) + "\"; it has: " + ids_text(ids)};
}

result<std::vector<ClusterEntry>> parse_clusters(std::string_view text) {
  const auto entries = entries_of(text);
  if (!entries) return entries.error();
  std::vector<ClusterEntry> all;
  for (const auto& value : *entries) {
    auto entry = read_entry(value.get_object());
    if (!entry) return entry.error();
    all.push_back(std::move(*entry));
  }
  return all;
}

result<ClusterEntry> find_cluster(const std::string& config_dir, std::string_view cluster_id) {
  const std::string path = config_dir + "/config.json";
  const auto text = read_file(path, kMaxConfigFile);
  if (!text && text.error().code == errc::not_found)
    return Error{errc::failed_precondition,
                 path + " does not exist: mount the ConfigMap that lists the clusters there"};
  if (!text) return text.error();
  auto entry = parse_config_json(*text, cluster_id);
  if (!entry) return with_context("in " + config_dir, entry.error());
  return entry;
}

}  // namespace corbd::rbd
