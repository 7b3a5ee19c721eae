// The cluster's blocklist, by commands to its monitors.
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "at_once.hpp"
#include "blocklist_json.hpp"
#include "connections.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"
#include "failure.hpp"

namespace corbd::rbd {
namespace {

using Entry = image::BlocklistEntry;
using Kind = image::BlocklistEntry::Kind;

// Each command waits for a commit of the monitors, and commands that are under way together share one.
constexpr std::size_t kCommandsAtOnce = 64;

struct MonAnswer {
  int code = 0;
  std::string output;
  std::string text;  ///< for people
};

MonAnswer command(rados_t cluster, const boost::json::object& words) {
  const std::string line = boost::json::serialize(words);
  const char* lines[] = {line.c_str()};
  char* output = nullptr;
  char* text = nullptr;
  std::size_t output_size = 0, text_size = 0;
  const int code = rados_mon_command(cluster, lines, 1, nullptr, 0, &output, &output_size, &text, &text_size);
  const std::unique_ptr<char, void (*)(char*)> owned_output(output, &rados_buffer_free);
  const std::unique_ptr<char, void (*)(char*)> owned_text(text, &rados_buffer_free);
  return {code, std::string(output == nullptr ? "" : output, output_size),
          std::string(text == nullptr ? "" : text, text_size)};
}

result<std::vector<Entry>> list(rados_t cluster) {
  const MonAnswer answer = command(cluster, {{"prefix", "osd blocklist ls"}, {"format", "json"}});
  if (answer.code == -EACCES || answer.code == -EPERM)
    return Error{errc::permission_denied,
                 "reading the blocklist: " + reason(answer.code) + ": give the user the mon caps 'profile rbd'"};
  if (answer.code < 0) return failure("reading the blocklist", answer.code);
  return parse_blocklist(answer.output);
}

/// A monitor that does not know ranges takes "10.0.0.0/24" for one client, and cuts off nobody.
result<bool> knows_ranges(rados_t cluster) {
  const MonAnswer answer = command(cluster, {{"prefix", "get_command_descriptions"}});
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

result<> change(rados_t cluster, const Entry& entry, std::optional<std::chrono::seconds> block_for) {
  boost::json::object words{{"prefix", "osd blocklist"},
                            {"blocklistop", block_for ? "add" : "rm"},
                            {"addr", block_for || entry.spelled.empty() ? entry.text() : entry.spelled}};
  if (entry.kind == Kind::range) words["range"] = "range";
  if (block_for) words["expire"] = static_cast<double>(block_for->count());
  const MonAnswer answer = command(cluster, words);
  const std::string doing = (block_for ? "blocking " : "unblocking ") + entry.text();
  if (answer.code == -EACCES || answer.code == -EPERM) {
    // 'profile rbd' allows to add clients and ranges, and nothing else (seen on 16.2.15).
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
  return {};
}

std::vector<result<>> change_all(rados_t cluster, const std::vector<Entry>& entries, bool ranges,
                                 std::optional<std::chrono::seconds> block_for) {
  std::vector<result<>> results(entries.size(), result<>());
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
      log::info("blocklist.progress", {{"done", from + count}, {"of", entries.size()}});
  }
  return results;
}

/// The monitors put a new end in the place of an old one that may be later. Whoever wanted that one relies on it.
result<> prolong(rados_t cluster, const std::vector<image::Shortened>& shorter, std::chrono::seconds blocked_for) {
  std::vector<result<>> results(shorter.size(), result<>());
  at_once(shorter.size(), kCommandsAtOnce,
          [&](std::size_t i) { results[i] = change(cluster, shorter[i].entry, blocked_for + shorter[i].by); });
  for (const auto& done : results)
    if (!done) return with_context("an entry that lasted longer was made shorter, repeat the call", done.error());
  return {};
}

/// A monitor's yes is believed when its list shows it.
result<std::vector<result<>>> change_and_look(rados_t cluster, const std::vector<Entry>& entries,
                                              std::optional<std::chrono::seconds> block_for) {
  const bool has_ranges = std::ranges::any_of(entries, [](const auto& entry) { return entry.kind == Kind::range; });
  const auto ranges = has_ranges ? knows_ranges(cluster) : result<bool>(true);
  if (!ranges) return ranges.error();
  const auto before = block_for ? list(cluster) : std::vector<Entry>();
  if (!before) return before.error();
  auto results = change_all(cluster, entries, *ranges, block_for);
  const auto now = list(cluster);
  if (!now) return with_context("the monitors took the commands, but the blocklist cannot be looked at", now.error());
  if (block_for)
    if (auto done = prolong(cluster, image::shortened(entries, *before, *now), *block_for); !done) return done.error();
  std::set<std::pair<Kind, std::string>> listed;
  for (const auto& entry : *now) listed.emplace(entry.kind, entry.text());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const bool there = listed.contains({entries[i].kind, entries[i].text()});
    if (results[i] && there != block_for.has_value())
      results[i] = Error{errc::unavailable, entries[i].text() + (there ? " is still" : " is not") +
                                                " in the blocklist, although the monitors took the command"};
  }
  return results;
}

}  // namespace

result<bool> has_own_entry(rados_t cluster, const std::string& client) {
  const auto entries = list(cluster);
  if (!entries) return entries.error();
  const auto names_it = [&](const Entry& entry) { return entry.kind == Kind::client && entry.client == client; };
  return std::ranges::any_of(*entries, names_it);
}

std::optional<Error> find_fence(rados_t cluster, const std::string& cluster_id,
                                const std::vector<std::string>& addresses) {
  const auto entries = list(cluster);
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

task<result<image::Blocklist>> Connections::blocklist(Lease lease) {
  auto job = [held = lease.connection()] { return list(held->cluster); };
  auto entries = co_await lease->group->threads->cluster.call_to_end(gate_, std::move(job), "reading the blocklist");
  if (!entries) co_return entries.error();
  image::Blocklist found{lease->fsid, std::move(*entries)};
  for (const auto& group : groups_)
    for (const auto& connection : group->serving) {
      if (connection->fsid != lease->fsid) continue;
      found.own.insert(found.own.end(), connection->addresses.begin(), connection->addresses.end());
      if (!connection->images.empty())
        found.serving.insert(found.serving.end(), connection->addresses.begin(), connection->addresses.end());
    }
  co_return found;
}

task<result<std::vector<result<>>>> Connections::change_blocklist(Lease lease, std::vector<Entry> entries,
                                                                  std::optional<std::chrono::seconds> block_for) {
  const bool many = entries.size() > kCommandsAtOnce;
  auto job = [held = lease.connection(), entries = std::move(entries), block_for] {
    return change_and_look(held->cluster, entries, block_for);
  };
  // Many commands take minutes. Healing needs the threads for the cluster.
  ClusterThreads& threads = *lease->group->threads;
  BlockingCalls& calls = many ? threads.looks : threads.cluster;
  auto results = co_await calls.call_to_end(gate_, std::move(job), "changing the blocklist");
  if (!results) co_return results;
  ++fencings_;
  // The caller acts on the fence: none of our clients may go on with an older map.
  if (auto awaited = co_await await_maps(lease->fsid); !awaited)
    co_return with_context(
        "the blocklist was changed, but not every client of this agent knows it yet, repeat the call", awaited.error());
  co_return results;
}

}  // namespace corbd::rbd
