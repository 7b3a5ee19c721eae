// Renews blocklist entries that somebody else made for too short a time.
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

void Connections::look_again() { std::exchange(looks_again_, std::make_shared<Event>(control_, clock_))->set(); }

/// state_write: the next agent would not know all of them.
task<result<>> Connections::note_ending_early(std::string fsid, std::string cluster_id, BlocklistChange change) {
  if (change.monitors_now) monitors_clocks_[fsid] = {*change.monitors_now, clock_.now(), clock_.wall()};
  result<> all;
  for (const auto& entry : change.ending_early) {
    const auto noted = std::ranges::find_if(
        short_entries_, [&](const ShortEntry& one) { return one.fsid == fsid && one.client == entry.client; });
    if (noted != short_entries_.end() && noted->saved) continue;
    const bool is_new = noted == short_entries_.end();
    const ShortEntry made = is_new ? ShortEntry{make_uuid(),
                                                fsid,
                                                cluster_id,
                                                entry.client,
                                                std::chrono::floor<std::chrono::seconds>(entry.until),
                                                false}
                                   : *noted;
    if (is_new) short_entries_.push_back(made);
    log::info("blocklist.ends_early",
              {{"cluster", cluster_id},
               {"client", entry.client},
               {"ends", utc_text(entry.until)},
               {"hint", "Ceph does not extend an existing entry, so the agent adds its own when this one ends"}});
    auto save = [dir = config_.incarnations_dir, made] { return save_short_entry(dir, made); };
    auto saved = co_await files_.run(std::move(save), {}, "noting a blocklist entry");
    const auto now = std::ranges::find(short_entries_, made.uuid, &ShortEntry::uuid);
    if (now != short_entries_.end()) now->saved = saved.has_value();
    if (saved) continue;
    log::warning("blocklist.not_noted", {{"client", made.client}, {"error", saved.error().text}});
    all = saved;
  }
  if (change.ending_early.empty()) co_return all;
  renew_noted();
  look_again();
  co_return all;
}

/// An agent that serves beside this one renews them as long as it lives.
void Connections::take_notes(const LoadedShortEntries& notes) {
  if (config_.predecessor_running) return;
  for (const auto& entry : notes.all)
    if (std::ranges::find(short_entries_, entry.uuid, &ShortEntry::uuid) == short_entries_.end())
      short_entries_.push_back(entry);
  // Fencing them again shows which entries end early, and notes that.
  if (notes.lost) incarnations_.doubt_entries();
  renew_noted();
}

/// Renews each cluster by itself, because one may not answer.
void Connections::renew_noted() {
  if (config_.predecessor_running || leaving_) return;
  for (const auto& entry : short_entries_)
    if (renewing_.insert(entry.fsid).second) gate_.spawn(renew(entry.fsid));
}

task<> Connections::renew(std::string fsid) {
  const auto is_of = [&](const ShortEntry& entry) { return entry.fsid == fsid; };
  const auto begun = clock_.now();
  bool told = false;
  for (std::size_t turn = 0; !leaving_ && std::ranges::any_of(short_entries_, is_of);) {
    auto lease = lease_of(fsid, turn);
    if (!lease && clock_.now() >= begun + kTryAgain && !std::exchange(told, true))
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
    static_cast<void>(co_await changes->wait({clock_.now() + pause, &renewals_}));
  }
  renewing_.erase(fsid);
}

std::optional<Lease> Connections::lease_of(const std::string& fsid, std::size_t turn) {
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& group : groups_)
    for (const auto& connection : group->serving)
      if (connection->fsid == fsid && connection->cluster != nullptr) all.push_back(connection);
  if (all.empty()) return std::nullopt;
  return Lease(*this, all[turn % all.size()]);
}

task<RenewalLook> Connections::look_at_short(Lease lease) {
  const std::string fsid = lease->fsid;
  std::vector<ShortEntry> entries;
  std::ranges::copy_if(short_entries_, std::back_inserter(entries), [&](const auto& one) { return one.fsid == fsid; });
  std::optional<std::chrono::system_clock::time_point> monitors_now;
  if (const auto known = monitors_clocks_.find(fsid); known != monitors_clocks_.end())
    monitors_now = known->second.now(clock_.now(), clock_.wall());
  auto job = [held = lease.connection(), entries = std::move(entries), monitors_now, wall = clock_.wall()] {
    return look_at_short_entries(held->cluster, entries, monitors_now, wall);
  };
  auto looked =
      co_await lease->group->threads->cluster.call_to_end(gate_, std::move(job), "looking at short blocklist entries");
  RenewalLook look;
  if (looked)
    look = std::move(*looked);
  else
    look.failed = looked.error();
  if (look.monitors_now) monitors_clocks_[fsid] = {*look.monitors_now, clock_.now(), clock_.wall()};
  for (const auto& client : look.added) log::warning("blocklist.renewed", {{"fsid", fsid}, {"client", client}});
  for (const auto& uuid : look.forget) co_await forget_short(uuid);
  if (look.failed) log::warning("blocklist.not_renewed", {{"fsid", fsid}, {"error", look.failed->text}});
  co_return look;
}

task<> Connections::forget_short(std::string uuid) {
  std::erase_if(short_entries_, [&](const ShortEntry& one) { return one.uuid == uuid; });
  auto forget = [dir = config_.incarnations_dir, uuid] { return forget_short_entry(dir, uuid); };
  if (auto gone = co_await files_.run(std::move(forget), {}, "forgetting a blocklist entry"); !gone)
    log::warning("blocklist.not_forgotten", {{"error", gone.error().text}});
}

/// Forgets clients that somebody unblocked: an entry of ours for them is not wanted.
task<> Connections::forget_unblocked(std::string fsid, std::vector<image::BlocklistEntry> entries,
                                     std::vector<result<>> results) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!results[i] || entries[i].kind != image::BlocklistEntry::Kind::client) continue;
    const auto noted = std::ranges::find_if(
        short_entries_, [&](const ShortEntry& one) { return one.fsid == fsid && one.client == entries[i].client; });
    if (noted != short_entries_.end()) co_await forget_short(noted->uuid);
  }
}

}  // namespace corbd::rbd
