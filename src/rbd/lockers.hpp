// What the exclusive lock of an image looks like from outside, and whether the one that we took is still the one we took. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace corbd::rbd {

/// The exclusive lock on the header object, as librbd and krbd take it (cls_lock "rbd_lock").
struct Locker {
  std::string client;   ///< "client.4119"
  std::string cookie;   ///< "auto 140653669402400"
  std::string address;  ///< bare
};

struct Lockers {
  std::vector<Locker> all;    ///< a shared or foreign-made lock (`rbd lock add`) may have several
  std::uint64_t version = 0;  ///< of the header object when they were read; a watch does not change it, a lock does
};

/// A lock of ours as it was seen last.
struct HeldLock {
  std::string cookie;
  std::uint64_t version = 0;
  bool operator==(const HeldLock&) const = default;
};

/// After a watch was lost and set again librbd gives the lock the new watch's cookie, in one operation that succeeds only if the lock was
/// never gone (set_cookie of cls_lock): then the header's version grew by one. If that fails librbd takes the lock anew by itself: another
/// client may have had the image in between. Nothing when the lock is not ours any more, or not proven to be the same.
std::optional<HeldLock> still_held(const HeldLock& held, const Lockers& now, const std::vector<std::string>& my_addresses);

}  // namespace corbd::rbd
