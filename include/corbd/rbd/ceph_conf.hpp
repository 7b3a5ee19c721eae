// Reads Ceph's own configuration file and keyring, as far as a host needs them to find its cluster and a user's key
// (docs/sources.md#ceph-conf). They are read anew for every request.
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
  std::vector<std::string> monitors;  ///< each as written in mon_host, with its brackets
};

/// failed_precondition: no fsid, or no mon_host. invalid_argument names the number of a line that does not belong in
/// such a file.
result<CephConf> parse_ceph_conf(std::string_view text);
/// Returns an option from the sections "global" and "client" of such a file; empty: it is not set.
std::string client_option(std::string_view text, std::string_view name);
/// Returns every client's key in a keyring, by its user's name without "client.".
result<std::map<std::string, Secret>> client_keys(std::string_view text);
/// Returns the key of client.<user>. not_found names the users that the keyring has.
result<Secret> parse_keyring(std::string_view text, std::string_view user);

result<CephConf> read_ceph_conf(const std::string& path);
/// Reads `path`; if that is empty, /etc/ceph/ceph.client.<user>.keyring or /etc/ceph/keyring.
result<Secret> read_keyring(const std::string& path, const std::string& user);

/// Calls find_cluster(); if `config_dir` has no config.json, returns the cluster of the Ceph configuration, if its fsid
/// is `cluster_id`. An empty `ceph_conf` means none.
result<ClusterEntry> find_cluster(const std::string& config_dir, const std::string& ceph_conf,
                                  std::string_view cluster_id);
/// Does the same for every cluster, also one without monitors. not_found: neither file exists, or `ceph_conf` is empty.
result<std::vector<ClusterEntry>> read_clusters(const std::string& config_dir, const std::string& ceph_conf);

}  // namespace corbd::rbd
