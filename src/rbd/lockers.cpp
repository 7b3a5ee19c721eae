#include "lockers.hpp"

#include <algorithm>

namespace corbd::rbd {

std::string kept_cookie(std::uint64_t watch) { return "auto " + std::to_string(watch) + " kept"; }
bool is_kept_cookie(std::string_view cookie) { return cookie.ends_with(" kept"); }

bool is_by_hand(std::string_view cookie, std::string_view tag) {
  return tag != "internal" || !cookie.starts_with("auto ");
}

std::optional<Error> locked_by_hand(const std::vector<Locker>& all, const std::string& image) {
  const auto found = std::ranges::find_if(all, &Locker::by_hand);
  if (found == all.end()) return std::nullopt;
  return Error{errc::in_use, "image " + image + " has the lock '" + found->cookie + "' of " + found->client + " at " +
                                 found->address +
                                 ", which somebody made by `rbd lock add`, or another program did. The agent breaks " +
                                 "no such lock. If nobody needs it, remove it: rbd lock remove " + image + " '" +
                                 found->cookie + "' " + found->client};
}

bool still_held(const std::string& cookie, duration absent, const std::vector<Locker>& now,
                const std::vector<std::string>& my_addresses) {
  if (now.size() != 1) return false;
  const Locker& locker = now.front();
  const bool mine = std::find(my_addresses.begin(), my_addresses.end(), locker.address) != my_addresses.end();
  return mine && (locker.cookie == cookie || absent < longest_absence);
}

}  // namespace corbd::rbd
