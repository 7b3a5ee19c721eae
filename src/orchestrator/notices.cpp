#include "corbd/orchestrator/notices.hpp"

#include <algorithm>

namespace corbd::orchestrator {
namespace {

using volume::Health;

std::string seconds_text(duration of) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(of).count()) + " s";
}

std::string see(const std::string& volume_id) { return " See `corbd volume " + volume_id + "` on the node."; }

std::string last_error(const volume::Status& status) {
  return status.last_error ? status.last_error->text : "its device has no server";
}

kube::Notice loss_notice(const std::string& who, const result<>& done) {
  const std::string accepted = who + " accepted what rbd-nbd's cache lost";
  if (done) return {"LossAccepted", true, accepted + ". fsync succeeds again, and those writes stay lost."};
  return {"OverrideRefused", true, accepted + ", but fsync still fails: " + done.error().text};
}

}  // namespace

kube::Notice override_notice(const plan::Healed& word, const std::string& by, const result<>& done) {
  const std::string who = by.empty() ? "An operator" : "An operator (" + by + " on the node)";
  if (word.loss_accepted) return loss_notice(who, done);
  if (done)
    return {"HealedByOverride", true,
            who +
                " stated that no other node used the image, and the volume is served. The writes that waited on this "
                "node were written."};
  return {"OverrideRefused", true,
          who + " stated that no other node used the image, but the volume is not served: " + done.error().text};
}

std::vector<Notices::Told> Notices::changed(const volume::Change& change, const volume::Status& status,
                                            time_point now) {
  std::vector<Told> all;
  const std::string& id = change.volume_id;
  const auto tell = [&](Stall& stall, const char* reason, std::string message) {
    if (stall.told.insert(reason).second) all.push_back({id, {reason, true, std::move(message)}});
  };
  switch (change.to) {
    case Health::reconnecting:
    case Health::unproven:
    case Health::lost:
    case Health::failed: {
      Stall& stall = stalls_.try_emplace(id, Stall{now, {}}).first->second;
      if (change.to == Health::reconnecting && status.access_lost)
        tell(stall, "VolumeFenced",
             "The cluster has cut this node's client off, or it lost the image's lock. Writes wait. The agent serves "
             "the "
             "volume again if the image is still this node's. If nobody fenced the node, see `ceph osd blocklist ls`." +
                 see(id));
      if (change.to == Health::unproven) tell(stall, "HealingFailed", "Writes wait: " + change.why + "." + see(id));
      if (change.to == Health::lost)
        tell(stall, "VolumeLost", change.why + ". End the pods that use it on this node." + see(id));
      if (change.to == Health::failed)
        tell(stall, "VolumeLost",
             "The volume was given up and answers with I/O errors. End its pods on this node, then it can be staged "
             "again." +
                 see(id));
      break;
    }
    case Health::staged: {
      const auto stall = stalls_.find(id);
      if (stall == stalls_.end()) break;
      if (!stall->second.told.empty())
        all.push_back({id,
                       {"VolumeHealed", false,
                        "The volume is served again after " + seconds_text(now - stall->second.since) +
                            " without a server. The writes that waited were kept."}});
      stalls_.erase(stall);
      break;
    }
    case Health::absent:
      stalls_.erase(id);
      if (status.in_use || !status.published_at.empty())
        all.push_back({id,
                       {"VolumeLost", true,
                        "Another program disconnected the volume's device, and its pods get I/O errors. End them on "
                        "this node, then it is staged again." +
                            see(id)}});
      break;
    case Health::staging:
    case Health::unstaging:
      stalls_.erase(id);
      break;
  }
  return all;
}

std::vector<Notices::Told> Notices::due(const std::vector<volume::Status>& all, time_point now) {
  std::vector<Told> told;
  for (auto& [id, stall] : stalls_) {
    const auto status = std::ranges::find(all, id, &volume::Status::volume_id);
    if (status == all.end() || status->health != Health::reconnecting) continue;
    if (status->last_error && status->last_error->code == errc::node_fenced && stall.told.insert("NodeFenced").second)
      told.push_back(
          {id,
           {"NodeFenced", true,
            "Reads and writes wait: " + status->last_error->text +
                ". `corbd fence ls`, with --cluster, --user and --key-file, shows the blocklist entries." + see(id)}});
    if (now - stall.since >= config_.stalled_after && stall.told.empty() && stall.told.insert("VolumeStalled").second)
      told.push_back({id,
                      {"VolumeStalled", true,
                       "Reads and writes have waited for " + seconds_text(now - stall.since) + " (" +
                           last_error(*status) + "). None is lost, and the agent keeps trying." + see(id)}});
    if (now - stall.since >= config_.failed_after && !stall.told.contains("HealingFailed") && status->last_error) {
      stall.told.insert("HealingFailed");
      told.push_back({id,
                      {"HealingFailed", true,
                       "The volume is not healed after " + seconds_text(now - stall.since) +
                           ", and the agent keeps trying: " + last_error(*status) + "." + see(id)}});
    }
  }
  return told;
}

time_point Notices::next() const {
  time_point next = time_point::max();
  for (const auto& [id, stall] : stalls_) {
    if (stall.told.contains("VolumeLost")) continue;
    const bool may_be_fenced = !stall.told.contains("NodeFenced") && !stall.told.contains("HealingFailed");
    if (stall.told.empty() || may_be_fenced) next = std::min(next, stall.since + config_.stalled_after);
    if (!stall.told.contains("HealingFailed")) next = std::min(next, stall.since + config_.failed_after);
  }
  return next;
}

}  // namespace corbd::orchestrator
