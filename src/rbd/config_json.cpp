#include "corbd/rbd/config_json.hpp"

#include <boost/json/parse.hpp>

#include "corbd/core/file.hpp"

namespace corbd::rbd {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxFile = 4 << 20;

Error bad(std::string text) { return {errc::invalid_argument, "config.json: " + std::move(text)}; }

bool same_key(std::string_view left, std::string_view right) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [&](char a, char b) { return lower(a) == lower(b); });
}

// As Go: any case, the last one counts, null is as good as absent.
const json::value* find(const json::object& object, std::string_view key) {
  const json::value* found = nullptr;
  for (const auto& entry : object)
    if (same_key(entry.key(), key) && !entry.value().is_null()) found = &entry.value();
  return found;
}

result<std::string> text_at(const json::object& object, std::string_view key) {
  const auto* value = find(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return bad("\"" + std::string(key) + "\" is not a string");
  return std::string(value->get_string());
}

result<std::vector<std::string>> monitors_of(const json::object& object) {
  std::vector<std::string> monitors;
  const auto* value = find(object, "monitors");
  if (value == nullptr) return monitors;
  if (!value->is_array()) return bad("\"monitors\" is not an array");
  for (const auto& monitor : value->get_array()) {
    if (!monitor.is_string()) return bad("\"monitors\" has an entry that is not a string");
    if (!monitor.get_string().empty()) monitors.emplace_back(monitor.get_string());
  }
  return monitors;
}

result<ClusterEntry> read_entry(const json::value& value) {
  if (!value.is_object()) return bad("an entry is not an object");
  const auto& object = value.get_object();
  auto id = text_at(object, "clusterID");
  if (!id) return id.error();
  auto monitors = monitors_of(object);
  if (!monitors) return monitors.error();
  ClusterEntry entry{std::move(*id), std::move(*monitors), {}};
  if (const auto* rbd = find(object, "rbd")) {
    if (!rbd->is_object()) return bad("\"rbd\" is not an object");
    auto ns = text_at(rbd->get_object(), "radosNamespace");
    if (!ns) return ns.error();
    entry.rados_namespace = std::move(*ns);
  }
  return entry;
}

result<json::array> entries_of(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return Error{errc::failed_precondition, "config.json is empty: it must list the clusters and their monitors"};
  json::error_code failed;
  auto parsed = json::parse(text, failed);
  if (failed) return bad("not JSON: " + failed.message());
  if (!parsed.is_array()) return bad("not an array of clusters");
  return std::move(parsed.get_array());
}

std::string ids_text(const std::vector<std::string>& ids) {
  std::string text;
  for (const auto& id : ids) text += (text.empty() ? "" : ", ") + id;
  return text;
}

}  // namespace

result<ClusterEntry> parse_config_json(std::string_view text, std::string_view cluster_id) {
  if (cluster_id.empty()) return Error{errc::invalid_argument, "the cluster id is empty"};
  const auto entries = entries_of(text);
  if (!entries) return entries.error();
  std::vector<std::string> ids;
  for (const auto& value : *entries) {
    auto entry = read_entry(value);
    if (!entry) return entry.error();
    if (entry->cluster_id == cluster_id) {
      if (entry->monitors.empty())
        return Error{errc::failed_precondition, "config.json lists no monitors for cluster \"" + entry->cluster_id + "\": add them"};
      return std::move(*entry);
    }
    ids.push_back(std::move(entry->cluster_id));
  }
  if (ids.empty()) return Error{errc::failed_precondition, "config.json lists no cluster: add \"" + std::string(cluster_id) + "\" to it"};
  return Error{errc::not_found, "config.json has no cluster \"" + std::string(cluster_id) + "\"; it has: " + ids_text(ids)};
}

result<std::vector<ClusterEntry>> parse_clusters(std::string_view text) {
  const auto entries = entries_of(text);
  if (!entries) return entries.error();
  std::vector<ClusterEntry> all;
  for (const auto& value : *entries) {
    auto entry = read_entry(value);
    if (!entry) return entry.error();
    all.push_back(std::move(*entry));
  }
  return all;
}

result<ClusterEntry> find_cluster(const std::string& config_dir, std::string_view cluster_id) {
  const std::string path = config_dir + "/config.json";
  const auto text = read_file(path, kMaxFile);
  if (!text && text.error().code == errc::not_found)
    return Error{errc::failed_precondition, path + " does not exist: mount the ConfigMap that lists the clusters there"};
  if (!text) return text.error();
  auto entry = parse_config_json(*text, cluster_id);
  if (!entry) return with_context(path, entry.error());
  return entry;
}

}  // namespace corbd::rbd
