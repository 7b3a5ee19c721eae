// Plays watches, locks, the blocklist, other nodes, and writes.
#include <algorithm>

#include "support/world/ports.hpp"

namespace corbd::test {

FakeImage* Cluster::by_id(const std::string& image_id) {
  for (auto& [name, image] : images)
    if (image.id == image_id) return &image;
  return nullptr;
}

result<> Cluster::knows(const std::string& user, const Secret& key) const {
  const auto known = users.find(user);
  if (known == users.end()) return Error{errc::unauthenticated, "the cluster knows no user " + user};
  if (known->second != key) return Error{errc::unauthenticated, "the cluster refuses the key of user " + user};
  return {};
}

void Cluster::end_tickets() {
  std::set<std::string> without;
  for (const auto& [client, user] : sessions)
    if (!users.contains(user) && ticketless.insert(client).second) without.insert(client);
  for (const auto& client : without) trace("the tickets of " + client + " have ended");
  loop_.outside_in(kWatch, [this, without = std::move(without)] {
    end_watches([&](const std::string& one) { return without.contains(one) && ticketless.contains(one); });
  });
}

bool Cluster::has_open_images() const {
  return std::ranges::any_of(opened, [this](const auto& one) {
    const std::string client = one.second->client();
    // One that was given up writes no more, and who needs the image fences it.
    const bool given_up = one.second->node().agent.was_cut(client);
    // The image for a move that did not come about may close for as long as the agent lives.
    const bool harmless = one.second->read_only() || one.second->only_closes();
    return !ticketless.contains(client) || !(given_up || refuses(client) || harmless);
  });
}

void Cluster::renew_tickets() {
  std::erase_if(ticketless, [this](const std::string& client) { return users.contains(sessions.at(client)); });
  for (const World* node : nodes_)
    if (!node->network.is_cut()) watch_again(*node);
}

std::uint64_t Cluster::clock_of_osds() const {
  constexpr std::chrono::hours before{1000};
  return static_cast<std::uint64_t>((loop_.clock.now().time_since_epoch() + before) / std::chrono::nanoseconds(1));
}

bool Cluster::would_stamp(const FakeImage& image) const {
  return clock_of_osds() >= image.modified + std::chrono::nanoseconds(kStampsEvery).count();
}

void Cluster::stamp(FakeImage& image) const {
  if (would_stamp(image)) image.modified = clock_of_osds();
}

void Cluster::entries_age(duration by) {
  for (auto& [address, end] : blocklisted) end -= by;
  for (auto& [address, end] : renewed) end -= by;
}

bool Cluster::has_entry(const std::string& address) const {
  const auto lasts = [&](const std::map<std::string, time_point>& ends) {
    const auto entry = ends.find(address);
    return entry != ends.end() && loop_.clock.now() < entry->second;
  };
  return lasts(blocklisted) || lasts(renewed);
}

/// That it fenced a client of its own, an agent's file tells the next one too.
bool Cluster::had_entry(const std::string& address, const World& agent) const {
  const auto taken = taken_away_.find(address);
  if (taken == taken_away_.end()) return false;
  const auto own = agent.agent.clients.find(address);
  return (own != agent.agent.clients.end() && own->second == Client::fenced) ||
         taken->second.contains({&agent, agent.agent.life()});
}

std::set<std::string> Cluster::cut_off_clients() const {
  std::set<std::string> all;
  for (const auto& [address, end] : blocklisted)
    if (has_entry(address)) all.insert(address);
  return all;
}

bool Cluster::refuses(const std::string& address) const {
  return has_entry(address) ||
         (!refused_hosts_.empty() && refused_hosts_.contains(std::string(image::host_of(address))));
}

bool Cluster::may_write(const FakeImage& image, const std::string& address) const {
  return !refuses(address) && (!image.exclusive || image.shared || image.lock_owner == address);
}

void Cluster::end_watches(const std::function<bool(const std::string&)>& of) {
  for (auto& [name, image] : images) {
    std::erase_if(image.watchers, of);
    if (of(image.lock_watcher)) image.lock_watcher.clear();
  }
}

/// Ends the watches of those clients, as the OSDs do, and tells the clients.
void Cluster::cut_off(const std::function<bool(const std::string&)>& is_cut_off) {
  end_watches(is_cut_off);
  for (const auto& [serial, image] : opened) {
    if (!is_cut_off(image->client())) continue;
    tell_cut_off(serial, image->node());
  }
}

/// Tells a client that it is cut off. An unreachable client learns it when it can be reached again, if it is still true
/// then: watch_again().
void Cluster::tell_cut_off(int serial, const World& node) {
  if (node.network.is_cut()) return;
  const auto told_in = hazards_now() == nullptr ? duration::zero() : hazards_now()->any(std::chrono::seconds(2));
  loop_.outside_in(told_in, [this, serial, &node] {
    if (const auto place = opened.find(serial); place != opened.end() && node.agent.running() && !node.network.is_cut())
      place->second->cut_off("its client was cut off");
  });
}

void Cluster::watch_again(const World& node) {
  for (const auto& [serial, image] : opened) {
    if (&image->node() != &node || image->is_closed() || ticketless.contains(image->client())) continue;
    if (refuses(image->client()))
      tell_cut_off(serial, node);
    else if (FakeImage* of = by_id(image->key().image_id); of != nullptr && !image->read_only())
      of->watchers.insert(image->client());
  }
}

void Cluster::osds_get_map() {
  refused_hosts_ = fenced_hosts;
  if (refused_hosts_.empty()) return;
  cut_off([this](const std::string& client) { return refused_hosts_.contains(std::string(image::host_of(client))); });
}

/// An existing entry ends a watch all the same.
void Cluster::blocklist(const std::string& address, duration lasts) {
  osds_get_map();
  const auto end = loop_.clock.now() + lasts;
  if (!has_entry(address)) {
    trace("blocklisted " + address);
    blocklisted[address] = end;
  }
  taken_away_.erase(address);
  cut_off([&](const std::string& client) { return client == address; });
  if (entries_go_in) loop_.outside_in(*std::exchange(entries_go_in, std::nullopt), [this] { take_entries_away(); });
}

void Cluster::take_entries_away() {
  if (dead) return;
  const auto may_go = [&](const std::string& client) {
    const World* node = node_of(client);
    if (node == nullptr || node->network.is_cut() || under_way_[client] > 0) return false;
    return std::ranges::none_of(opened, [&](const auto& one) {
      const FakeImage* of = by_id(one.second->key().image_id);
      return one.second->client() == client && of != nullptr && of->exclusive && of->lock_owner != client;
    });
  };
  for (const auto& client : cut_off_clients()) {
    if (!may_go(client)) continue;
    trace("somebody takes the entry of " + client + " away");
    blocklisted.erase(client);
    renewed.erase(client);
    auto& agents = taken_away_[client];
    for (const World* node : nodes_)
      if (node->agent.running()) agents.insert({node, node->agent.life()});
  }
}

void Cluster::keep_blocked(const std::string& address, duration lasts) {
  blocklist(address, lasts);
  renewed[address] = std::max(renewed[address], loop_.clock.now() + lasts);
}

void Cluster::fence_host(const std::string& host, duration osds_know_in) {
  trace("the host " + host + " is fenced");
  fenced_hosts.insert(host);
  if (osds_know_in == duration::zero()) return osds_get_map();
  loop_.outside_in(osds_know_in, [this] { osds_get_map(); });
}

void Cluster::unfence_host(const std::string& host) {
  trace("the host " + host + " is fenced no more");
  fenced_hosts.erase(host);
  refused_hosts_.erase(host);
}

void Cluster::expire_watches(std::set<std::string> of) {
  if (of.empty()) return;
  loop_.outside_in(
      kWatch, [this, of = std::move(of)] { end_watches([&](const std::string& one) { return of.contains(one); }); });
}

void Cluster::end_watches_of(const std::string& host) {
  end_watches([&](const std::string& watcher) { return image::host_of(watcher) == host; });
}

/// This is an operation on the header.
void Cluster::end_lock_watch(const std::string& image_id, const std::string& client) {
  FakeImage* image = by_id(image_id);
  const bool taken = image != nullptr && !image->lock_owner.empty() && image->lock_owner != client;
  if (!taken || image->lock_watcher != client) return;
  image->lock_watcher.clear();
  image->break_time = 0;
}

void Cluster::revive() {
  dead = false;
  trace("the cluster answers again");
  for (auto held = std::exchange(held_, {}); auto& work : held) work();
}

bool Cluster::visit(FakeImage& image, const std::string& visitor, bool by_force) {
  if (dead) return false;
  if (image.exclusive && !image.shared && !image.lock_owner.empty()) {
    if (image.owner_lives() && !by_force) return false;
    blocklist(image.lock_owner);
    image.changed();
  }
  trace("another node " + visitor + " writes into " + image.id);
  if (image.exclusive) image.lock_by(visitor);
  // The agent there marks an image that has no lock; ceph-csi's client would not. It cuts a third node's writer off,
  // which this node could not see any more once the visitor has left.
  if (!image.exclusive && !image.shared) {
    const bool of_third_node = node_of(image.writer) == nullptr;
    if (!image.writer.empty() && (of_third_node || !image.watchers.contains(image.writer))) blocklist(image.writer);
    image.writer = visitor;
    image.writer_handle = 0;
  }
  image.watchers.insert(visitor);
  image.changed();
  ++image.visits;
  stamp(image);
  image.data = true;
  image.only_formatted = false;
  // That node has such an agent too, and a raw block volume there: no format that was begun may be repeated.
  image.metadata.erase("corbd/format");
  if ((image.exclusive || !image.shared) && !image.taken) image.taken = loop_.clock.now();
  image.taken_by.clear();
  for (std::size_t block = image.visits % 2; block < kBlocks; block += 2) {
    image.blocks[block] = new_number();
    image.acked[block] = 0;
  }
  return true;
}

void Cluster::leave(FakeImage& image, const std::string& visitor, bool cleanly) {
  trace("the other node " + visitor + (cleanly ? " leaves " : " dies with ") + image.id);
  image.watchers.erase(visitor);
  if (cleanly && image.writer == visitor) image.writer.clear();
  if (!cleanly || image.lock_owner != visitor) return;
  image.lock_owner.clear();
  image.changed();
}

/// An agent that leaves its locks to the next one still serves other images.
void Cluster::look_whether_it_hands_over(const FakeImage& image) {
  const World* of = node_of(image.lock_owner);
  if (of == nullptr || image.lock_handle != FakeImage::kKept || refuses(image.lock_owner)) return;
  if (of->agent.clients.at(image.lock_owner) == Client::live && !of->network.is_cut())
    broke("a client was cut off while its agent handed over: the lock of " + image.id + " had no watch");
}

bool Cluster::maintain(FakeImage& image, const std::string& by) {
  if (dead) return false;
  const World* robbed = nullptr;
  if (image.exclusive && !image.lock_owner.empty()) {
    if (image.owner_lives()) return false;
    look_whether_it_hands_over(image);
    blocklist(image.lock_owner);
    const World* of = node_of(image.lock_owner);
    const bool lived = of != nullptr &&
                       (of->agent.clients.at(image.lock_owner) == Client::live || of->agent.was_cut(image.lock_owner));
    if (lived) robbed = of;
  } else if (image.exclusive && image.our_break == image.version) {
    // Whether the agent has broken the lock of its own client, and has not taken it yet.
    const auto locked_there = [&](const World* node) { return node->agent.node_address == image.locked_at; };
    if (const auto place = std::ranges::find_if(nodes_, locked_there); place != nodes_.end()) robbed = *place;
  }
  // Without an orchestrator, a client that takes the lock of a living client that was cut off counts as a thief. The
  // agent may not have learnt it yet.
  if (robbed != nullptr && robbed->attachment.state == plan::Attachment::State::unknown && !image.taken)
    image.taken = loop_.clock.now();
  trace("a tool at " + by + " works on " + image.id);
  image.watchers.insert(by);
  if (image.exclusive) image.lock_by(by);
  image.changed();
  return true;
}

void Cluster::late_write(const std::string& image_id, const std::string& by) {
  if (dead) return hold([this, image_id, by] { late_write(image_id, by); });
  FakeImage* image = by_id(image_id);
  if (image == nullptr) return;
  trace("a late write of " + by + " to " + image_id + (refuses(by) ? " is refused" : " lands"));
  if (refuses(by)) return;
  const auto has_mapped = [&](const World* node) { return node->kernel.rbd_client() == image->lock_owner; };
  const bool locked_here = node_of(image->lock_owner) != nullptr || std::ranges::any_of(nodes_, has_mapped);
  const bool ours = image->exclusive ? locked_here : image->taken_from.contains(by);
  if (ours) broke("a write of " + by + " landed in " + image_id + ", which this node had taken from it");
  image->blocks[0] = new_number();
  image->acked[0] = 0;
  image->data = true;
  image->only_formatted = false;
}

void Cluster::other_agent_waits(const std::string& name, const std::string& by, duration looks) {
  waiting_agents_.insert(by);
  other_agent_looks(name, by, looks);
}

void Cluster::other_agent_looks(const std::string& name, const std::string& by, duration looks) {
  const auto place = images.find(name);
  if (place == images.end() || !waiting_agents_.contains(by)) return;
  const auto again = [this, name, by, looks](duration in) {
    loop_.outside_in(in, [=, this] { other_agent_looks(name, by, looks); });
  };
  if (dead) return again(std::chrono::seconds(5));
  place->second.watchers.insert(by);
  loop_.outside_in(looks, [=, this] {
    const auto still = images.find(name);
    if (still == images.end()) return;
    FakeImage& image = still->second;
    const bool alone = image.watchers.size() == 1 && image.lock_watcher.empty();
    image.watchers.erase(by);
    if (!waiting_agents_.contains(by)) return;
    if (alone && visit(image, by, false)) {
      waiting_agents_.erase(by);
      other_agents.insert(by);
    } else {
      again(std::chrono::seconds(1) + (hazards_now() == nullptr ? duration(std::chrono::milliseconds(700))
                                                                : hazards_now()->any(std::chrono::seconds(2))));
    }
  });
}

void Cluster::remove_image(const std::string& name) {
  const auto place = images.find(name);
  if (place == images.end() || place->second.is_watched()) return;
  trace("image " + name + " is removed");
  // An image that was taken from us before has been lost since then.
  removed_[place->second.id] = place->second.taken.value_or(loop_.clock.now());
  images.erase(place);
}

void Cluster::resized(const std::string& image_id) {
  // The kernel's own client watches a header that it has mapped to write.
  for (const World* node : nodes_)
    for (auto& device : node->kernel.devices)
      if (device.kind == device::Kind::krbd && device.image_id == image_id && !device.read_only)
        device.size = by_id(image_id)->size;
  std::vector<int> told;
  for (const auto& [serial, image] : opened)
    if (image->key().image_id == image_id) told.push_back(serial);
  for (const int serial : told)
    if (const auto place = opened.find(serial); place != opened.end() && place->second->node().agent.running())
      place->second->resized();
}

std::optional<time_point> Cluster::lost_since(const std::string& image_id, const std::string& node) const {
  if (const auto place = removed_.find(image_id); place != removed_.end()) return place->second;
  for (const auto& [name, image] : images)
    if (image.id == image_id && image.taken_by != node) return image.taken;
  return std::nullopt;
}

// --- Nodes with an agent ------------------------------------------------------------------------

World* Cluster::node_of(const std::string& client) const {
  const auto place =
      std::ranges::find_if(nodes_, [&](const World* node) { return node->agent.clients.contains(client); });
  return place == nodes_.end() ? nullptr : *place;
}

Hazards* Cluster::hazards_now() const { return hazards != nullptr ? hazards : nodes_.front()->hazards; }

void Cluster::trace(const std::string& event) const {
  if (hazards_now() != nullptr) hazards_now()->trace(event);
}

void Cluster::broke(std::string rule) { nodes_.front()->broke(std::move(rule)); }

// --- Data ---------------------------------------------------------------------------------------

void Cluster::submit(Work work) {
  using namespace std::chrono_literals;
  // An operation may lie queued at an OSD for long, also when its client is dead.
  duration takes = hazards_now() == nullptr ? duration(1ms) : hazards_now()->any(4ms) + 1us;
  if (hazards_now() != nullptr && hazards_now()->any(duration(20)).count() == 0) takes += hazards_now()->any(8s);
  work.sent = loop_.clock.now();
  ++under_way_[work.client];
  loop_.outside_in(takes + slow, [this, work = std::move(work)]() mutable { run_work(std::move(work)); });
}

void Cluster::run_work(Work work) {
  if (dead || data_hang) {
    hold([this, work = std::move(work)]() mutable { run_work(std::move(work)); });
    return;
  }
  const bool deaf = ticketless.contains(work.client) || deaf_for.contains({work.client, work.image_id});
  if (deaf && work.node->agent.lives(work.life))
    return loop_.outside_in(kConnectsAgain, [this, work = std::move(work)]() mutable { run_work(std::move(work)); });
  --under_way_[work.client];
  if (deaf) return;  // it was never sent
  Network& network = work.node->network;
  if (!network.carries(work.sent) || (network.is_cut() && refuses(work.client))) {
    network.hold([this, work = std::move(work)]() mutable { submit(std::move(work)); });
    return;
  }
  FakeImage* image = by_id(work.image_id);
  if (image != nullptr && image->shared && !refuses(work.client)) {
    image->lock_by(work.client);
  }
  int failed = 0;
  if (refuses(work.client))
    failed = -ESHUTDOWN;
  else if (image == nullptr)
    failed = -ENOENT;
  else if (work.write && !work.with_lock)
    failed = -EROFS;
  else if (denied.contains(work.client))
    failed = -EPERM;
  else if (odd_error != 0)
    failed = -odd_error;
  if (ended.contains(work.client)) broke("something arrived of a client that had ended: " + work.client);
  if (failed == 0 && work.write) stored(work, *image);
  if (failed == -ESHUTDOWN) work.node->agent.note_cut(work.client);
  const std::uint64_t number = failed == 0 ? image->blocks[work.block] : 0;
  const auto answer = [work = std::move(work), failed, number] {
    if (work.node->agent.lives(work.life)) work.done(failed, number);
  };
  network.is_cut() ? network.hold(answer) : answer();
}

void Cluster::stored(const Work& work, FakeImage& image) {
  const std::string where = "block " + std::to_string(work.block) + " of " + image.id;
  if (work.number < image.acked[work.block])
    broke("an acknowledged write was overwritten by an older one: " + where + " had " +
          std::to_string(image.acked[work.block]) + ", got " + std::to_string(work.number));
  if ((image.features & FakeImage::kDirtyCache) != 0 && node_of(work.client) != nullptr)
    broke("a write landed below the persistent cache of another client: " + where);
  // The lock is advisory: an OSD refuses only clients that are cut off.
  if (image.exclusive && !image.shared && !image.lock_owner.empty() && image.lock_owner != work.client)
    broke("a write of " + work.client + " landed in " + where + ", which is locked by " + image.lock_owner);
  const bool link_is_later = work.link_visits != work.device_visits && work.link_visits != kNoVisit;
  const bool image_is_later = image.visits != work.device_visits && work.device_visits != kNoVisit;
  if (!image.shared && (link_is_later || (image.exclusive && image_is_later)))
    broke("a write from before another node's visit was replayed: " + where);
  image.blocks[work.block] = work.number;
  image.stored.insert(work.number);
  image.data = true;
  image.only_formatted = false;
  const auto complete = [](const plan::Staging& staging) { return staging.complete; };
  const auto staged = [&](const plan::Record& record) {
    return record.key.image_id == image.id && std::ranges::any_of(record.stagings, complete);
  };
  if (image.metadata.contains("corbd/format") && std::ranges::any_of(work.node->disk.records, staged))
    broke("an application wrote into an image that may be formatted still: " + where);
}

}  // namespace corbd::test
