// The exclusive lock of an image as seen from outside, and whether we still hold the lock that we took. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/core/clock.hpp"
#include "corbd/core/result.hpp"

namespace corbd::rbd {

/// The exclusive lock on the header object, as librbd and krbd take it (cls_lock "rbd_lock").
struct Locker {
  std::string client;    ///< "client.4119"
  std::string cookie;    ///< "auto 140653669402400"
  std::string address;   ///< bare address
  bool by_hand = false;  ///< is_by_hand()
};

/// Whether the lock is not one that a client took in order to write: somebody made it by `rbd lock add`, or another
/// program did. Its owner needs no watch, and only its maker knows its purpose. librbd and the kernel break no such
/// lock either. On an image without exclusive-lock they ignore locks, so there it is like any other.
bool is_by_hand(std::string_view cookie, std::string_view tag, bool exclusive_lock);
/// in_use, with the way out, if one of the locks is by hand. The texts of a lock are its maker's choice. Only plain
/// ones get into a command that root may copy. `image`: as in commands.
std::optional<Error> locked_by_hand(const std::vector<Locker>& all, const std::string& image);

/// Makes the cookie of a lock whose owner keeps it for the next agent, and watches the header with that handle only for
/// this. librbd and the kernel's client read the number, find the watch, and take the owner for alive. They ignore the
/// rest, which tells the next agent that this watch is not an open image's.
std::string kept_cookie(std::uint64_t watch);
bool is_kept_cookie(std::string_view cookie);

struct Lockers {
  std::vector<Locker> all;    ///< a shared lock may have several
  std::uint64_t version = 0;  ///< version of the header when they were read; a lock changes it, a watch does not
};

/// The longest absence after which we still believe in our lock with another cookie. A client that takes the lock from
/// us first has us blocklisted, for an hour at least (osd_blocklist_default_expire). After that hour our client would
/// work again as if nothing had happened.
constexpr std::chrono::minutes longest_absence{30};

/// Whether the lock that we took is still ours. After a lost watch librbd gives the lock the cookie of the new watch.
/// If the lock is gone, librbd takes it again by itself, which looks the same. Then another client may have had the
/// image, unless the cluster would have cut us off for that. `cookie` is the one last seen. `absent` is the time since
/// then.
bool still_held(const std::string& cookie, duration absent, const std::vector<Locker>& now,
                const std::vector<std::string>& my_addresses);

}  // namespace corbd::rbd
