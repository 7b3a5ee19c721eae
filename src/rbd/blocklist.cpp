#include "blocklist.hpp"

#include <boost/json/parse.hpp>

#include <algorithm>
#include <array>
#include <map>

#include "at_once.hpp"
#include "blocklist_json.hpp"
#include "connect.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"
#include "failure.hpp"
#include "incarnation.hpp"
#include "mon_command.hpp"

namespace corbd::rbd {
namespace {

using Entry = image::BlocklistEntry;
using Kind = image::BlocklistEntry::Kind;

}  // namespace

result<std::vector<Entry>> list_blocklist(rados_t cluster, std::vector<std::string>* unknown) {
  const MonAnswer answer = ask_monitors(cluster, {{"prefix", "osd blocklist ls"}, {"format", "json"}});
  if (answer.code == -EACCES || answer.code == -EPERM)
    return Error{errc::permission_denied,
                 "reading the blocklist: " + reason(answer.code) + ": give the user the mon caps 'profile rbd'"};
  if (answer.code < 0) return failure("reading the blocklist", answer.code);
  return parse_blocklist(answer.output, unknown);
}

namespace {

/// Serves callers that look for their own entries: another client's entry that is not understood must not stop a fence.
result<std::vector<Entry>> list_own(rados_t cluster) {
  std::vector<std::string> unknown;
  auto entries = list_blocklist(cluster, &unknown);
  if (entries && !unknown.empty())
    log::warning("blocklist.entries_unknown", {{"count", unknown.size()}, {"first", unknown.front()}});
  return entries;
}

/// Monitors without ranges take "10.0.0.0/24" for one client, and cut off nobody.
result<bool> knows_ranges(rados_t cluster) {
  const MonAnswer answer = ask_monitors(cluster, {{"prefix", "get_command_descriptions"}});
  if (answer.code < 0) return failure("asking the monitors which commands they know", answer.code);
  boost::system::error_code failed;
  const auto all = boost::json::parse(answer.output, failed);
  if (failed || !all.is_object())
    return Error{errc::unavailable, "the monitors' list of commands is not what this agent knows"};
  for (const auto& [name, one] : all.get_object()) {
    const auto* words = one.is_object() ? one.get_object().if_contains("sig") : nullptr;
    if (words == nullptr || !words->is_array()) continue;
    const auto& sig = words->get_array();
    if (sig.size() < 3 || sig[0] != "osd" || sig[1] != "blocklist" || !sig[2].is_object()) continue;
    const auto* first = sig[2].get_object().if_contains("name");
    if (first != nullptr && *first == "range") return true;
  }
  return false;
}

using MonitorsTime = std::optional<std::chrono::system_clock::time_point>;

/// Returns the monitors' clock, as far as it is known.
result<MonitorsTime> change(rados_t cluster, const Entry& entry, std::optional<std::chrono::seconds> block_for) {
  boost::json::object words{{"prefix", "osd blocklist"},
                            {"blocklistop", block_for ? "add" : "rm"},
                            {"addr", block_for || entry.spelled.empty() ? entry.text() : entry.spelled}};
  if (entry.kind == Kind::range) words["range"] = "range";
  if (block_for) words["expire"] = static_cast<double>(block_for->count());
  const MonAnswer answer = ask_monitors(cluster, words);
  const std::string doing = (block_for ? "blocking " : "unblocking ") + entry.text();
  if (answer.code == -EACCES || answer.code == -EPERM) {
    // 'profile rbd' allows adding clients and ranges, and nothing else (seen on 16.2.15).
    const bool profile = block_for && entry.kind != Kind::host;
    return Error{errc::permission_denied,
                 doing + ": " + reason(answer.code) + ": give the user the mon caps " +
                     (profile ? "'profile rbd'" : "'profile rbd, allow command \"osd blocklist\"'")};
  }
  if (answer.code < 0) {
    Error error = failure(doing, answer.code);
    if (!answer.text.empty()) error.text += " (" + answer.text + ")";
    return error;
  }
  const auto end = block_for ? end_in_answer(answer.text) : std::nullopt;
  return end ? MonitorsTime(*end - *block_for) : std::nullopt;
}

std::vector<result<MonitorsTime>> change_all(rados_t cluster, const std::vector<Entry>& entries, bool ranges,
                                             std::optional<std::chrono::seconds> block_for) {
  std::vector<result<MonitorsTime>> results(entries.size(), MonitorsTime());
  const auto one = [&](std::size_t i) {
    if (entries[i].kind == Kind::range && !ranges)
      results[i] = Error{errc::unimplemented, "the monitors know no ranges of addresses"};
    else
      results[i] = change(cluster, entries[i], block_for);
  };
  for (std::size_t from = 0; from < entries.size(); from += kCommandsAtOnce) {
    const std::size_t count = std::min(kCommandsAtOnce, entries.size() - from);
    at_once(count, kCommandsAtOnce, [&](std::size_t i) { one(from + i); });
    if (entries.size() > 4 * kCommandsAtOnce)
      log::info("blocklist.progress", {{"done", from + count}, {"total", entries.size()}});
  }
  return results;
}

/// Ceph keeps the end of an existing entry, so a fence that ends too early does not count.
Error ends_early(const Entry& there) {
  return {errc::failed_precondition,
          there.text() + " is in the blocklist already, until " + utc_text(there.until) +
              ", and Ceph does not extend it. Fence it again after that time, or first remove the entry with `ceph osd "
              "blocklist " +
              (there.kind == Kind::range ? "range " : "") + "rm " +
              (there.spelled.empty() ? there.text() : there.spelled) +
              "`: its clients can write until you fence it again"};
}

}  // namespace

result<BlocklistChange> change_and_look(rados_t cluster, const std::vector<Entry>& entries,
                                        std::optional<std::chrono::seconds> block_for,
                                        std::chrono::system_clock::time_point wall) {
  const bool has_ranges = std::ranges::any_of(entries, [](const auto& entry) { return entry.kind == Kind::range; });
  const auto ranges = has_ranges ? knows_ranges(cluster) : result<bool>(true);
  if (!ranges) return ranges.error();
  const auto changed = change_all(cluster, entries, *ranges, block_for);
  const auto listed = list_own(cluster);
  if (!listed)
    return with_context("the monitors accepted the commands, but the blocklist cannot be read", listed.error());
  std::map<std::pair<Kind, std::string>, const Entry*> found;
  for (const auto& entry : *listed) found.emplace(std::pair(entry.kind, entry.text()), &entry);
  BlocklistChange change;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto& result_of_it = change.results.emplace_back();
    if (!changed[i]) {
      result_of_it = changed[i].error();
      continue;
    }
    const auto there = found.find({entries[i].kind, entries[i].text()});
    if ((there != found.end()) != block_for.has_value()) {
      result_of_it = Error{errc::unavailable, entries[i].text() + (block_for ? " is not" : " is still") +
                                                  " in the blocklist, although the monitors accepted the command"};
      continue;
    }
    if (!block_for) continue;
    if (*changed[i]) change.monitors_now = *changed[i];
    const auto left = there->second->until - changed[i]->value_or(wall);
    if (image::is_long_enough(std::chrono::ceil<std::chrono::seconds>(left), *block_for)) continue;
    if (entries[i].kind == Kind::client)
      change.ending_early.push_back(*there->second);
    else
      result_of_it = ends_early(*there->second);
  }
  return change;
}

