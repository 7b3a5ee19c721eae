// Other nodes: they come, wait, and die. And fences, of this node and of others.
#include <algorithm>

#include "node.hpp"

namespace corbd::sim {
namespace {

using namespace std::chrono_literals;

const std::string kDeadHost = "10.0.0.4";

}  // namespace

/// ":0/42". A nonce of 0 would stand for the whole host.
std::string Node::new_nonce() { return ":0/" + std::to_string(++nonces_); }

/// Open, see tests/sim/heal_test.cpp: there only our watch keeps another node away, and not every program looks at
/// that.
bool Node::is_between_break_and_lock(const test::FakeImage& image) const {
  return image.lock_owner.empty() && image.our_break == image.version &&
         std::ranges::any_of(image.watchers, [&](const auto& watcher) { return agent().clients.contains(watcher); });
}

/// A rescue host, or another cluster of Kubernetes: the orchestrator does not hear of it. What it writes is seen if it
/// does not come within a minute of the stage, and if rbd-nbd, which stamps the image as well, did not serve the device
/// last.
bool Node::shows_later_writes(const std::string& name) const {
  const auto& image = world_.cluster.images.at(name);
  const auto knows_stamp = [&](const auto& record) { return record.volume_id == name && record.proof.modified; };
  const auto device = std::ranges::find(world_.kernel.devices, name, &test::KernelDevice::backend);
  const bool by_corbd =
      device != world_.kernel.devices.end() && device->io_timeout_ms != test::KernelDevice().io_timeout_ms;
  return image.exclusive && !image.shared && by_corbd && world_.cluster.would_stamp(image) &&
         std::ranges::any_of(world_.disk.records, knows_stamp);
}

void Node::visit(const Fault& fault, bool by_force) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const std::string visitor = "10.0.0.2" + new_nonce();
  test::FakeImage& image = world_.cluster.images.at(name);
  const bool unheard = by_force && fault.what / 8 % 2 == 0 && shows_later_writes(name);
  if (overridden_.contains(name) || is_between_break_and_lock(image) || !world_.cluster.visit(image, visitor, by_force))
    return;
  if (!unheard) moves_away(image);
  // Nobody told the operator.
  if (history_.orchestrated && one_in(2))
    loop_.outside_in(any(90s), [this, i = fault.what % history_.volumes.size()] { override_proof(i); });
  leaves_later(visitor, name, fault.what % 5 != 0, fault.lasts);
}

void Node::leaves_later(const std::string& visitor, const std::string& name, bool cleanly, Millis in) {
  visitors_[visitor] = {name, cleanly};
  loop_.outside_in(in, [this, visitor] {
    const auto place = visitors_.find(visitor);
    if (place == visitors_.end()) return;
    const auto image = world_.cluster.images.find(place->second.first);
    if (image != world_.cluster.images.end()) world_.cluster.leave(image->second, visitor, place->second.second);
    visitors_.erase(place);
  });
}

/// Another node dies, and its persistent cache has the newest writes. Such a cache needs the lock. Later somebody
/// starts that node again, which stores these writes, or gives them up.
void Node::visit_with_cache(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const std::string visitor = "10.0.0.2" + new_nonce();
  test::FakeImage& image = world_.cluster.images.at(name);
  if (!image.exclusive || overridden_.contains(name) || is_between_break_and_lock(image) ||
      !world_.cluster.visit(image, visitor, false))
    return;
  moves_away(image);
  image.features |= test::FakeImage::kDirtyCache;
  leaves_later(visitor, name, false, Millis(fault.what % 100));
  loop_.outside_in(fault.lasts, [this, name] {
    if (const auto still = world_.cluster.images.find(name); still != world_.cluster.images.end())
      still->second.features &= ~test::FakeImage::kDirtyCache;
  });
}

/// The agent is away until after its last watch. Meanwhile qemu-img, or an rbd-nbd made by hand, works with this node's
/// own address. Nobody else hears of it.
void Node::visit_here(const Fault& fault) {
  if (!agent().running() || processes_.handover() != nullptr) return;
  down_for_ = fault.lasts + 45s;
  agent().keeper_goes_too = true;
  processes_.crash();
  loop_.outside_in(36s, [this, fault] {
    if (!faults_over_) works_here(fault);
  });
}

