#include "corbd/fence/fencer.hpp"

#include <algorithm>
#include <optional>

#include "corbd/core/log.hpp"

namespace corbd::fence {
namespace {

constexpr std::size_t kNamed = 8;  ///< length of a list in a sentence

std::string list_of(const std::vector<std::string>& texts) {
  std::string all;
  for (std::size_t i = 0; i < std::min(texts.size(), kNamed); ++i) all += (i == 0 ? "" : ", ") + texts[i];
  if (texts.size() > kNamed) all += " and " + std::to_string(texts.size() - kNamed) + " more";
  return all;
}

/// Reports "fenced: 10.0.0.7/32; not fenced: 10.0.0.8/32 (the reason)".
result<> told(const char* done, const std::vector<BlocklistEntry>& entries, const std::vector<result<>>& results) {
  std::vector<std::string> good, bad;
  std::optional<Error> first;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    (results[i] ? good : bad).push_back(entries[i].text());
    if (!results[i] && !first) first = results[i].error();
  }
  if (!first) return {};
  const std::string so_far =
      good.empty() ? "nothing was " + std::string(done) : std::string(done) + ": " + list_of(good);
  return Error{first->code, so_far + "; not " + done + ": " + list_of(bad) + ": " + first->text + ". Repeat the call"};
}

void log_change(const char* event, const Asker& asker, const std::vector<BlocklistEntry>& entries) {
  std::vector<std::string> texts;
  for (const auto& entry : entries) texts.push_back(entry.text());
  log::warning(event, {{"cluster", asker.cluster_id}, {"user", asker.user}, {"what", list_of(texts)}});
}

}  // namespace

result<image::Access> Fencer::access(const Asker& asker) const {
  if (asker.cluster_id.empty())
    return Error{errc::invalid_argument, "the parameter clusterID is missing: it names a cluster in config.json"};
  if (asker.user.empty() || asker.key.empty())
    return Error{errc::invalid_argument,
                 "the secrets userID and userKey are missing: they name the Ceph user that may "
                 "change the blocklist"};
  auto monitors = monitors_(asker.cluster_id);
  if (!monitors) return monitors.error();
  return image::Access{asker.cluster_id, std::move(*monitors), asker.user, asker.key};
}

task<result<Fencer::Begun>> Fencer::begin(const Asker& asker, const Order& order, Until until) {
  auto blocks = read_blocks(order.blocks);
  if (!blocks) co_return blocks.error();
  auto to = access(asker);
  if (!to) co_return to.error();
  auto now = co_await clusters_.blocklist(*to, until);
  if (!now) co_return now.error();
  Begun begun{std::move(*to), {}};
  begun.report.blocks = std::move(*blocks);
  begun.report.before = std::move(*now);
  co_return begun;
}

task<result<Report>> Fencer::fence(Asker asker, Order order, Until until) {
  auto begun = co_await begin(asker, order, until);
  if (!begun) co_return begun.error();
  auto& [to, report] = *begun;
  auto entries = to_block(report.blocks, report.before, order.forced || order.dry_run);
  if (!entries) co_return entries.error();
  report.changed = std::move(*entries);
  if (order.dry_run) co_return std::move(report);
  // Log this first: a caller that leaves does not learn the end.
  log_change("cluster.fencing", asker, report.changed);
  auto done = co_await block(to, report.changed, order.duration, until);
  if (!done) co_return done.error();
  log_change("cluster.fence_added", asker, report.changed);
  co_return std::move(report);
}

/// Tries ranges first.
task<result<>> Fencer::block(image::Access to, std::vector<BlocklistEntry> entries, std::chrono::seconds duration,
                             Until until) {
  auto results = co_await clusters_.block(to, entries, duration, until);
  if (!results) co_return results.error();
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (!(*results)[i] && (*results)[i].error().code == errc::unimplemented)
      (*results)[i] = co_await block_each(to, entries[i].addresses, duration, until);
  co_return told("fenced", entries, *results);
}

/// Sends a command for each address. A repeat resumes where the last one stopped.
task<result<>> Fencer::block_each(image::Access to, AddressBlock block, std::chrono::seconds duration, Until until) {
  const auto each = each_address(block);
  if (!each) co_return each.error();
  const auto longer = duration + image::slack_of(duration);
  std::vector<BlocklistEntry> done{each->front()};
  auto results = co_await clusters_.block(to, done, longer, until);
  if (!results) co_return results.error();
  if (!results->front()) co_return told("fenced", done, *results);
  const auto now = co_await clusters_.blocklist(to, until);
  if (!now) co_return now.error();
  const auto rest = unblocked(*each, *now, duration);
  const auto others = co_await clusters_.block(to, rest, longer, until);
  if (!others) co_return others.error();
  done.insert(done.end(), rest.begin(), rest.end());
  results->insert(results->end(), others->begin(), others->end());
  co_return told("fenced", done, *results);
}

