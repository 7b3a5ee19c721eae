#include "connect.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/join.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "address.hpp"
#include "corbd/core/base64.hpp"
#include "failure.hpp"
#include "incarnation.hpp"

namespace corbd::rbd {
namespace {

constexpr const char* kCephConf = "/etc/ceph/ceph.conf";

struct Setting {
  const char* name;
  std::string value;
};

/// The options that our promises need.
std::vector<Setting> settings(const image::Access& access, Timeouts timeouts) {
  const std::string timeout = std::to_string(timeouts.monitors.count());
  return {
      {"mon_host", boost::algorithm::join(access.monitors, ",")},
      {"client_mount_timeout", timeout},
      {"rados_mon_op_timeout", timeout},
      {"rados_osd_op_timeout", std::to_string(timeouts.osds.count())},
      {"rbd_cache", "false"},
      // With zero copy, a write that fails before it reaches an object (no lock, read-only, out of range) never
      // completes. The request holds the buffer that its completion waits for (seen on 16.2.15).
      {"rbd_disable_zero_copy_writes", "true"},
      // Room for everything that a thousand devices can have under way, at 256 requests each and 64 operations for a
      // piece of a discard. At these limits librados would block the caller, and so all devices of the connection.
      {"objecter_inflight_ops", "16777216"},
      {"objecter_inflight_op_bytes", std::to_string(8ULL << 30)},
      {"rbd_blocklist_on_break_lock", "true"},
      // Any other value reaches the monitors as text. They refuse it, and librbd then breaks no lock (seen on 16.2.15).
      {"rbd_blocklist_expire_seconds", "0"},
  };
}

/// Options without which the agent works, too. A release may lack one.
const std::array<Setting, 9> kQuiet{{{"keyring", ""},
                                     {"admin_socket", ""},
                                     {"log_file", ""},
                                     {"log_to_stderr", "false"},
                                     {"err_to_stderr", "false"},
                                     {"log_to_syslog", "false"},
                                     {"rbd_plugins", ""},
                                     // With this, only others' writes change an image's modify timestamp
                                     // (plan/proof.cpp).
                                     {"rbd_mtime_update_interval", "0"},
                                     {"rbd_persistent_cache_mode", "disabled"}}};

/// Options that must be off, whatever ceph.conf, the cluster or mapOptions say. A release may lack one.
const std::array<Setting, 1> kOff{{
    // A read that is split over replicas comes back in the wrong order, or with another read's bytes
    // (docs/sources.md#split-reads).
    {"osd_min_split_replica_read_size", "0"},
}};

result<> configure(rados_t cluster, const image::Access& access, Timeouts timeouts) {
  // ceph-csi reads this file too. It may be missing.
  if (::access(kCephConf, R_OK) == 0)
    if (const int r = rados_conf_read_file(cluster, kCephConf); r < 0)
      return failure(std::string("reading ") + kCephConf, r);
  for (const auto& [name, value] : kQuiet) rados_conf_set(cluster, name, value.c_str());
  for (const auto& [name, value] : access.config)
    if (rados_conf_set(cluster, name.c_str(), value.c_str()) < 0)
      return Error{errc::invalid_argument, "mapOptions: Ceph does not know the option " + name +
                                               ", or refuses its value: check the volume's attributes"};
  for (const auto& [name, value] : kOff) rados_conf_set(cluster, name, value.c_str());
  for (const auto& [name, value] : settings(access, timeouts))
    if (const int r = rados_conf_set(cluster, name, value.c_str()); r < 0)
      return failure(std::string("setting ") + name + " for " + cluster_text(access), r);
  const Secret key = access.key;
  if (!is_key(key.reveal()) || rados_conf_set(cluster, "key", key.reveal().data()) < 0)
    return Error{errc::unauthenticated,
                 "the key of user " + access.user + " is not a Ceph key: check userKey in the secret"};
  return {};
}

result<> ask_identity(Connected& into) {
  std::array<char, 64> fsid{};
  if (const int r = rados_cluster_fsid(into.cluster, fsid.data(), fsid.size()); r < 0)
    return failure("asking for the fsid", r);
  into.fsid = fsid.data();
  char* text = nullptr;
  if (const int r = rados_getaddrs(into.cluster, &text); r < 0)
    return failure("asking for the client's own address", r);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  into.addresses = parse_addresses(text);
  if (into.addresses.empty())
    return Error{errc::internal, std::string("librados gave an unreadable address for the client itself: ") + text};
  if (const int r = rados_wait_for_latest_osdmap(into.cluster); r < 0) return failure("waiting for the OSD map", r);
  return {};
}

}  // namespace

Error connect_error(const image::Access& access, int r) {
  const std::string where = cluster_text(access);
  switch (-r) {
    case ETIMEDOUT:
      return {errc::unavailable, where + " does not answer: check the monitors' addresses and the network to them"};
    case EACCES:
    case EPERM:
      return {errc::unauthenticated,
              where + " refuses user " + access.user +
                  ": Ceph does not say whether the user is gone or its key is wrong. `ceph auth get client." +
                  access.user +
                  "` fails if the user is gone, and otherwise prints the key: compare that with userKey in the secret"};
    case ENOENT:
    case EINVAL:
      return {errc::unavailable, "connecting to " + where + " as " + access.user + ": " + reason(r) +
                                     ": check that the monitors' names resolve"};
    default:
      return {code_of(r) == errc::io ? errc::unavailable : code_of(r), "connecting to " + where + ": " + reason(r)};
  }
}

bool is_key(std::string_view text) {
  constexpr std::size_t header = 12;
  const Secret decoded(from_base64(text).value_or(""));
  const auto bytes = decoded.reveal();
  if (bytes.size() <= header) return false;
  const auto at = [&](std::size_t place) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[place])); };
  return header + (at(10) | at(11) << 8) == bytes.size();
}

