#include "values.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace corbd::search {
namespace {

using plan::Observation;
using Lock = image::Ownership::Lock;
using State = plan::Attachment::State;

constexpr std::uint64_t kBytes = 1 << 30;
const std::string kPath = "/staging", kTarget = plan::staging_target(kVolume, kPath), kBoot = "boot";

[[noreturn]] void unsearched(const std::string& what) {
  std::fprintf(stderr, "the planner does something that is not searched: %s\n", what.c_str());
  std::abort();
}

std::string uid_text(Number uid) { return uid == 0 ? "" : "uid-" + std::to_string(uid); }
Number uid_of(const std::string& text) {
  return text.empty() ? Number{0} : static_cast<Number>(std::stoi(text.substr(4)));
}

std::vector<std::string> addresses(Set clients) {
  std::vector<std::string> all;
  for (Ref client = 1; client < kRefs; ++client)
    if ((clients & bit(client)) != 0) all.push_back(address_of(client));
  return all;
}

plan::Source source() {
  plan::Source at;
  at.cluster_id = "lab";
  at.pool = "pool";
  at.image = "image";
  return at;
}

plan::Capability capability() {
  plan::Capability wanted;
  wanted.fstype = "ext4";
  return wanted;
}

device::Seen device_of(const Device& device) {
  device::Seen seen;
  seen.backend = kVolume;
  seen.size = kBytes;
  seen.dev_major = 43;
  seen.io_timeout_ms = device.tuned ? 1000 : 30000;
  return seen;
}

host::Mount mount_of(const device::Seen& device) {
  host::Mount mount;
  mount.dev_major = device.dev_major;
  mount.dev_minor = device.dev_minor;
  mount.target = kTarget;
  mount.fstype = "ext4";
  return mount;
}

plan::Stash stash_of(const Stash& stash) {
  plan::Stash is;
  is.pool = source().pool;
  is.image = source().image;
  is.nbd = true;
  is.device = stash.device ? "/dev/nbd0" : "";
  is.attachment = uid_text(stash.uid);
  return is;
}

plan::HolderNode holder_node(Ref client, bool tainted) {
  using NodeState = plan::HolderNode::State;
  plan::HolderNode node;
  if (node_of(client) < 0) return node;
  node.name = "node-" + std::to_string(node_of(client) + 1);
  node.state = tainted ? NodeState::out_of_service : NodeState::ready;
  return node;
}

image::Ownership ownership_of(const Process& agent) {
  image::Ownership who;
  who.lock = static_cast<Lock>(agent.lock);
  if (agent.owner != kNobody) who.owner = address_of(agent.owner);
  who.foreign_watchers = addresses(agent.watchers);
  if (agent.client != kNobody) who.self = address_of(agent.client);
  who.modified = agent.stamp;
  who.version = agent.version;
  who.features.bits = 1 | image::kExclusiveLock;
  return who;
}

std::vector<plan::Holder> holders_of(const Process& agent) {
  std::vector<plan::Holder> all;
  const bool locked = static_cast<Lock>(agent.lock) == Lock::other;
  for (Ref client = 1; client < kRefs; ++client) {
    const bool locks = locked && agent.owner == client, watches = (agent.watchers & bit(client)) != 0;
    if (!locks && !watches) continue;
    plan::Holder holder{address_of(client)};
    holder.watches = watches;
    holder.locks = locks;
    holder.blocked = (agent.blocked & bit(client)) != 0;
    holder.node = holder_node(client, (agent.tainted & bit(client)) != 0);
    all.push_back(std::move(holder));
  }
  return all;
}

plan::Attachment attachment_of(const Process& agent) {
  plan::Attachment is;
  is.state = static_cast<State>(agent.attachment - 1);
  if (is.state == State::here) is.uid = uid_text(agent.uid);
  if (is.state != State::here) is.why = is.state == State::away ? "it is attached elsewhere" : "no answer";
  return is;
}

/// As volume/observe.cpp has it.
duration lock_took(const Node& of, const Process& agent) {
  duration took = agent.took == Process::unknown ? duration::max() : duration();
  if (agent.owned && (agent.late_lockers & bit(agent.owner)) != 0) took = duration::max();
  const Ref call = of.record.there ? of.record.lock_call : kNobody;
  const bool asked_by_dead_agent = agent.owned && static_cast<Lock>(agent.lock) == Lock::our_dead && call != kNobody &&
                                   call == agent.owner && (agent.lockers & bit(call)) == 0;
  if (asked_by_dead_agent) took = agent.lock_call_late ? std::chrono::minutes(1) : std::chrono::seconds(1);
  return took;
}

void plant(Faults faults, Observation& seen, const Node& of) {
  auto& facts = seen.facts;
  if (faults.has(Fault::free_lock_is_proof) && facts.ownership && facts.ownership->lock == Lock::none)
    facts.ownership->lock = Lock::mine;
  if (faults.has(Fault::uid_is_not_compared) && facts.attachment && facts.attachment->state == State::here)
    facts.attachment->uid = uid_text(of.record.uid);
  if (faults.has(Fault::stamp_is_not_compared) && facts.ownership && of.record.modified != 0)
    facts.ownership->modified = of.record.modified;
  if (faults.has(Fault::late_lock_is_proof)) seen.lock_took = {};
}

}  // namespace

std::string address_of(Ref client) {
  const int node = node_of(client);
  const std::string host = node >= 0 ? "10.0.0." + std::to_string(node + 1) : client == kTool ? "10.0.0.8" : "10.0.0.9";
  return host + ":0/" + std::to_string(client);
}

Ref client_at(const std::string& address) {
  for (Ref client = 1; client < kRefs; ++client)
    if (address_of(client) == address) return client;
  unsearched("client " + address);
}

