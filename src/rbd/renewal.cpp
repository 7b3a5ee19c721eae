#include "renewal.hpp"

#include <algorithm>
#include <utility>

#include "connections.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"

namespace corbd::rbd {
namespace {

// Pause without a connection, or an answer.
constexpr std::chrono::milliseconds kTryAgain{10'000};

}  // namespace

Renewals::Renewals(Connections& all, BlockingPool& files)
    : all_(all), files_(files), looks_again_(std::make_shared<Event>(all.control(), all.clock())) {}

void Renewals::look_again() {
  std::exchange(looks_again_, std::make_shared<Event>(all_.control(), all_.clock()))->set();
}

task<result<>> Renewals::note_ending_early(std::string fsid, std::string cluster_id, BlocklistChange change) {
  if (change.monitors_now) clocks_[fsid] = {*change.monitors_now, all_.clock().now(), all_.clock().wall()};
  result<> all;
  for (const auto& entry : change.ending_early) {
    const auto noted = std::ranges::find_if(
        entries_, [&](const ShortEntry& one) { return one.fsid == fsid && one.client == entry.client; });
    if (noted != entries_.end() && noted->saved) continue;
    const bool is_new = noted == entries_.end();
    const ShortEntry made = is_new ? ShortEntry{make_uuid(),
                                                fsid,
                                                cluster_id,
                                                entry.client,
                                                std::chrono::floor<std::chrono::seconds>(entry.until),
                                                false}
                                   : *noted;
    if (is_new) entries_.push_back(made);
    log::info("blocklist.ends_early",
              {{"cluster", cluster_id},
               {"client", entry.client},
               {"ends", utc_text(entry.until)},
               {"hint", "Ceph does not extend an existing entry, so the agent adds its own when this one ends"}});
    auto save = [dir = all_.config().incarnations_dir, made] { return save_short_entry(dir, made); };
    auto saved = co_await files_.run(std::move(save), {}, "noting a blocklist entry");
    const auto now = std::ranges::find(entries_, made.uuid, &ShortEntry::uuid);
    if (now != entries_.end()) now->saved = saved.has_value();
    if (saved) continue;
    log::warning("blocklist.not_noted", {{"client", made.client}, {"error", saved.error().text}});
    all = saved;
  }
  if (change.ending_early.empty()) co_return all;
  renew_noted();
  look_again();
  co_return all;
}

void Renewals::take_notes(const std::vector<ShortEntry>& notes) {
  for (const auto& entry : notes)
    if (std::ranges::find(entries_, entry.uuid, &ShortEntry::uuid) == entries_.end()) entries_.push_back(entry);
  renew_noted();
}

/// Renews each cluster by itself, because one may not answer.
void Renewals::renew_noted() {
  if (all_.config().predecessor_running || all_.is_leaving()) return;
  for (const auto& entry : entries_)
    if (renewing_.insert(entry.fsid).second) all_.gate().spawn(renew(entry.fsid));
}

task<> Renewals::renew(std::string fsid) {
  const auto is_of = [&](const ShortEntry& entry) { return entry.fsid == fsid; };
  const auto begun = all_.clock().now();
  bool told = false;
  for (std::size_t turn = 0; !all_.is_leaving() && std::ranges::any_of(entries_, is_of);) {
    auto lease = lease_of(fsid, turn);
    if (!lease && all_.clock().now() >= begun + kTryAgain && !std::exchange(told, true))
      log::warning("blocklist.renewal_waits",
                   {{"fsid", fsid},
                    {"waits_for", "a connection to that cluster, which its next volume opens"},
                    {"effect", "clients whose blocklist entry ends before that can write again"}});
    const auto changes = looks_again_;
    auto pause = kTryAgain;
    if (lease) {
      const auto look = co_await look_at_short(std::move(*lease));
      pause = look.failed ? std::min(look.again_in, kTryAgain) : look.again_in;
      // Another connection's user may have the caps.
      if (look.failed) ++turn;
    }
    lease.reset();
    static_cast<void>(co_await changes->wait({all_.clock().now() + pause, &pauses_}));
  }
  renewing_.erase(fsid);
}

std::optional<Lease> Renewals::lease_of(const std::string& fsid, std::size_t turn) {
  const auto all = all_.of_cluster(fsid);
  if (all.empty()) return std::nullopt;
  return Lease(all_, all[turn % all.size()]);
}

std::vector<std::string> Renewals::clients(const std::string& fsid) const {
  std::vector<std::string> found;
  for (const auto& entry : entries_)
    if (entry.fsid == fsid) found.push_back(entry.client);
  return found;
}

task<RenewalLook> Renewals::look_at_short(Lease lease) {
  const std::string fsid = lease->fsid;
  std::vector<ShortEntry> entries;
  std::ranges::copy_if(entries_, std::back_inserter(entries), [&](const auto& one) { return one.fsid == fsid; });
  std::optional<std::chrono::system_clock::time_point> monitors_now;
  if (const auto known = clocks_.find(fsid); known != clocks_.end())
    monitors_now = known->second.now(all_.clock().now(), all_.clock().wall());
  auto job = [held = lease.connection(), entries = std::move(entries), monitors_now, wall = all_.clock().wall()] {
    return look_at_short_entries(held->cluster, entries, monitors_now, wall);
  };
  auto looked =
      co_await lease->threads->cluster.call_to_end(all_.gate(), std::move(job), "looking at short blocklist entries");
  RenewalLook look;
  if (looked)
    look = std::move(*looked);
  else
    look.failed = looked.error();
  if (look.monitors_now) clocks_[fsid] = {*look.monitors_now, all_.clock().now(), all_.clock().wall()};
  for (const auto& client : look.added) log::warning("blocklist.renewed", {{"fsid", fsid}, {"client", client}});
  for (const auto& uuid : look.forget) co_await forget_short(uuid);
  if (look.failed) log::warning("blocklist.not_renewed", {{"fsid", fsid}, {"error", look.failed->text}});
  co_return look;
}

task<> Renewals::forget_short(std::string uuid) {
  std::erase_if(entries_, [&](const ShortEntry& one) { return one.uuid == uuid; });
  auto forget = [dir = all_.config().incarnations_dir, uuid] { return forget_short_entry(dir, uuid); };
  if (auto gone = co_await files_.run(std::move(forget), {}, "forgetting a blocklist entry"); !gone)
    log::warning("blocklist.not_forgotten", {{"error", gone.error().text}});
}

task<> Renewals::forget_unblocked(std::string fsid, std::vector<image::BlocklistEntry> entries,
                                  std::vector<result<>> results) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!results[i] || entries[i].kind != image::BlocklistEntry::Kind::client) continue;
    const auto noted = std::ranges::find_if(
        entries_, [&](const ShortEntry& one) { return one.fsid == fsid && one.client == entries[i].client; });
    if (noted != entries_.end()) co_await forget_short(noted->uuid);
  }
}

}  // namespace corbd::rbd
