#include "endings.hpp"

#include <cstdlib>
#include <utility>

#include "connections.hpp"
#include "corbd/core/log.hpp"
#include "lock_watch.hpp"

namespace corbd::rbd {
namespace {

constexpr std::chrono::hours kEndsBefore{1};
constexpr std::chrono::seconds kLogEndsWithin{1};

}  // namespace

Endings::Endings(Connections& all, Incarnations& incarnations)
    : all_(all), incarnations_(incarnations), shuts_(all.control(), all.clock()) {}

void Endings::drop(const std::shared_ptr<Connection>& connection) {
  connection->dropped = true;
  if (!connection->recorded) return incarnations_.remove(connection->uuid);
  ending_.insert(connection->uuid);
  // Another program's entry may have been short, and have ended.
  incarnations_.set_state(connection->uuid, Incarnation::State::dead);
  end_before_entry(connection);
}

/// A client without tickets never ends, and sends its operations again once its user is let in.
void Endings::end_before_entry(const std::shared_ptr<Connection>& connection) {
  all_.clock().schedule(all_.clock().now() + kBlocklistTime - kEndsBefore, [this, weak = std::weak_ptr(connection)] {
    const auto still = weak.lock();
    if (!still || still->cluster == nullptr) return;
    log::error(
        "cluster.client_never_ends",
        {{"cluster", still->group->access.cluster_id},
         {"address", still->addresses.front()},
         {"effect", "this agent ends before the client's blocklist entry does, and the next one heals every device"}});
    if (all_.config().end_process) return all_.config().end_process();
    log::drain(kLogEndsWithin);
    std::abort();
  });
}

task<> Endings::shut_one(std::shared_ptr<Connection> connection) {
  rados_t cluster = std::exchange(connection->cluster, nullptr);
  if (connection->recorded) ending_.insert(connection->uuid);
  // Nothing of a client that ended cleanly can arrive any more, as if it were fenced.
  Incarnation ended{Incarnation::State::fenced, connection->uuid,
                    connection->fsid,           connection->group->access.cluster_id,
                    connection->addresses,      seconds_since_1970(all_.clock()),
                    all_.config().boot_id,      true};
  auto end = [cluster, dir = all_.config().incarnations_dir, ended, recorded = connection->recorded,
              well = connection->clean && !connection->dropped, keeps = connection->keeps_locks,
              watches = std::exchange(connection->lock_watches, {})] {
    // The cluster ends these watches later. Ending them here would change headers whose break time shows that we broke
    // our own lock.
    for (const auto& watch : watches) watch->silence();
    rados_shutdown(cluster);
    if (!recorded || !well) return result<>();
    return keeps ? save_incarnation(dir, ended) : forget_incarnation(dir, ended.uuid);
  };
  const auto closed =
      co_await connection->threads->cluster.call_to_end(all_.gate(), std::move(end), "closing a connection", false);
  ending_.erase(connection->uuid);
  if (!closed) log::warning("incarnation.not_forgotten", {{"error", closed.error().text}});
  if (connection->dropped) co_return;
  if (connection->recorded && (!connection->clean || !closed)) {
    incarnations_.set_state(connection->uuid, Incarnation::State::dead);
    co_return;
  }
  if (connection->keeps_locks)
    incarnations_.replace(connection->uuid, std::move(ended));
  else
    incarnations_.remove(connection->uuid);
}

}  // namespace corbd::rbd