std::string cluster_text(const image::Access& access) {
  return "cluster " + access.cluster_id + " (monitors " + boost::algorithm::join(access.monitors, ",") + ")";
}

result<Connected> connect(const image::Access& access, Timeouts timeouts) {
  Connected made;
  const std::string user = "client." + access.user;
  if (const int r = rados_create2(&made.cluster, "ceph", user.c_str(), 0); r < 0)
    return failure("preparing a Ceph client", r);
  auto done = configure(made.cluster, access, timeouts);
  if (done)
    if (const int r = rados_connect(made.cluster); r < 0) done = connect_error(access, r);
  if (done)
    if (auto asked = ask_identity(made); !asked) done = with_context(cluster_text(access), asked.error());
  if (done) {
    made.node_fenced = find_fence(made.cluster, access.cluster_id, made.addresses);
    made.cannot_fence = find_missing_right(made.cluster, access.user);
    return made;
  }
  rados_shutdown(made.cluster);
  return done.error();
}

result<std::int64_t> pool_id(rados_t cluster, const std::string& name) {
  const std::int64_t id = rados_pool_lookup(cluster, name.c_str());
  if (id == -ENOENT)
    return Error{errc::not_found, "pool " + name + " does not exist: check the pool of the StorageClass or the volume"};
  if (id < 0) return failure("looking up pool " + name, static_cast<int>(id));
  return id;
}

result<OpenPool> open_pool(rados_t cluster, std::int64_t id, const std::string& ns) {
  std::array<char, 512> name{};
  int r = rados_pool_reverse_lookup(cluster, id, name.data(), name.size());
  if (r == -ENOENT) return Error{errc::not_found, "pool number " + std::to_string(id) + " does not exist any more"};
  rados_ioctx_t io = nullptr;
  if (r >= 0) r = rados_ioctx_create2(cluster, id, &io);
  if (r < 0) return failure("opening pool number " + std::to_string(id), r);
  OpenPool open{IoCtx(io), name.data(), std::string(name.data()) + (ns.empty() ? "" : "/" + ns)};
  rados_ioctx_set_namespace(io, ns.c_str());
  return open;
}

}  // namespace corbd::rbd
