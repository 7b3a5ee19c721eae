#include "lockers.hpp"

#include <algorithm>

namespace corbd::rbd {

std::optional<HeldLock> still_held(const HeldLock& held, const Lockers& now, const std::vector<std::string>& my_addresses) {
  if (now.all.size() != 1) return std::nullopt;
  const Locker& locker = now.all.front();
  const bool mine = std::find(my_addresses.begin(), my_addresses.end(), locker.address) != my_addresses.end();
  const bool same = locker.cookie == held.cookie || now.version == held.version + 1;
  if (!mine || !same) return std::nullopt;
  return HeldLock{locker.cookie, now.version};
}

}  // namespace corbd::rbd
