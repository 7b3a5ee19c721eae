#include "lockers.hpp"

#include <algorithm>

#include "corbd/core/text.hpp"

namespace corbd::rbd {
namespace {

/// Whether the text is no option, and has no meaning to a shell.
bool is_plain(std::string_view text, std::string_view also = "") {
  constexpr std::size_t most = 255;
  return !text.empty() && text.size() <= most && !text.starts_with('-') && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_./@-").find(c) != std::string_view::npos || also.find(c) != std::string_view::npos;
  });
}

std::string removal(const Locker& lock, const std::string& image) {
  if (!is_plain(image) || !is_plain(lock.client) || !is_plain(lock.cookie, " "))
    return "remove it: `rbd lock ls` shows what `rbd lock rm` needs";
  return "remove it: rbd lock remove " + image + " '" + lock.cookie + "' " + lock.client;
}

}  // namespace

std::string kept_cookie(std::uint64_t watch) { return "auto " + std::to_string(watch) + " kept"; }
bool is_kept_cookie(std::string_view cookie) { return cookie.ends_with(" kept"); }

bool is_by_hand(std::string_view cookie, std::string_view tag, bool exclusive_lock) {
  return exclusive_lock && (tag != "internal" || !cookie.starts_with("auto "));
}

std::optional<Error> locked_by_hand(const std::vector<Locker>& all, const std::string& image) {
  const auto found = std::ranges::find_if(all, &Locker::by_hand);
  if (found == all.end()) return std::nullopt;
  return Error{errc::in_use,
               "image " + image + " has the lock '" + printable(found->cookie) + "' of " + printable(found->client) +
                   " at " + found->address +
                   ", which somebody made by `rbd lock add`, or another program did. The agent breaks no such lock. " +
                   "If nobody needs it, " + removal(*found, image)};
}

bool still_held(const std::string& cookie, duration absent, const std::vector<Locker>& now,
                const std::vector<std::string>& my_addresses) {
  if (now.size() != 1) return false;
  const Locker& locker = now.front();
  const bool mine = std::find(my_addresses.begin(), my_addresses.end(), locker.address) != my_addresses.end();
  return mine && (locker.cookie == cookie || absent < longest_absence);
}

}  // namespace corbd::rbd