void Node::works_here(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const std::string visitor = agent().node_address + ":0/8" + std::to_string(++nonces_);
  const auto place = world_.cluster.images.find(name);
  if (place == world_.cluster.images.end()) return;
  test::FakeImage& image = place->second;
  const bool seen = !world_.ceph_csi.daemons.empty() || overridden_.contains(name) || !shows_later_writes(name);
  if (seen || is_between_break_and_lock(image) || !world_.cluster.visit(image, visitor, false)) return;
  leaves_later(visitor, name, fault.what % 3 == 0, Millis(any(20s) / 1ms));
}

/// People do this after a Multi-Attach error. Nobody can tell then whether another node had the volume in between.
void Node::attach_again() {
  if (!history_.orchestrated || world_.attachment.state != plan::Attachment::State::here) return;
  world_.attachment.uid = "uid-" + std::to_string(++attachments_);
  trace("the VolumeAttachment is made again: " + world_.attachment.uid);
  // A volume that is lost already stays so.
  if (!world_.moved_away) world_.moved_away = loop_.clock.now();
}

void Node::moves_away(test::FakeImage& image) {
  if (!history_.orchestrated) return;
  world_.attachment = {plan::Attachment::State::away, "", "it is attached elsewhere"};
  if (!moved_at_) moved_at_ = loop_.clock.now();
  if (!image.taken) image.taken = moved_at_;
}

void Node::maintain(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const std::string tool = "10.0.0.9" + new_nonce();
  // Open (docs/migrating-from-ceph-csi.md): a tool that breaks the lock of an rbd-nbd that died with a cache leaves no
  // trace of it.
  const auto* device = device_of(name);
  if (device != nullptr && device->cache_died && !device->alive) return;
  if (overridden_.contains(name) || !world_.cluster.maintain(world_.cluster.images.at(name), tool)) return;
  leaves_later(tool, name, fault.what % 5 != 0, fault.lasts);
}

void Node::agent_waits(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  const std::string agent = "10.0.0.3" + new_nonce();
  if (overridden_.contains(name) || !waiting_.emplace(agent, name).second) return;
  moves_away(world_.cluster.images.at(name));
  world_.cluster.other_agent_waits(name, agent);
}

bool Node::is_fenced() const { return world_.cluster.fenced_hosts.contains(agent().node_address); }

/// Meanwhile another node may take an image. What rbd-nbd does on a fenced node is not the agent's.
void Node::fence_node(const Fault& fault) {
  if (!world_.ceph_csi.daemons.empty()) return;
  world_.cluster.fence_host(agent().node_address, any(2s));
  const auto end = loop_.clock.now() + fault.lasts;
  if (fault.what % 2 == 1)
    loop_.outside_in(any(fault.lasts), [this, fault] {
      const bool there = world_.cluster.images.contains(history_.volumes[fault.what % history_.volumes.size()].image);
      if (there && is_fenced()) visit(fault, false);
    });
  loop_.outside(end, [this] {
    if (is_fenced()) world_.cluster.unfence_host(agent().node_address);
  });
}

/// Another node's client has an image, and lives. Meanwhile its Node object is deleted, and made again under another
/// name or UID, or later; and the API server refuses lists of nodes for a while.
void Node::renamed_holder(const Fault& fault, const std::string& client) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  auto& nodes = world_.nodes;
  nodes.by_name["node-4"] = {.address = kDeadHost};
  world_.cluster.living.insert(client);
  visitors_[client] = {name, true};
  const auto renamed = any(20s);
  loop_.outside_in(renamed, [this, what = fault.what] {
    trace("the Node of " + kDeadHost + " is replaced");
    auto& known = world_.nodes;
    known.by_name.erase("node-4");
    known.by_name[what / 48 % 2 == 0 ? "node-5" : "node-4"] = {.address = kDeadHost, .uid = "2"};
    known.lists = what / 96 % 4 == 0;
  });
  loop_.outside_in(renamed + any(30s), [this] { world_.nodes.lists = true; });
  loop_.outside_in(renamed + any(2min), [this, client] {
    const auto place = visitors_.find(client);
    if (place == visitors_.end()) return;
    const auto image = world_.cluster.images.find(place->second.first);
    if (image != world_.cluster.images.end()) world_.cluster.leave(image->second, client, true);
    visitors_.erase(place);
  });
}

