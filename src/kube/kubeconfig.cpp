#include <yaml-cpp/yaml.h>

#include <charconv>

#include "corbd/core/base64.hpp"
#include "corbd/kube/access.hpp"

namespace corbd::kube {
namespace {

Error invalid(std::string text) { return {errc::invalid_argument, std::move(text)}; }

std::string yaml_text(const YAML::Node& map, const char* key) {
  const auto value = map[key];
  return value && value.IsScalar() ? value.as<std::string>() : std::string();
}

/// Returns the entry of that name in a list of {name, <kind>: {...}}.
YAML::Node named(const YAML::Node& root, const char* list, const char* kind, const std::string& name) {
  for (const auto& entry : root[list])
    if (entry.IsMap() && yaml_text(entry, "name") == name && entry[kind] && entry[kind].IsMap()) return entry[kind];
  return YAML::Node(YAML::NodeType::Undefined);
}

bool says(const YAML::Node& map, const char* key) {
  const auto value = map[key];
  return value && !value.IsNull() && !(value.IsScalar() && value.as<std::string>().empty());
}

/// Resolves a relative path from the kubeconfig's folder, as kubectl does.
std::string in_folder(const std::string& folder, const std::string& file) {
  return file.empty() || file.starts_with('/') ? file : folder + file;
}

/// Reads the value of <key>-data, or the path of <key>.
result<> read_pem(const YAML::Node& from, const std::string& key, const std::string& folder, std::string& text,
                  std::string& file) {
  const std::string data = yaml_text(from, (key + "-data").c_str());
  if (!data.empty()) {
    auto decoded = from_base64(data);
    if (!decoded) return invalid(key + "-data is not base64");
    text = std::move(*decoded);
    return {};
  }
  file = in_folder(folder, yaml_text(from, key.c_str()));
  return {};
}

result<> read_server(const std::string& server, Access& into) {
  std::string rest = server;
  if (rest.starts_with("https://"))
    rest.erase(0, 8);
  else if (rest.starts_with("http://"))
    rest.erase(0, 7), into.tls = false, into.port = 80;
  else
    return invalid("the cluster's server '" + server + "' begins with neither https:// nor http://");
  if (rest.ends_with('/')) rest.pop_back();
  if (rest.find('/') != rest.npos)
    return invalid("the cluster's server '" + server + "' has a path, which is not supported");
  const auto bracket = rest.rfind(']');
  const auto colon = rest.rfind(':');
  const bool has_port = colon != rest.npos && (bracket == rest.npos || colon > bracket);
  if (has_port) {
    const char* end = rest.data() + rest.size();
    const auto parsed = std::from_chars(rest.data() + colon + 1, end, into.port);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      return invalid("the cluster's server '" + server + "' has no port after its colon");
    rest.erase(colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  if (rest.empty()) return invalid("the cluster's server '" + server + "' names no host");
  into.host = rest;
  return {};
}

result<> read_user(const YAML::Node& user, const std::string& folder, Access& into) {
  for (const char* other : {"exec", "auth-provider", "username"})
    if (says(user, other))
      return invalid(std::string("the user authenticates by ") + other +
                     ", which is not supported: use a token or a client certificate");
  for (const char* other : {"as", "as-uid", "as-groups", "as-user-extra"})
    if (says(user, other))
      return invalid(std::string("the user acts as another one (") + other +
                     "), which is not supported: use that one's own token or client certificate");
  into.token = Secret(yaml_text(user, "token"));
  into.token_file = in_folder(folder, yaml_text(user, "tokenFile"));
  if (auto read = read_pem(user, "client-certificate", folder, into.certificate, into.certificate_file); !read)
    return read;
  std::string key;
  if (auto read = read_pem(user, "client-key", folder, key, into.key_file); !read) return read;
  into.key = Secret(std::move(key));
  return {};
}

result<Access> access_of(const YAML::Node& root, const std::string& folder) {
  if (!root.IsMap()) return invalid("this is not a kubeconfig");
  const std::string current = yaml_text(root, "current-context");
  const auto context = named(root, "contexts", "context", current);
  if (!context.IsDefined()) return invalid("there is no context '" + current + "', which current-context names");
  const auto cluster = named(root, "clusters", "cluster", yaml_text(context, "cluster"));
  if (!cluster.IsDefined())
    return invalid("there is no cluster '" + yaml_text(context, "cluster") + "', which the current context names");
  const auto user = named(root, "users", "user", yaml_text(context, "user"));
  if (!user.IsDefined())
    return invalid("there is no user '" + yaml_text(context, "user") + "', which the current context names");
  for (const char* other : {"proxy-url", "tls-server-name"})
    if (says(cluster, other))
      return invalid(
          std::string("the cluster is reached with ") + other +
          ", which is not supported: name a server that this node reaches under the name in its certificate");
  Access access;
  if (auto read = read_server(yaml_text(cluster, "server"), access); !read) return read.error();
  access.insecure = yaml_text(cluster, "insecure-skip-tls-verify") == "true";
  if (auto read = read_pem(cluster, "certificate-authority", folder, access.authorities, access.authorities_file);
      !read)
    return read.error();
  if (auto read = read_user(user, folder, access); !read) return read.error();
  return access;
}

}  // namespace

result<Access> parse_kubeconfig(const std::string& text, const std::string& folder) {
  try {
    return access_of(YAML::Load(text), folder);
  } catch (const YAML::Exception& failed) {
    return invalid(std::string("this is not YAML: ") + failed.what());
  }
}

}  // namespace corbd::kube