task<result<Report>> Fencer::unfence(Asker asker, Order order, Until until) {
  auto begun = co_await begin(asker, order, until);
  if (!begun) co_return begun.error();
  auto& [to, report] = *begun;
  auto gone = to_unblock(report.blocks, report.before);
  if (!gone) co_return gone.error();
  report.changed = std::move(*gone);
  for (const auto& block : report.blocks)
    for (auto& entry : remaining(block, report.before, report.changed))
      if (std::ranges::none_of(report.remain, [&](const auto& one) { return one.same_target(entry); }))
        report.remain.push_back(std::move(entry));
  if (order.dry_run || report.changed.empty()) co_return std::move(report);
  log_change("cluster.unfencing", asker, report.changed);
  auto results = co_await clusters_.unblock(to, report.changed, until);
  if (!results) co_return results.error();
  if (auto done = told("unfenced", report.changed, *results); !done) co_return done.error();
  log_change("cluster.fence_removed", asker, report.changed);
  for (const auto& entry : report.remain)
    log::warning("cluster.still_fenced", {{"cluster", asker.cluster_id}, {"entry", entry.text()}});
  co_return std::move(report);
}

task<result<Blocklist>> Fencer::list(Asker asker, Until until) {
  const auto to = access(asker);
  if (!to) co_return to.error();
  co_return co_await clusters_.blocklist(*to, until);
}

task<result<Fencer::Clients>> Fencer::clients(Asker asker, Until until) {
  const auto to = access(asker);
  if (!to) co_return to.error();
  const auto now = co_await clusters_.blocklist(*to, until);
  if (!now) co_return now.error();
  Clients found{now->fsid, {}};
  for (const auto& client : now->serving.empty() ? now->own : now->serving) {
    const auto host = AddressBlock::host_of_client(client);
    if (!host) co_return host.error();
    if (std::ranges::find(found.addresses, *host) == found.addresses.end()) found.addresses.push_back(*host);
  }
  co_return found;
}

/// The fence stands from the first read of the blocklist to the last, and under it nothing new can begin to write. So
/// everything that was clean in between is clean at the end.
task<result<SelfCheck>> Fencer::self_check(Asker asker, bool unfence, Until until) {
  const auto to = access(asker);
  if (!to) co_return to.error();
  if (!look_)
    co_return Error{errc::unimplemented, "this process only fences and serves no node: ask the agent of the node"};
  auto before = co_await clusters_.blocklist(*to, until);
  if (!before) co_return before.error();
  auto clients = co_await clusters_.end_refused(*to, until);
  if (!clients) co_return clients.error();
  auto node = co_await look_(until);
  auto now = co_await clusters_.blocklist(*to, until);
  if (!now) co_return now.error();
  CheckFacts facts{std::move(*clients), std::move(node), std::move(*before), std::move(*now)};
  SelfCheck check{fence::self_check(facts)};
  for (const auto& fence : check.fences)
    log::info("cluster.fence_checked", {{"cluster", asker.cluster_id},
                                        {"fence", fence.entry.text()},
                                        {"verdict", name(fence.verdict())},
                                        {"reasons", fence.reasons.size()},
                                        {"first", fence.reasons.empty() ? "" : fence.reasons.front().what}});
  if (unfence)
    if (auto done = co_await unfence_clean(*to, asker, check, std::move(facts.now), until); !done)
      co_return done.error();
  co_return check;
}

task<result<>> Fencer::unfence_clean(image::Access to, Asker asker, SelfCheck& check, image::Blocklist now,
                                     Until until) {
  std::vector<BlocklistEntry> clean;
  for (const auto& fence : check.fences)
    if (fence.verdict() == Verdict::clean) clean.push_back(fence.entry);
  if (clean.empty()) co_return result<>();
  log_change("cluster.unfencing", asker, clean);
  const auto results = co_await clusters_.unblock(to, clean, until);
  if (!results) co_return results.error();
  if (auto done = told("unfenced", clean, *results); !done) co_return done;
  log_change("cluster.fence_removed", asker, clean);
  for (const auto& entry : clean)
    for (auto& other : remaining(entry.addresses, now, clean))
      if (std::ranges::none_of(check.remain, [&](const auto& one) { return one.same_target(other); }))
        check.remain.push_back(std::move(other));
  check.removed = std::move(clean);
  co_return result<>();
}

}  // namespace corbd::fence
