// Reads who holds an image's exclusive lock and who watches its header, and changes the lock, with plain RADOS calls.
// So the serving connection can break the lock of a dead incarnation, and nobody is blocklisted by that. Pool threads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lock_watch.hpp"

namespace corbd::rbd {

result<Lockers> list_lockers(const ImageHandle& opened);

struct Watcher {
  std::string address;       ///< bare address
  std::string client;        ///< "client.4119"
  std::uint64_t handle = 0;  ///< identifies one of that client's watches
  bool operator==(const Watcher&) const = default;
};
/// Returns each watcher once.
result<std::vector<Watcher>> list_watchers(const ImageHandle& opened);
enum class Locks { all, kept };
/// Breaks the lock, and sets the header's time of change to `break_time` in the same operation: any later change of the
/// header sets another. 0: the time is now. Returns the header's version after it. Locks::kept: only a lock that
/// librbd does not know as its own. unproven: the client does not hold such a lock.
result<std::uint64_t> break_lock_of(const ImageHandle& opened, const std::string& address, Locks which,
                                    std::int64_t break_time);

/// Sets the watch, and gives the lock that this client holds the watch's cookie. librbd then does not find the lock
/// when it closes the image, and other clients see the lock of a living client.
result<> keep_lock_of(const ImageHandle& opened, LockWatch& watch);

result<image::Header> look_at_header(Connection& connection, const image::Key& key);

/// Returns the lock's owners that would not answer a request for the lock, so that librbd would break it: dead clients,
/// which have no watch, and clients that keep it for the next one, this one among them. `watchers` are all watchers,
/// rbd-mirror's too. `mine` is this client, whose own watch may be missing for a moment.
std::vector<std::string> silent_owners(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                       const std::vector<std::string>& mine);

/// Translates the results of list_lockers and list_watchers into the port's terms. `mine` is the serving connection's
/// incarnation.
result<image::Ownership> classify(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                  const image::Key& image, const std::string& mine, const Incarnations& known);

}  // namespace corbd::rbd