plan::Wish wish_of(const Process& agent) {
  switch (agent.op) {
    case Process::stage: {
      plan::Staged wish;
      wish.path = kPath;
      wish.capability = capability();
      wish.source = source();
      wish.credential = {"node", Secret("key")};
      return wish;
    }
    case Process::unstage:
      return plan::Unstaged{kPath};
    case Process::attach:
      return plan::Attached{uid_text(agent.op_uid)};
    default:
      return plan::Healed{};
  }
}

/// Facts of the node alone are known from the start, so that the search has no state between such looks.
plan::Facts facts_of(const Node& of, const Process& agent) {
  plan::Facts facts;
  facts.resolved = image::Resolved{.key = {"fsid", 1, "", "id-1", 0},
                                   .size = kBytes,
                                   .exclusive_lock = true,
                                   .features = {1 | image::kExclusiveLock}};
  facts.resolved->cluster_id = source().cluster_id;
  facts.resolved->name = {source().pool, "", source().image};
  facts.probe = host::Probe{host::Probe::Kind::filesystem, "ext4"};
  facts.format_marker = "";
  facts.checked = true;
  facts.image_size_asked = true;
  facts.filesystem = host::Extent{kBytes, 4096};
  facts.served_by_other = false;
  facts.stash = of.stash.there ? std::optional(stash_of(of.stash)) : std::optional<plan::Stash>();
  if (!of.device.mounted) facts.cleared.insert({kTarget, result<>()});
  if (agent.unused) facts.unused = true;
  if (agent.fenced) facts.fenced = true;
  if (agent.header) facts.header = image::Header{.version = agent.header_version};
  if (agent.header && agent.header_break_from != 0)
    facts.header->break_time = plan::break_time(agent.header_break_from);
  if (agent.owned) facts.ownership = ownership_of(agent);
  if (agent.holders) facts.holders = holders_of(agent);
  if (agent.attachment != 0) facts.attachment = attachment_of(agent);
  for (const auto& address : addresses(agent.evicted)) facts.evicted.insert(address);
  return facts;
}

Observation observation_of(const Node& of, const Process& agent, Faults faults) {
  Observation seen;
  seen.boot_id = kBoot;
  if (of.device.there) seen.devices.push_back(device_of(of.device));
  if (of.device.mounted) seen.mounts.push_back(mount_of(device_of(of.device)));
  seen.link = static_cast<Observation::Link>(agent.link);
  seen.connected = agent.connected;
  seen.link_inherited = of.device.link == Device::waits;
  seen.image_open = agent.image != Process::shut;
  seen.exclusive_lock = agent.image == Process::open;
  seen.tombstone = agent.image == Process::tombstone;
  if (seen.image_open) seen.image_size = kBytes;
  if (agent.image == Process::open) seen.client = address_of(agent.client);
  seen.image_closing = agent.closing;
  seen.image_cut_off = agent.lost;
  seen.lock_held = agent.right;
  seen.lock_took = lock_took(of, agent);
  if (agent.modified != 0) seen.modified = agent.modified;
  seen.access_lost = agent.access_lost;
  if (agent.was_lost) seen.lost_for = std::chrono::minutes(2);
  seen.key_known = seen.credential_kept = true;
  seen.facts = facts_of(of, agent);
  plant(faults, seen, of);
  return seen;
}

plan::Record real_record(const Record& record, int node) {
  plan::Record is;
  is.volume_id = kVolume;
  is.names = {"rbd.csi.ceph.com", "node-" + std::to_string(node + 1)};
  is.source = source();
  is.user = "node";
  is.key = {"fsid", 1, "", "id-1", 0};
  is.failed = record.failed;
  is.proof.attachment_uid = uid_text(record.uid);
  is.proof.signed_as = uid_text(record.signed_as);
  if (record.break_before != 0) is.proof.lock_break = plan::LockBreak{record.break_before};
  if (record.break_after != 0) is.proof.lock_break->after = record.break_after;
  if (record.lock_call != kNobody) is.proof.lock_call = plan::LockCall{address_of(record.lock_call)};
  if (record.modified != 0) is.proof.modified = record.modified;
  if (record.device) is.device.index = 0;
  is.device.size = kBytes;
  is.device.exclusive_lock = record.exclusive;
  is.device.boot_id = kBoot;
  if (record.staging != 0) is.stagings.push_back({kPath, capability(), record.staging == 2});
  return is;
}

Record small_record(const plan::Record& record, int node) {
  Record is;
  is.there = 1;
  is.failed = record.failed;
  is.device = record.device.index.has_value();
  is.exclusive = record.device.exclusive_lock;
  if (!record.stagings.empty()) is.staging = record.stagings.front().complete ? 2 : 1;
  is.uid = uid_of(record.proof.attachment_uid);
  is.signed_as = uid_of(record.proof.signed_as);
  const auto& broken = record.proof.lock_break;
  if (broken) is.break_before = static_cast<Number>(broken->before);
  if (broken && broken->after) is.break_after = static_cast<Number>(*broken->after);
  if (record.proof.lock_call) is.lock_call = client_at(record.proof.lock_call->client);
  is.modified = static_cast<Number>(record.proof.modified.value_or(0));
  if (real_record(is, node) != record) unsearched("it writes the record " + plan::encode(record));
  return is;
}

Stash small_stash(const plan::Stash& stash) {
  const Stash is{.there = 1, .device = !stash.device.empty(), .uid = uid_of(stash.attachment)};
  if (stash_of(is) != stash) unsearched("it writes a stash of " + stash.image);
  return is;
}

}  // namespace corbd::search
