// Ceph's own configuration file and keyring, as far as a host needs them to find its cluster and a user's key
// (docs/sources.md#ceph-conf). Read anew for every request.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/result.hpp"
#include "corbd/core/secret.hpp"
#include "corbd/rbd/config_json.hpp"

namespace corbd::rbd {

struct CephConf {
  std::string fsid;
  std::vector<std::string> monitors;  ///< each as it stands in mon_host, with its brackets
};

/// failed_precondition: no fsid, or no mon_host. invalid_argument: a line that is none of such a file, by its number.
result<CephConf> parse_ceph_conf(std::string_view text);
/// What the sections "global" and "client" of such a file say of an option; empty: nothing.
std::string client_option(std::string_view text, std::string_view name);
/// Every client's key in a keyring, by its user's name without "client.".
result<std::map<std::string, Secret>> client_keys(std::string_view text);
/// The key of client.<user>. not_found names the users that the keyring has.
result<Secret> parse_keyring(std::string_view text, std::string_view user);

result<CephConf> read_ceph_conf(const std::string& path);
/// From `path`; if that is empty, from /etc/ceph/ceph.client.<user>.keyring or /etc/ceph/keyring.
result<Secret> read_keyring(const std::string& path, const std::string& user);

/// find_cluster(); where `config_dir` has no config.json, the cluster of the Ceph configuration, if its fsid is
/// `cluster_id`. An empty `ceph_conf` stands for none.
result<ClusterEntry> find_cluster(const std::string& config_dir, const std::string& ceph_conf,
                                  std::string_view cluster_id);
/// The same of every cluster, also one without monitors. not_found: neither file is there, or `ceph_conf` is empty.
result<std::vector<ClusterEntry>> read_clusters(const std::string& config_dir, const std::string& ceph_conf);

}  // namespace corbd::rbd