/// Another node's client has an image. Then its network is cut: it neither leaves nor answers, and what it had sent may
/// still arrive. Somebody fences its host, or says that its node is off, or nobody does.
void Node::dead_holder(const Fault& fault) {
  const std::string name = history_.volumes[fault.what % history_.volumes.size()].image;
  test::FakeImage& image = world_.cluster.images.at(name);
  const bool here = device_of(name) != nullptr ||
                    std::ranges::find(world_.disk.records, name, &plan::Record::volume_id) != world_.disk.records.end();
  const std::string client = kDeadHost + new_nonce();
  if (here || !image.watchers.empty() || !world_.cluster.visit(image, client, false)) return;
  if (fault.what / 16 % 3 == 0) return renamed_holder(fault, client);
  world_.nodes.by_name["node-4"] = {.address = kDeadHost};
  const auto cut = duration(fault.lasts);
  loop_.outside_in(cut, [this, client] {
    trace("the network of " + client + " is cut");
    world_.cluster.expire_watches({client});
  });
  for (std::uint32_t writes = 1 + fault.what % 4; writes > 0; --writes)
    loop_.outside_in(cut + any(4min), [this, id = image.id, client] { world_.cluster.late_write(id, client); });
  // Mostly before its watch ends.
  const auto known = cut + any(35s);
  if (fault.what / 4 % 4 < 2)
    loop_.outside_in(known, [this] {
      world_.cluster.fence_host(kDeadHost, one_in(2) ? any(2s) : any(20s));
      loop_.outside_in(any(3min), [this] { world_.cluster.unfence_host(kDeadHost); });
    });
  if (fault.what / 4 % 4 == 1 || fault.what / 4 % 4 == 2)
    loop_.outside_in(known + any(5s), [this] {
      world_.nodes.by_name["node-4"] = {.address = kDeadHost, .ready = false, .out_of_service = true};
      if (one_in(3)) world_.nodes.by_name.erase("node-4");
    });
  left_by_dead_.insert(name);
  dead_holders_[client] = image.id;
}

/// The dead node's network is back after hours. What its kernel had sent comes again.
void Node::the_dead_return() {
  world_.cluster.entries_age(3h);
  for (const auto& [client, image_id] : dead_holders_) world_.cluster.late_write(image_id, client);
}

/// What a dead node had can be had here in the end: its watch ends by itself.
void Node::stage_what_the_dead_left() {
  for (const auto& kubelet : kubelets_) {
    const std::string& name = kubelet.volume.image;
    const auto awaited = [&](const auto& waiting) { return waiting.second == name; };
    // What was given up waits for its pods' end, and so does a volume whose device went away under them.
    const auto is_used = [&](const plan::Record& record) {
      return record.volume_id == name && (record.failed || !record.publishes.empty());
    };
    // A write of its record that failed may have happened all the same: the agent takes it for published until kubelet
    // repeats the unpublish.
    const auto known = agent().running() ? agent().shell().status(name) : std::nullopt;
    const bool published = known && !known->published_at.empty();
    const bool free = left_by_dead_.contains(name) && std::ranges::none_of(world_.disk.records, is_used) &&
                      !published && world_.cluster.images.contains(name) &&
                      world_.attachment.state != plan::Attachment::State::away && device_of(name) == nullptr &&
                      std::ranges::none_of(waiting_, awaited);
    if (!free) continue;
    result<> done = Error{errc::internal, "not asked"};
    for (int tries = 0; tries < 6 && !done && world_.broken_rules.empty(); ++tries) {
      // An operator knows when nothing is on its way to the KMS any more (docs/runbook.md#a-first-key-on-its-way).
      if (tries == 5) go_until(loop_.clock.now() + 3min);
      if (tries == 5) world_.cluster.images.at(name).metadata.erase("corbd/first-key");
      if (tries > 0) go_until(loop_.clock.now() + 30s);
      done = want(name, changes_.staged(stage_wish(kubelet.volume)));
    }
    // A device that a late command made meanwhile needs a proof of its own.
    if (!done && device_of(name) == nullptr && world_.broken_rules.empty())
      world_.broke("what a dead node had cannot be staged: " + name + ": " + done.error().text);
  }
}

}  // namespace corbd::sim
