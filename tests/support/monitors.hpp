// Monitors that keep a blocklist by their own clock, and remember who asked. As with Ceph's, an existing entry keeps
// its end. They may know no ranges, or refuse an entry.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "support/still_ports.hpp"

namespace corbd::test {

class Monitors final : public still::Clusters {
 public:
  task<result<image::Blocklist>> blocklist(image::Access access, Until) override {
    asked_as = access.user + " " + std::string(access.key.reveal());
    co_return now;
  }
  task<result<std::vector<result<>>>> block(image::Access, std::vector<image::BlocklistEntry> entries,
                                            std::chrono::seconds duration, Until) override {
    ++calls;
    lasting = duration;
    std::vector<result<>> results;
    for (auto& entry : entries) {
      auto& done = results.emplace_back(may(entry));
      if (!done) continue;
      ++added;
      entry.until = clock + duration;
      const auto known = std::ranges::find_if(now.entries, [&](const auto& one) { return one.same_target(entry); });
      if (known == now.entries.end())
        now.entries.push_back(entry);
      else if (!image::is_long_enough(left(entry.text()), duration))
        done = Error{errc::failed_precondition, entry.text() + " keeps its end"};
    }
    co_return results;
  }
  task<result<std::vector<result<>>>> unblock(image::Access, std::vector<image::BlocklistEntry> entries,
                                              Until) override {
    std::vector<result<>> results;
    for (const auto& entry : entries) {
      const auto& done = results.emplace_back(may(entry));
      if (done) std::erase_if(now.entries, [&](const auto& other) { return other.same_target(entry); });
    }
    co_return results;
  }
  /// Blocklists clients that have ended, as the real agent does.
  task<result<image::OwnClients>> end_refused(image::Access, Until) override {
    if (clients)
      for (const auto& client : clients->known) {
        auto entry = image::entry_of_client(client).value();
        entry.until = clock + image::kLongestAway;
        if (std::ranges::find(clients->left, client) == clients->left.end() &&
            std::ranges::none_of(now.entries, [&](const auto& one) { return one.same_target(entry); }))
          now.entries.push_back(std::move(entry));
      }
    co_return clients;
  }
  /// Leaves out the entries of single clients.
  std::vector<std::string> listed() const {
    std::vector<std::string> all;
    for (const auto& entry : now.entries)
      if (entry.kind != image::BlocklistEntry::Kind::client) all.push_back(entry.text());
    return all;
  }

  std::chrono::seconds left(const std::string& text) const {
    for (const auto& entry : now.entries)
      if (entry.text() == text) return std::chrono::duration_cast<std::chrono::seconds>(entry.until - clock);
    return {};
  }
  /// Advances the clock. Entries that have ended are removed.
  void pass(std::chrono::seconds time) {
    clock += time;
    std::erase_if(now.entries, [&](const auto& entry) { return entry.until <= clock; });
  }

  image::Blocklist now{"fsid"};
  result<image::OwnClients> clients = image::OwnClients{};
  /// Differs by days from the clocks of the nodes.
  std::chrono::system_clock::time_point clock{std::chrono::hours(400000)};
  bool ranges = true;
  std::string refuses;  ///< an entry to refuse, as text
  int calls = 0;        ///< number of calls that block
  int added = 0;        ///< number of entries, including existing ones
  std::chrono::seconds lasting{};
  std::string asked_as;  ///< user and key

 private:
  result<> may(const image::BlocklistEntry& entry) const {
    if (entry.kind == image::BlocklistEntry::Kind::range && !ranges)
      return Error{errc::unimplemented, "the monitors know no ranges"};
    if (refuses == entry.text()) return Error{errc::permission_denied, "no caps"};
    return {};
  }
};

}  // namespace corbd::test
