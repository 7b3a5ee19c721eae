#include "holders.hpp"

#include <algorithm>
#include <map>

#include "corbd/core/log.hpp"

namespace corbd::volume {
namespace {

using plan::Holder;

/// Returns "node" of ".rbd.csi.ceph.com/clientaddress/<volume ID>/<node>".
std::string node_of(const std::string& name) { return name.substr(name.rfind('/') + 1); }

/// Notes about nodes in the image's metadata (docs/sources.md#node-to-controller).
struct Notes {
  std::map<std::string, std::string> addresses;  ///< by node
  std::vector<std::string> users;                ///< nodes
};

task<Notes> read_notes(image::Image& image, Until until) {
  Notes notes;
  const auto all = co_await image.metadata_below(".rbd.csi.ceph.com/", until);
  if (!all) {
    log::warning("holders.no_notes", {{"image", image.key().text()}, {"error", all.error().text}});
    co_return notes;
  }
  for (const auto& [name, value] : *all) {
    if (name.starts_with(".rbd.csi.ceph.com/clientaddress/")) notes.addresses[node_of(name)] = value;
    if (name.starts_with(".rbd.csi.ceph.com/userid/")) notes.users.push_back(node_of(name));
  }
  co_return notes;
}

std::string host_of(const std::string& client) {
  const auto host = image::AddressBlock::host_of_client(client);
  return host ? host->address() : std::string();
}

plan::Noted noted_of(const Notes& notes, const std::string& host) {
  plan::Noted noted;
  for (const auto& [node, address] : notes.addresses)
    if (address == host) noted.at_address.push_back(node);
  for (const auto& node : notes.users)
    if (std::ranges::find(noted.at_address, node) == noted.at_address.end()) noted.others.push_back(node);
  return noted;
}

std::vector<Holder> clients_of(const image::Ownership& who) {
  std::vector<Holder> all;
  const auto holder = [&](const std::string& address) -> Holder& {
    const auto known = std::ranges::find(all, address, &Holder::address);
    if (known != all.end()) return *known;
    Holder& made = all.emplace_back(Holder{address});
    if (const auto client = who.clients.find(address); client != who.clients.end()) made.client = client->second;
    return made;
  };
  for (const auto& watcher : who.foreign_watchers) holder(watcher).watches = true;
  if (who.lock == image::Ownership::Lock::other) {
    Holder& owner = holder(who.owner);
    owner.locks = true;
    owner.cookie = who.cookie;
  }
  if (!who.writer.empty()) holder(who.writer);
  return all;
}

}  // namespace

task<std::vector<Holder>> find_holders(const Ports& ports, image::Access access, image::Image& image,
                                       image::Ownership who, std::string volume_id, Until until) {
  auto all = clients_of(who);
  if (all.empty()) co_return all;
  const auto blocked = co_await ports.clusters.blocklist(access, until);
  if (!blocked) log::warning("holders.no_blocklist", {{"image", image.key().text()}, {"error", blocked.error().text}});
  const Notes notes = co_await read_notes(image, until);
  for (auto& holder : all) {
    holder.blocked = blocked && blocked->find(holder.address) != nullptr;
    const std::string host = host_of(holder.address);
    holder.node = co_await ports.orchestrator.holder_node({volume_id, holder.address, host, noted_of(notes, host)});
  }
  co_return all;
}

void forget_own_kernel(const Ports& ports, const image::Key& key, image::Ownership& who) {
  const auto all = ports.kernel.inventory();
  if (!all) return;
  for (const auto& device : device::of_image(*all, key)) {
    std::erase(who.foreign_watchers, device.client);
    if (who.owner != device.client) continue;
    who.owner.clear();
    who.lock = image::Ownership::Lock::none;
  }
}

task<result<>> evict(const Ports& ports, image::Access access, std::vector<Holder> holders, Until until) {
  std::vector<image::BlocklistEntry> entries;
  for (const auto& holder : holders) {
    auto entry = image::entry_of_client(holder.address);
    if (!entry)
      co_return Error{errc::in_use, "the image's holder cannot be cut off: " + entry.error().text +
                                        ": make sure that it is dead, and break its lock by hand (`rbd lock remove`)"};
    entries.push_back(std::move(*entry));
  }
  auto done = co_await ports.clusters.block(std::move(access), std::move(entries), image::kLongestAway, until);
  if (!done) co_return done.error();
  for (const auto& one : *done)
    if (!one) co_return one;
  co_return result<>();
}

}  // namespace corbd::volume
