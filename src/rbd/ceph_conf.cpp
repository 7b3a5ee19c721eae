#include "corbd/rbd/ceph_conf.hpp"

#include <sys/stat.h>

#include "corbd/core/file.hpp"
#include "corbd/core/ini.hpp"
#include "corbd/core/text.hpp"
#include "go_json.hpp"

namespace corbd::rbd {
namespace {

constexpr std::size_t kLargestConf = 1 << 20;

/// "mon host" and "mon_host" are one option to Ceph; to us "mon-host" is, too, which does no harm.
std::string option_name(std::string_view text) { return with_gaps(text, " \t-_"); }

ClusterEntry entry_of(CephConf conf) {
  ClusterEntry entry;
  entry.cluster_id = std::move(conf.fsid);
  entry.monitors = std::move(conf.monitors);
  return entry;
}

/// Splits at commas, semicolons and white space, but not between brackets: "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]".
std::vector<std::string> monitors_in(std::string_view list) {
  std::vector<std::string> all;
  std::string one;
  int depth = 0;
  for (const char c : std::string(list) + ",") {
    const bool ends = depth == 0 && std::string_view(",; \t").find(c) != std::string_view::npos;
    if (ends) {
      if (!one.empty()) all.push_back(std::exchange(one, std::string()));
      continue;
    }
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    one += c;
  }
  return all;
}

}  // namespace

std::string client_option(std::string_view text, std::string_view name) {
  std::string value;
  static_cast<void>(read_ini(text, [&](std::string_view at, std::string_view named, std::string_view said) {
    const auto section = trimmed(at);
    if ((section == "global" || section == "client") && option_name(named) == option_name(name)) value = said;
  }));
  return value;
}

result<CephConf> parse_ceph_conf(std::string_view text) {
  CephConf conf;
  std::string monitors;
  const auto read = read_ini(text, [&](std::string_view at, std::string_view named, std::string_view value) {
    const auto section = trimmed(at);
    const std::string option = option_name(named);
    if (section != "global" && section != "client") return;
    if (option == "fsid") conf.fsid = value;
    if (option == "mon_host") monitors = value;
  });
  if (!read) return read.error();
  if (conf.fsid.empty())
    return Error{errc::failed_precondition, "it has no fsid: add `fsid = ...`, as `ceph fsid` prints it"};
  conf.monitors = monitors_in(monitors);
  if (conf.monitors.empty())
    return Error{errc::failed_precondition,
                 "it has no mon_host: add the monitors' addresses, as `ceph mon dump` "
                 "prints them; corbd does not look for monitors in DNS"};
  return conf;
}

result<std::map<std::string, Secret>> client_keys(std::string_view text) {
  constexpr std::string_view client = "client.";
  std::map<std::string, Secret> keys;
  const auto read = read_ini(text, [&](std::string_view at, std::string_view option, std::string_view value) {
    const auto section = trimmed(at);
    if (option_name(option) == "key" && section.starts_with(client))
      keys[std::string(section.substr(client.size()))] = Secret(std::string(value));
  });
  if (!read) return read.error();
  return keys;
}

result<Secret> parse_keyring(std::string_view text, std::string_view user) {
  const std::string wanted = "client." + std::string(user);
  Secret key;
  std::string others;
  const auto read = read_ini(text, [&](std::string_view at, std::string_view option, std::string_view value) {
    const auto section = trimmed(at);
    if (option_name(option) != "key") return;
    if (section == wanted)
      key = Secret(std::string(value));
    else
      others += (others.empty() ? "" : ", ") + printable(section);
  });
  if (!read) return read.error();
  if (key.empty())
    return Error{errc::not_found,
                 "it has no key of " + printable(wanted) + (others.empty() ? "" : "; it has those of " + others)};
  return key;
}

result<CephConf> read_ceph_conf(const std::string& path) {
  const auto text = read_file(path, kLargestConf);
  if (!text) return text.error();
  auto conf = parse_ceph_conf(*text);
  if (!conf) return with_context(path, conf.error());
  return conf;
}

result<Secret> read_keyring(const std::string& path, const std::string& user) {
  std::string file = path.empty() ? "/etc/ceph/ceph.client." + user + ".keyring" : path;
  struct stat found{};
  if (path.empty() && ::stat(file.c_str(), &found) != 0 && ::stat("/etc/ceph/keyring", &found) == 0)
    file = "/etc/ceph/keyring";
  auto text = read_file(file, kLargestConf);
  if (!text)
    return with_context("the key of client." + user + " is needed: give the file that has it as --keyring",
                        text.error());
  auto key = parse_keyring(*text, user);
  wipe(*text);
  if (!key) return with_context(file, key.error());
  return key;
}

result<ClusterEntry> find_cluster(const std::string& config_dir, const std::string& ceph_conf,
                                  std::string_view cluster_id) {
  struct stat found{};
  if (ceph_conf.empty() || ::stat((config_dir + "/config.json").c_str(), &found) == 0)
    return find_cluster(config_dir, cluster_id);
  auto conf = read_ceph_conf(ceph_conf);
  if (!conf)
    return with_context("there is no " + config_dir + "/config.json, so the cluster is that of " + ceph_conf,
                        {errc::failed_precondition, conf.error().text});
  if (conf->fsid != cluster_id)
    return Error{errc::not_found, "the cluster of " + ceph_conf + " is " + conf->fsid + ", and not \"" +
                                      std::string(cluster_id) + "\": name that one, or list both in " + config_dir +
                                      "/config.json"};
  return entry_of(std::move(*conf));
}

result<std::vector<ClusterEntry>> read_clusters(const std::string& config_dir, const std::string& ceph_conf) {
  const auto text = read_file(config_dir + "/config.json", kMaxConfigFile);
  if (text) return parse_clusters(*text);
  if (text.error().code != errc::not_found || ceph_conf.empty()) return text.error();
  auto conf = read_ceph_conf(ceph_conf);
  if (!conf) return conf.error();
  return std::vector{entry_of(std::move(*conf))};
}

}  // namespace corbd::rbd
