#include "fence.hpp"

#include <algorithm>
#include <cerrno>

#include "address.hpp"
#include "connections.hpp"
#include "corbd/core/log.hpp"

namespace corbd::rbd {
namespace {

struct Fenced {
  std::vector<Incarnation> done;
  std::optional<Error> failed = {};  ///< the first failure
  BlocklistChange change = {};
};

result<Fenced> fence_on_pool_thread(rados_t cluster, const std::vector<Incarnation>& dead,
                                    std::chrono::system_clock::time_point wall) {
  Fenced fenced;
  std::vector<image::BlocklistEntry> entries;
  std::vector<const Incarnation*> asked;
  for (const auto& one : dead) {
    result<std::vector<image::BlocklistEntry>> of_one = entries_to_cut_off(one);
    if (of_one) {
      asked.push_back(&one);
      entries.insert(entries.end(), of_one->begin(), of_one->end());
    } else if (!fenced.failed) {
      fenced.failed = of_one.error();
    }
  }
  if (entries.empty()) return fenced;
  auto changed = change_and_look(cluster, entries, kBlocklistTime, wall);
  if (!changed) return changed.error();
  fenced.change = std::move(*changed);
  auto next = fenced.change.results.begin();
  for (const auto* one : asked) {
    bool all = true;
    for (std::size_t i = 0; i < one->addresses.size(); ++i, ++next) {
      if (*next) continue;
      all = false;
      if (!fenced.failed) fenced.failed = next->error();
    }
    if (all) fenced.done.push_back(*one);
  }
  return fenced;
}

}  // namespace

Fencing::Fencing(Connections& all, BlockingPool& files, Incarnations& incarnations, const EarlierAgents& earlier,
                 Renewals& renewals)
    : all_(all), files_(files), incarnations_(incarnations), earlier_(earlier), renewals_(renewals) {}

result<> Fencing::all_fenced(const std::string& fsid) {
  all_.drop_blocklisted();
  if (const auto& unknown = earlier_.unknown()) return *unknown;
  const auto dead = incarnations_.unfenced(fsid).size();
  if (dead == 0) return {};
  return Error{errc::unavailable, std::to_string(dead) +
                                      " dead Ceph clients of this agent are not fenced yet in cluster " + fsid +
                                      ": the agent opens no image there until they are"};
}

task<result<>> Fencing::fence(Lease lease, Until until) {
  if (const auto& unknown = earlier_.unknown()) co_return *unknown;
  all_.drop_blocklisted();
  const auto held = lease->group;
  Group& group = *held;
  if (!group.fencing) {
    if (incarnations_.unfenced(lease->fsid).empty()) co_return result<>();
    group.fencing = std::make_shared<Attempt>(all_.control(), all_.clock());
    if (!all_.gate().spawn(fence_all(std::move(lease), group.fencing))) {
      group.fencing.reset();
      co_return Error{errc::cancelled, "the agent is leaving"};
    }
  }
  const auto attempt = group.fencing;
  const Waited how = co_await attempt->done.wait(until);
  if (how != Waited::ready)
    co_return wait_error(how, "the dead clients of " + cluster_text(group.access) + " to be blocklisted");
  if (attempt->failed) co_return *attempt->failed;
  co_return result<>();
}

task<result<>> Fencing::inherit(Lease lease, std::string address) {
  const std::string bare = bare_address(address);
  if (incarnations_.find(lease->fsid, bare) != nullptr) co_return result<>();
  Incarnation incarnation{Incarnation::State::dead,        make_uuid(), lease->fsid,
                          lease->group->access.cluster_id, {bare},      0};
  auto save = [dir = all_.config().incarnations_dir, incarnation] { return save_incarnation(dir, incarnation); };
  if (auto saved = co_await files_.run(std::move(save), {}, "writing the incarnation"); !saved) co_return saved;
  incarnations_.add(std::move(incarnation));
  co_return result<>();
}

task<result<image::Blocklist>> Fencing::blocklist(Lease lease) {
  auto job = [held = lease.connection()] { return list_blocklist(held->cluster); };
  auto entries = co_await lease->threads->cluster.call_to_end(all_.gate(), std::move(job), "reading the blocklist");
  if (!entries) co_return entries.error();
  image::Blocklist found{lease->fsid, std::move(*entries)};
  for (const auto& connection : all_.of_cluster(lease->fsid)) {
    found.own.insert(found.own.end(), connection->addresses.begin(), connection->addresses.end());
    if (!connection->images.empty())
      found.serving.insert(found.serving.end(), connection->addresses.begin(), connection->addresses.end());
  }
  co_return found;
}

task<result<std::vector<result<>>>> Fencing::change_blocklist(Lease lease, std::vector<image::BlocklistEntry> entries,
                                                              std::optional<std::chrono::seconds> block_for) {
  auto job = [held = lease.connection(), entries, block_for, wall = all_.clock().wall()] {
    return change_and_look(held->cluster, entries, block_for, wall);
  };
  // Many commands take minutes, and healing needs the threads for the cluster.
  ClusterThreads& threads = all_.threads(lease->group->access.cluster_id);
  BlockingCalls& calls = entries.size() > kCommandsAtOnce ? threads.looks : threads.cluster;
  auto changed = co_await calls.call_to_end(all_.gate(), std::move(job), "changing the blocklist");
  if (!changed) co_return changed.error();
  static_cast<void>(co_await renewals_.note_ending_early(lease->fsid, lease->group->access.cluster_id, *changed));
  if (!block_for) co_await renewals_.forget_unblocked(lease->fsid, entries, changed->results);
  ++last_;
  // The caller acts on the fence: none of our clients may go on with an older map.
  if (auto awaited = co_await await_maps(lease->fsid); !awaited)
    co_return with_context(
        "the blocklist was changed, but not every client of this agent knows it yet, repeat the call", awaited.error());
  co_return std::move(changed->results);
}

/// Drops refused connections. Only the monitors answer one that was made under the fence. It has no image, and stays
/// for the next question.
void Fencing::drop_refused(const image::Blocklist& now) {
  const auto refused = [&](const std::string& address) { return now.find(address) != nullptr; };
  for (const auto& connection : all_.of_cluster(now.fsid))
    if (!connection->node_fenced && std::ranges::any_of(connection->addresses, refused))
      static_cast<void>(connection->observe_result(-ESHUTDOWN));
  all_.drop_blocklisted();
}

image::OwnClients Fencing::own_clients(const std::string& fsid) const {
  image::OwnClients own;
  const auto connections = all_.of_cluster(fsid);
  // An image was opened for writing through the connection.
  const auto may_write = [&](const std::string& uuid) {
    return std::ranges::any_of(connections, [&](const auto& one) { return one->uuid == uuid && one->recorded; });
  };
  for (const auto& one : incarnations_.all()) {
    const bool ending = all_.endings().contains(one.uuid);
    if (one.fsid != fsid || (one.state == Incarnation::State::live && !ending && !may_write(one.uuid))) continue;
    own.known.insert(own.known.end(), one.addresses.begin(), one.addresses.end());
    if (one.ended) own.ended_well.insert(own.ended_well.end(), one.addresses.begin(), one.addresses.end());
    if (ending || one.state != Incarnation::State::fenced)
      own.left.insert(own.left.end(), one.addresses.begin(), one.addresses.end());
  }
  own.ending_early = renewals_.clients(fsid);
  return own;
}

/// Fences clients again whose entries were removed before their end: `ceph osd blocklist clear` does that, and another
/// tool's unfencing.
void Fencing::fence_anew(const image::Blocklist& now) {
  for (const auto& one : incarnations_.unlisted(now)) {
    log::warning("incarnation.unlisted", {{"cluster", one.cluster_id}, {"address", one.addresses.front()}});
    incarnations_.set_state(one.uuid, Incarnation::State::dead);
  }
}

task<result<image::OwnClients>> Fencing::end_refused(Lease lease, Until until) {
  const auto now = co_await blocklist(Lease(all_, lease.connection()));
  if (!now) co_return now.error();
  drop_refused(*now);
  fence_anew(*now);
  if (auto fenced = co_await fence(Lease(all_, lease.connection()), until); !fenced) co_return fenced.error();
  co_return own_clients(lease->fsid);
}

task<> Fencing::fence_all(Lease lease, std::shared_ptr<Attempt> attempt) {
  Group& group = *lease->group;
  auto fenced = co_await fence_dead_of(*lease.connection());
  if (!fenced) attempt->failed = with_context("fencing in " + cluster_text(group.access), fenced.error());
  group.fencing.reset();
  attempt->done.set();
}

task<result<>> Fencing::fence_dead_of(const Connection& through) {
  BlockingCalls& calls = through.threads->cluster;
  auto job = [cluster = through.cluster, dead = incarnations_.unfenced(through.fsid), wall = all_.clock().wall()] {
    return fence_on_pool_thread(cluster, dead, wall);
  };
  auto fenced = co_await calls.call_to_end(all_.gate(), std::move(job), "blocklisting");
  if (!fenced) co_return fenced.error();
  // A later connection has the map already. Existing ones wait for it.
  if (!fenced->done.empty()) ++last_;
  // A client counts as fenced on disk only after its note is written: a crash in between would lose the note. Without
  // the note it stays dead on disk, and the next start fences it again.
  const auto noted =
      co_await renewals_.note_ending_early(through.fsid, through.group->access.cluster_id, std::move(fenced->change));
  for (auto& one : fenced->done) {
    if (noted)
      co_await record_fenced(std::move(one));
    else
      incarnations_.set_state(one.uuid, Incarnation::State::fenced, seconds_since_1970(all_.clock()));
  }
  auto awaited = co_await await_maps(through.fsid);
  if (fenced->failed) co_return *fenced->failed;
  co_return awaited;
}

task<result<>> Fencing::await_maps(std::string fsid) {
  std::vector<Lease> leases;
  for (auto& connection : all_.of_cluster(fsid)) leases.emplace_back(all_, connection);
  result<> all;
  for (const auto& lease : leases)
    if (auto awaited = co_await await_map(lease, {all_.clock().now() + BlockingCalls::kPatience}); !awaited && all)
      all = awaited;
  co_return all;
}

// The file stays until the blocklisting ends. After another crash we must still know a lock that names it as ours.
task<> Fencing::record_fenced(Incarnation incarnation) {
  incarnation.state = Incarnation::State::fenced;
  incarnation.fenced_at = seconds_since_1970(all_.clock());
  incarnation.boot_id = all_.config().boot_id;
  log::info("incarnation.fenced", {{"cluster", incarnation.cluster_id}, {"address", incarnation.addresses.front()}});
  incarnations_.set_state(incarnation.uuid, incarnation.state, incarnation.fenced_at);
  auto save = [dir = all_.config().incarnations_dir, incarnation] { return save_incarnation(dir, incarnation); };
  // If this is not written, the next start fences the client once more.
  if (auto saved = co_await files_.run(std::move(save), {}, "writing the incarnation"); !saved)
    log::warning("incarnation.not_written", {{"error", saved.error().text}});
}

task<result<>> Fencing::await_map(const Lease& lease, Until until) {
  const auto wanted = last_;
  if (lease->map_after >= wanted) co_return result<>();
  auto job = [connection = lease.connection()]() -> result<> {
    if (const int r = connection->observe_result(rados_wait_for_latest_osdmap(connection->cluster)); r < 0)
      return Error{errc::unavailable, "waiting for the OSD map: error " + std::to_string(-r)};
    return {};
  };
  auto awaited = co_await lease->threads->maps.call(all_.gate(), std::move(job), until, "the latest OSD map");
  if (!awaited) co_return awaited;
  lease->map_after = std::max(lease->map_after, wanted);
  co_return result<>();
}

}  // namespace corbd::rbd
