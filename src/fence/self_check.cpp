#include "corbd/fence/self_check.hpp"

#include <algorithm>
#include <array>

namespace corbd::fence {
namespace {

using image::AddressBlock;
using image::BlocklistEntry;

bool covers(const BlocklistEntry& entry, const std::string& client) {
  const auto host = AddressBlock::host_of_client(client);
  return host && entry.addresses.contains(*host);
}

bool covers_one_of(const BlocklistEntry& entry, const std::vector<std::string>& clients) {
  return std::ranges::any_of(clients, [&](const auto& client) { return covers(entry, client); });
}

void add_volumes(std::vector<Reason>& reasons, const NodeWriters& node, const std::string& fsid) {
  for (const auto& volume : node.volumes) {
    if (volume.fsid != fsid) continue;
    const std::string which = "volume " + volume.id + " at " + volume.device;
    if (!volume.given_up)
      reasons.push_back(
          {Cause::not_given_up,
           which + " is not given up: end its pods, or give it up with `corbd fail " + volume.id + " --yes-really`"});
    else if (volume.in_use)
      reasons.push_back({Cause::still_used, which + " is given up, but mounted or published still: end its pods"});
  }
}

/// A device with the ID of a volume that has a record counts as that volume's.
void add_devices(std::vector<Reason>& reasons, const NodeWriters& node, const std::string& fsid) {
  for (const auto& device : node.devices) {
    if (!device.fsid.empty() && device.fsid != fsid) continue;
    if (std::ranges::find(node.volumes, device.volume_id, &NodeWriters::Volume::id) != node.volumes.end()) continue;
    reasons.push_back(
        {Cause::device, device.fsid.empty()
                            ? device.path + " is of no volume of this agent, and may write: unmap it"
                            : device.path + " is served by the kernel's own client: unmount and unmap it"});
  }
}

void add_others(std::vector<Reason>& reasons, const NodeWriters& node) {
  for (const auto& program : node.programs) reasons.push_back({Cause::program, program + " has a Ceph client: end it"});
  if (node.cephfs)
    reasons.push_back({Cause::cephfs, "the kernel has a CephFS mounted, perhaps of this cluster: unmount it"});
  for (const auto& socket : node.unsent)
    reasons.push_back({Cause::unsent, "the kernel still sends what a closed connection left, " + socket +
                                          ": check again in some minutes"});
  for (const auto& what : node.unseen) reasons.push_back({Cause::unseen, what});
}

/// Looks for the client's own entry, because the fence itself is about to go.
bool is_blocklisted(const image::Blocklist& now, const std::string& client) {
  const auto wanted = image::entry_of_client(client);
  return wanted &&
         std::ranges::any_of(now.entries, [&](const BlocklistEntry& one) { return one.same_target(*wanted); });
}

void add_clients(std::vector<Reason>& reasons, const BlocklistEntry& entry, const CheckFacts& facts) {
  const image::OwnClients& clients = facts.clients;
  const auto is_among = [](const std::vector<std::string>& all, const std::string& client) {
    return std::ranges::find(all, client) != all.end();
  };
  for (const auto& client : clients.known)
    if (covers(entry, client) && !is_among(clients.left, client) && !is_among(clients.ended_well, client) &&
        !is_blocklisted(facts.now, client))
      reasons.push_back({Cause::ending_early, "the blocklist has no entry of its own for the agent's dead client " +
                                                  client + ", which somebody removed: check again, which adds it"});
  for (const auto& client : clients.left)
    if (covers(entry, client))
      reasons.push_back({Cause::own_client, "the agent's own client " + client + " has not ended yet: check again"});
  for (const auto& client : clients.ending_early)
    if (covers(entry, client))
      reasons.push_back({Cause::ending_early, "the blocklist has the agent's dead client " + client +
                                                  " for too short a time, which the agent renews: check again after "
                                                  "the end of that entry"});
}

/// Adds the reasons against the entry itself.
void add_entry(std::vector<Reason>& reasons, const BlocklistEntry& entry, const CheckFacts& facts) {
  const auto same = [&](const BlocklistEntry& one) { return one.same_target(entry) && one.until == entry.until; };
  if (std::ranges::none_of(facts.before.entries, same))
    reasons.push_back({Cause::made_anew, "somebody fenced " + entry.text() + " anew during the check: check again"});
  if (!entry.addresses.single())
    reasons.push_back({Cause::wider, entry.text() + " covers other nodes too, and this one speaks for itself alone: "
                                                    "check each of them, and unfence by hand"});
  if (!covers_one_of(entry, facts.clients.known))
    reasons.push_back({Cause::never_here, "no client of this node that wrote is known to have had an address in " +
                                              entry.text() + ": the fence may be meant for another machine"});
}

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::array<std::string_view, 3> names{"clean", "unclean", "unknown"};
  return names.at(static_cast<std::size_t>(verdict));
}

Verdict CheckedFence::verdict() const {
  if (reasons.empty()) return Verdict::clean;
  const auto is_known = [](const Reason& reason) { return reason.cause < kFirstUnknown; };
  return std::ranges::any_of(reasons, is_known) ? Verdict::unclean : Verdict::unknown;
}

std::vector<CheckedFence> self_check(const CheckFacts& facts) {
  std::vector<CheckedFence> fences;
  for (const auto& entry : facts.now.entries) {
    if (entry.kind == BlocklistEntry::Kind::client) continue;
    if (!covers_one_of(entry, facts.now.own) && !covers_one_of(entry, facts.clients.known)) continue;
    auto& reasons = fences.emplace_back(CheckedFence{entry}).reasons;
    add_volumes(reasons, facts.node, facts.now.fsid);
    add_devices(reasons, facts.node, facts.now.fsid);
    add_clients(reasons, entry, facts);
    add_others(reasons, facts.node);
    add_entry(reasons, entry, facts);
  }
  return fences;
}

}  // namespace corbd::fence