result<bool> has_own_entry(rados_t cluster, const std::string& client) {
  const auto entries = list_blocklist(cluster);
  if (!entries) return entries.error();
  const auto names_it = [&](const Entry& entry) { return entry.kind == Kind::client && entry.client == client; };
  return std::ranges::any_of(*entries, names_it);
}

// Monitors check the rights before they parse the address, which is invalid here.
std::optional<std::string> find_missing_right(rados_t cluster, const std::string& user) {
  const MonAnswer answer = ask_monitors(
      cluster, {{"prefix", "osd blocklist"}, {"blocklistop", "add"}, {"addr", "corbd-asks/0"}, {"expire", 1.0}});
  if (answer.code != -EACCES && answer.code != -EPERM) return std::nullopt;
  return "Ceph user " + user +
         " may not blocklist clients, so a volume would get no server after a crash of the agent or of its node: give "
         "the user the mon caps 'profile rbd'";
}

std::optional<Error> find_fence(rados_t cluster, const std::string& cluster_id,
                                const std::vector<std::string>& addresses) {
  const auto entries = list_blocklist(cluster);
  if (!entries) {
    log::warning("blocklist.unread", {{"cluster", cluster_id}, {"error", entries.error().text}});
    return std::nullopt;
  }
  const image::Blocklist now{"", *entries};
  for (const auto& address : addresses)
    if (const auto* entry = now.find(address); entry != nullptr && entry->kind != Kind::client)
      return Error{errc::node_fenced, "cluster " + cluster_id + " has fenced this node: its blocklist refuses " +
                                          entry->text() + " until " + utc_text(entry->until) +
                                          ", and this node's clients have " + address +
                                          ". Nothing of that cluster is served here until somebody unfences it"};
  return std::nullopt;
}

/// This is one of the checks of renewal.cpp.
result<RenewalLook> look_at_short_entries(rados_t cluster, const std::vector<ShortEntry>& entries,
                                          std::optional<std::chrono::system_clock::time_point> monitors_now,
                                          std::chrono::system_clock::time_point wall) {
  RenewalLook look;
  const auto block = [&](const ShortEntry& entry) {
    const auto client = image::entry_of_client(entry.client);
    return client ? change(cluster, *client, kBlocklistTime) : result<MonitorsTime>(client.error());
  };
  if (!monitors_now && !entries.empty()) {
    // This changes nothing while the entry exists, and returns the time.
    const auto told = block(entries.front());
    if (!told) return told.error();
    look.monitors_now = monitors_now = *told;
  }
  const auto listed = list_own(cluster);
  if (!listed) return listed.error();
  for (const auto& entry : entries) {
    const auto next = next_renewal(entry, *listed, monitors_now.value_or(wall), monitors_now.has_value());
    if (next.step == Renewal::Step::forget) {
      look.forget.push_back(entry.uuid);
      continue;
    }
    if (next.step == Renewal::Step::add) {
      if (const auto added = block(entry); !added) {
        look.failed = added.error();
        continue;
      }
      look.added.push_back(entry.client);
    }
    look.again_in = std::min(look.again_in, next.look_again);
  }
  return look;
}

}  // namespace corbd::rbd
