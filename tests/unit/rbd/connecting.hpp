// Connections whose librados clients are connected to nothing, of clusters that answer as a test wants.
#pragma once

#include <atomic>
#include <future>
#include <memory>

#include "connections.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#endif

namespace corbd::test {

inline image::Access access(const std::string& cluster, const std::string& user = "node",
                            const std::string& key = "key") {
  return {cluster, {"10.0.0.9"}, user, Secret(key), {}};
}

/// Clusters of which some hang until the test's end.
struct Connecting {
  std::promise<void> end;
  std::shared_future<void> ended{end.get_future()};
  Folder folder;
  Loop loop;
  BlockingPool files{loop.control(), loop.clock, 4};
  std::unique_ptr<rbd::Connections> connections = std::make_unique<rbd::Connections>(
      loop.control(), loop.clock, files, rbd::Config{folder.path()},
      [this](const image::Access& to, rbd::Timeouts timeouts) { return dial(to, timeouts); });

  /// Another agent instead, with those clusters.
  void begin_anew(rbd::Config config) {
    connections = std::make_unique<rbd::Connections>(
        loop.control(), loop.clock, files, std::move(config),
        [this](const image::Access& to, rbd::Timeouts timeouts) { return dial(to, timeouts); });
  }
  result<rbd::Connected> dial(const image::Access& to, rbd::Timeouts timeouts) {
    osds_within = timeouts.osds;
    return dial(to);
  }
  result<rbd::Connected> dial(const image::Access& to) {
    if (to.cluster_id.starts_with("hangs")) ended.wait();
    if (to.key != Secret("key")) return Error{errc::unauthenticated, "refused"};
    rbd::Connected made;
#if __has_feature(address_sanitizer)
    const __lsan::ScopedDisabler
        abandoned;  // a connection that is made while the agent leaves is not shut: its process ends
#endif
    rados_create2(&made.cluster, "ceph", "client.test", 0);
    made.fsid = "fsid of " + to.cluster_id;
    made.addresses = {"10.0.0.1:0/" + std::to_string(++dialled)};
    if (node_fenced) made.node_fenced = Error{errc::node_fenced, "fenced"};
    return made;
  }
  result<rbd::Lease>& get(Started<result<rbd::Lease>>& from) { return from.get(); }
  std::unique_ptr<Started<result<rbd::Lease>>> lease(image::Access to, Until until = {},
                                                     rbd::Connections::Need need = rbd::Connections::Need::any) {
    return std::make_unique<Started<result<rbd::Lease>>>(loop.io, connections->lease(std::move(to), need, until));
  }
  result<> reload_predecessor_clients(bool alone) {
    return Started<result<>>(loop.io, connections->reload_predecessor_clients(alone)).get();
  }
  ~Connecting() {
    end.set_value();
    Started<result<>>(loop.io, connections->shutdown({}, {})).get();
    connections.reset();
  }
  std::atomic<int> dialled = 0;
  std::atomic<std::chrono::seconds> osds_within{};  ///< of the last one
  std::atomic<bool> node_fenced = false;            ///< the blocklist has this node's address
};

}  // namespace corbd::test
