#include "lockers.hpp"

#include <algorithm>

namespace corbd::rbd {

std::string kept_cookie(std::uint64_t watch) { return "auto " + std::to_string(watch) + " kept"; }
bool is_kept_cookie(std::string_view cookie) { return cookie.ends_with(" kept"); }

bool still_held(const std::string& cookie, duration absent, const std::vector<Locker>& now,
                const std::vector<std::string>& my_addresses) {
  if (now.size() != 1) return false;
  const Locker& locker = now.front();
  const bool mine = std::find(my_addresses.begin(), my_addresses.end(), locker.address) != my_addresses.end();
  return mine && (locker.cookie == cookie || absent < longest_absence);
}

}  // namespace corbd::rbd
