#include "changes.hpp"

#include <algorithm>
#include <utility>

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

constexpr std::uint64_t kUnknownFeature = 1 << 13;
const std::string kCluster = "lab", kSecret = "Secret ceph/node";

/// As `corbd keys USER` judges: what is not known is needed.
bool needs(test::World& node, const std::string& user) {
  if (!node.agent.running()) return true;
  const auto seen = node.agent.shell().overview();
  const auto by_kernel = [&](const auto& device) { return device.second.empty() || device.second == user; };
  const auto is_served = [](const auto& device) { return traits(device.kind).served; };
  if (!seen.not_read.empty() || std::ranges::any_of(seen.kernel_users, by_kernel) ||
      std::ranges::any_of(seen.unclaimed, is_served))
    return true;
  return std::ranges::any_of(seen.volumes, [&](const volume::Status& status) {
    const volume::VolumeKeys& keys = status.keys;
    return !keys.present || keys.present->user == user || (keys.next && keys.next->user == user) ||
           std::ranges::count(keys.others, user) != 0;
  });
}

}  // namespace

Changes::Changes(const History& history, Needs needs)
    : history_(history), needs_(std::move(needs)), secret_(test::staged_wish("").credential) {
  known_.push_back(secret_);
  tell_secret(secret_);
  for (test::World* node : needs_.nodes) node->secrets_every = 20s;
  // Beside the faults, whose numbers the histories that are known by theirs rely on.
  if (history_.orchestrated)
    later(std::chrono::milliseconds(history_.seed * 7919 % 60'000), [this] { rotate_quietly(); });
}

/// Does nothing after stop(), which puts everything right.
void Changes::later(duration in, std::function<void()> what) {
  needs_.loop.outside_in(in, [this, what = std::move(what)] {
    if (!over_) what();
  });
}

bool Changes::happen(const Fault& fault, const std::string& image) {
  test::World& node = *needs_.nodes.at(fault.what % needs_.nodes.size());
  switch (fault.kind) {
    case Kind::rotate_user:
      rotate(fault);
      return true;
    case Kind::end_tickets:
      end_tickets(fault);
      return true;
    case Kind::lower_caps:
      lower_caps(fault);
      return true;
    case Kind::bad_secret:
      tell_secret({known_.back().user, Secret("edited badly")});
      later(fault.lasts, [this] { tell_secret(known_.back()); });
      return true;
    case Kind::break_config:
      break_config(fault, node.disk);
      return true;
    case Kind::api_silent:
      node.nodes.silent = true;
      node.nodes.strange = fault.what / 2 % 2 == 0;
      later(fault.lasts, [&node] { node.nodes.silent = false; });
      return true;
    case Kind::cache_on:
      switch_cache_on(fault, image);
      return true;
    case Kind::disturb_kms:
      disturb_kms(fault);
      return true;
    case Kind::break_records:
      break_records(fault, node.disk);
      return true;
    case Kind::take_entries_away:
      take_entries_away(fault);
      return true;
    case Kind::damage_record:
      damage_record(fault, image, node);
      return true;
    case Kind::rename_node:
      rename_node(fault, node.agent);
      return true;
    case Kind::switch_feature:
      switch_feature(fault, image);
      return true;
    case Kind::change_options:
      change_options(fault);
      return true;
    default:
      return false;
  }
}

plan::Staged Changes::staged(plan::Staged wish) const {
  wish.credential = secret_;
  wish.capability.mount_flags = mount_flags_;
  wish.source.kernel.map = map_options_;
  if (makes_snapshots(history_)) wish.source.serving.quiesce = true;
  return wish;
}

plan::Published Changes::published(plan::Published wish) const {
  wish.capability.mount_flags = mount_flags_;
  return wish;
}

// --- The user, its rights, and the Secret that names it -----------------------------------------

/// The next generation's user, or another key of the same one. The Secret has it before the old one is refused, in that
/// moment, or later. Clients that live are not asked again.
void Changes::rotate(const Fault& fault) {
  const auto generation = std::to_string(known_.size());
  const std::string before = known_.back().user;
  // The cluster knows one key of each user. Without an API server only the next stage would bring a new one.
  const bool other_user = fault.what / 2 % 2 == 0 || !history_.orchestrated;
  const plan::Credential next{other_user ? "node." + generation : before, Secret("key " + generation)};
  needs_.nodes.front()->trace("the Ceph user of " + before + " is " + next.user + " now");
  needs_.cluster.users[next.user] = next.key;
  known_.push_back(next);
  later(fault.what / 4 % 3 == 0 ? duration::zero() : needs_.any(1min), [this, next] { tell_secret(next); });
  if (next.user != before)
    later(fault.what / 4 % 3 == 1 ? duration::zero() : duration(fault.lasts),
          [this, before] { needs_.cluster.users.erase(before); });
}

/// As an administrator does it who takes care: the new user first, then the Secret. The old user stays, or goes once no
/// agent needs it.
void Changes::rotate_quietly() {
  if (history_.seed % 2 != 0) remove_unneeded(known_.back().user);
  const plan::Credential next{"node." + std::to_string(known_.size()),
                              Secret("quiet key " + std::to_string(known_.size()))};
  needs_.nodes.front()->trace("the Ceph user " + next.user + " comes beside " + known_.back().user);
  needs_.cluster.users[next.user] = next.key;
  known_.push_back(next);
  tell_secret(next);
}

/// Removes the user once `corbd keys` of each node says that nothing needs it.
void Changes::remove_unneeded(const std::string& user) {
  later(10s, [this, user] {
    const bool is_named = user == known_.back().user || user == secret_.user;
    if (is_named || std::ranges::any_of(needs_.nodes, [&](test::World* node) { return needs(*node, user); }))
      return remove_unneeded(user);
    needs_.nodes.front()->trace("nobody needs the Ceph user " + user + ", and it is removed");
    needs_.cluster.users.erase(user);
  });
}

/// The old user is removed at once, and some time later nothing that its clients ask gets an answer.
void Changes::end_tickets(const Fault& fault) {
  const std::string before = known_.back().user;
  const plan::Credential next{"node." + std::to_string(known_.size()), Secret("key of who came after " + before)};
  needs_.nodes.front()->trace("the Ceph user " + next.user + " replaces " + before);
  needs_.cluster.users[next.user] = next.key;
  needs_.cluster.users.erase(before);
  known_.push_back(next);
  later(fault.what / 2 % 2 == 0 ? duration::zero() : needs_.any(1min), [this, next] { tell_secret(next); });
  later(fault.lasts, [this] { needs_.cluster.end_tickets(); });
}

void Changes::tell_secret(plan::Credential credential) {
  secret_ = std::move(credential);
  if (!history_.orchestrated) return;
  for (test::World* node : needs_.nodes) node->stage_secret = {kSecret, secret_, ""};
}

/// Clients that live keep what they were told of their rights until their tickets end: those that were denied something
/// are denied it still when their user has it again.
void Changes::lower_caps(const Fault& fault) {
  auto& cluster = needs_.cluster;
  auto& lowered = fault.what / 2 % 2 == 0 ? cluster.without_caps : cluster.readers;
  const std::string user = known_.back().user;
  lowered.insert(user);
  for (const test::World* node : needs_.nodes)
    for (const auto& [client, state] : node->agent.clients)
      if (state == test::Client::live) cluster.denied.insert(client);
  later(fault.lasts, [&lowered, user] { lowered.erase(user); });
}

// --- A node's files -----------------------------------------------------------------------------

void Changes::put_right(test::Disk& disk) const {
  disk.config_malformed = disk.unreadable_record = disk.unreadable_incarnation = false;
  disk.clusters.insert(kCluster);
  disk.strangers.erase(kCluster);
  disk.reads_unknown.clear();
}

void Changes::break_config(const Fault& fault, test::Disk& disk) {
  switch (fault.what / 2 % 4) {
    case 0:
      disk.config_malformed = true;
      break;
    case 1:
      disk.clusters.erase(kCluster);
      break;
    case 2:
      disk.strangers.insert(kCluster);
      break;
    default:
      disk.reads_unknown = "the labels of this node are not known yet";
  }
  later(fault.lasts, [this, &disk] { put_right(disk); });
}

/// The disk cannot read a record, or a note of a client.
void Changes::break_records(const Fault& fault, test::Disk& disk) {
  (fault.what / 2 % 2 == 0 ? disk.unreadable_record : disk.unreadable_incarnation) = true;
  later(fault.lasts, [this, &disk] { put_right(disk); });
}

/// Somebody cleans up below /var/lib, or puts a backup of it back. The damage lasts at most until the agent writes the
/// record.
void Changes::damage_record(const Fault& fault, const std::string& image, test::World& node) {
  auto& records = node.disk.records;
  const auto of_volume = [image](const plan::Record& record) { return record.volume_id == image; };
  const auto record = std::ranges::find_if(records, of_volume);
  if (record == records.end()) return;
  // Without a record a dead agent's volume waits for its next stage. With two nodes that stage may never come, and
  // without its image it fails. What this host's own programs wrote since looks like rbd-nbd's writes to that stage,
  // which then replays what waits (docs/operations.md says never to remove a record).
  const auto forbids = [](const Fault& one) {
    return one.kind == Kind::remove_image || one.kind == Kind::visit_here || one.kind == Kind::grow_under_load;
  };
  if (fault.what / 2 % 2 == 0 && history_.nodes == 1 && std::ranges::none_of(history_.faults, forbids)) {
    damaged_.insert(image);
    node.trace("the record of " + image + " is removed");
    records.erase(record);
    return;
  }
  later(fault.lasts, [this, &node, of_volume, copy = *record] {
    const auto now = std::ranges::find_if(node.disk.records, of_volume);
    if (now == node.disk.records.end()) return;
    node.trace("an older record of " + copy.volume_id + " is put back");
    damaged_.insert(copy.volume_id);
    *now = copy;
  });
}

/// A rollout with another name, and the next one with the right name.
void Changes::rename_node(const Fault& fault, test::Agent& agent) {
  agent.node.other_name = "another-name";
  later(fault.lasts, [&agent] { agent.node.other_name.clear(); });
}

// --- The cluster and the KMS --------------------------------------------------------------------

void Changes::switch_cache_on(const Fault& fault, const std::string& image) {
  auto& cluster = needs_.cluster;
  const auto set = [&cluster, image, of_pool = fault.what / 2 % 2 == 0](bool on) {
    if (of_pool)
      cluster.pools_cache = on;
    else if (const auto place = cluster.images.find(image); place != cluster.images.end())
      place->second.cached = on;
  };
  set(true);
  later(fault.lasts, [set] { set(false); });
}

/// At once, or soon after the next entry is made: in the middle of what needs that entry.
void Changes::take_entries_away(const Fault& fault) {
  auto& cluster = needs_.cluster;
  if (fault.what / 2 % 2 == 0)
    cluster.take_entries_away();
  else
    cluster.entries_go_in = needs_.any(fault.what / 4 % 2 == 0 ? 100ms : 5s);
}

/// object-map, fast-diff, deep-flatten, journaling, or one that this version does not know. The header changes.
void Changes::switch_feature(const Fault& fault, const std::string& image) {
  constexpr std::array bits{std::uint64_t{8}, std::uint64_t{24}, std::uint64_t{32}, test::FakeImage::kJournaling,
                            kUnknownFeature};
  const auto flip = [&cluster = needs_.cluster, image, bit = bits.at(fault.what / 2 % bits.size())] {
    const auto place = cluster.images.find(image);
    if (place == cluster.images.end() || cluster.dead) return;
    place->second.features ^= bit;
    place->second.changed();
  };
  flip();
  later(fault.lasts, flip);
}

// --- The PersistentVolume -----------------------------------------------------------------------

/// Which stage has which options is chance: kubelet repeats one, or another node has its first.
void Changes::change_options(const Fault& fault) {
  const auto edit = [this](std::uint32_t which) {
    mount_flags_ = which % 3 == 0 ? "" : which % 3 == 1 ? "noatime" : "noatime,discard";
    map_options_ = which / 3 % 2 == 0 ? "" : "queue_depth=64";
  };
  edit(fault.what / 2);
  later(fault.lasts, [edit, what = fault.what] { edit(what / 20); });
}

/// Either the KMS is silent and does later what it was told, or its standby answers with older keys.
void Changes::disturb_kms(const Fault& fault) {
  auto& cluster = needs_.cluster;
  if (fault.what / 2 % 2 == 0)
    cluster.kms_silent = true;
  else
    cluster.standby_keys = cluster.kept_keys;
  later(fault.lasts, [&cluster] {
    cluster.kms_silent = false;
    cluster.standby_keys.reset();
  });
}

void Changes::stop() {
  over_ = true;
  auto& cluster = needs_.cluster;
  cluster.without_caps.clear();
  cluster.readers.clear();
  cluster.pools_cache = cluster.kms_silent = false;
  cluster.standby_keys.reset();
  cluster.entries_go_in.reset();
  for (auto& [name, image] : cluster.images) {
    image.cached = false;
    image.features &= ~kUnknownFeature;
  }
  for (test::World* node : needs_.nodes) {
    node->agent.node.other_name.clear();
    put_right(node->disk);
    node->nodes.silent = false;
  }
  tell_secret(known_.back());
  // By then all tickets have ended.
  if (has_unproven_kind()) cluster.denied.clear();
  // No API server has the Secret, and kubelet may not repeat its stage: somebody lets the old users in again.
  if (history_.orchestrated) return;
  for (const auto& credential : known_)
    if (!cluster.users.contains(credential.user)) cluster.users[credential.user] = credential.key;
  if (has_unproven_kind()) cluster.renew_tickets();
}

bool Changes::has_unproven_kind() const {
  return !history_.orchestrated &&
         std::ranges::any_of(history_.volumes, [](const auto& one) { return !one.exclusive; });
}

}  // namespace corbd::sim
