// Who holds an image's exclusive lock and who watches its header, read and broken with plain RADOS calls: the lock of a
// dead incarnation can be broken on the serving connection, and nobody is blocklisted by it. Pool threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "opened.hpp"

namespace corbd::rbd {

result<Lockers> list_lockers(Opened& opened);

struct Watcher {
  std::string address;  ///< bare
  std::string client;   ///< "client.4119"
  bool operator==(const Watcher&) const = default;
};
/// Without repetitions.
result<std::vector<Watcher>> list_watchers(Opened& opened);
/// Breaks it, and sets the header's time of change to `mark` in the same operation: any later change of the header sets
/// another.
result<> break_lock_of(Opened& opened, const std::string& address, std::int64_t mark);

result<image::Header> look_at_header(Connection& connection, const image::Key& key);

/// Who has the lock and no watch any more: dead clients, whose lock librbd breaks once they are blocklisted.
/// `watchers`: all of them, rbd-mirror's too. `mine`: this client, whose own watch may be away for a moment.
std::vector<std::string> dead_owners(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                     const std::vector<std::string>& mine);

/// What list_lockers and list_watchers found, in the port's words. `mine`: the serving connection's incarnation.
result<image::Ownership> classify(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                  const std::string& fsid, const std::string& mine, const Incarnations& known);

}  // namespace corbd::rbd
