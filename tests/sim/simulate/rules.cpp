// What must be true after every step, after every success, and at the end. The other rules are looked after where they
// would be broken: tests/support/world/*.cpp.
#include <algorithm>

#include "node.hpp"
#include "support/world/ports.hpp"

namespace corbd::sim {

using plan::Wish;

void Node::look_at_rules() {
  if (moved_at_)
    for (auto& [name, image] : world_.cluster.images)
      if (!image.taken) image.taken = moved_at_;
  std::map<std::string, int> writers;
  for (const auto& [serial, link] : world_.kernel.links) {
    const auto* opened = link->opened();
    if (link->state() != device::Link::State::serving || !link->assigned || opened == nullptr || opened->read_only())
      continue;
    if (++writers[link->image_id] > 1) world_.broke("two live servers write to one image: " + link->image_id);
    const auto* image = world_.cluster.by_id(link->image_id);
    if (image == nullptr || world_.cluster.may_write(*image, opened->client())) continue;
    if (!world_.cluster.refuses(opened->client()))
      world_.broke("a live server has not the lock of its image: " + link->image_id);
  }
  for (const auto& kubelet : kubelets_)
    if (!world_.cluster.opens(kubelet.volume.image))
      world_.broke("no key slot opens with the key that the KMS has: " + kubelet.volume.image);
}

void Node::look_at_success(const Kubelet& kubelet, const Wish& wish) {
  const std::string& id = kubelet.volume.image;
  const auto record = std::find_if(world_.disk.records.begin(), world_.disk.records.end(),
                                   [&](const auto& one) { return one.volume_id == id; });
  const bool known = record != world_.disk.records.end();
  const auto mounted = [&](const std::string& target) {
    return std::any_of(world_.kernel.mounts.begin(), world_.kernel.mounts.end(),
                       [&](const auto& mount) { return mount.target == target; });
  };
  const auto staged_at = [&](const std::string& path) {
    return known && std::any_of(record->stagings.begin(), record->stagings.end(),
                                [&](const auto& staging) { return staging.path == path && staging.complete; });
  };
  // What somebody took away or replaced is in the agent's memory still.
  const bool may_be_gone = changes_.damaged(id);
  const auto* device = device_of(id);
  bool true_now = true;
  if (const auto* staged = std::get_if<plan::Staged>(&wish))
    true_now = (may_be_gone || staged_at(staged->path)) && mounted(plan::staging_target(id, staged->path)) &&
               world_.disk.stashes.contains(staged->path);
  if (true_now && std::holds_alternative<plan::Staged>(wish))
    true_now = device != nullptr && device->folder_key == kubelet.volume.files &&
               device->mapping.has_value() == (!kubelet.volume.kms.empty() && !kubelet.volume.files);
  if (const auto* unstaged = std::get_if<plan::Unstaged>(&wish))
    true_now = !staged_at(unstaged->path) && !mounted(plan::staging_target(id, unstaged->path)) &&
               !world_.disk.stashes.contains(unstaged->path) &&
               !world_.disk.places.contains(plan::staging_target(id, unstaged->path)) && device == nullptr;
  if (const auto* published = std::get_if<plan::Published>(&wish))
    true_now = (may_be_gone || (known && !record->publishes.empty())) && mounted(published->target);
  if (const auto* unpublished = std::get_if<plan::Unpublished>(&wish))
    true_now = !mounted(unpublished->target) && !world_.disk.places.contains(unpublished->target);
  if (std::holds_alternative<plan::Expanded>(wish)) {
    const auto* image = world_.cluster.by_id(kubelet.image_id);
    const bool fills =
        kubelet.volume.block || kubelet.volume.read_only || image == nullptr || image->filesystem_bytes == 0;
    true_now = device != nullptr && (fills || image->filesystem_bytes == device->mapping.value_or(device->size));
  }
  if (std::holds_alternative<plan::Rekeyed>(wish)) {
    const auto* image = world_.cluster.by_id(kubelet.image_id);
    true_now = image == nullptr || (image->luks && image->luks->keys.size() == 1);
  }
  if (!true_now)
    world_.broke(std::string(plan::name(wish)) + " of " + id +
                 " succeeded, but the record and the mounts do not say so");
}

bool Node::stayed_here(const plan::Record& record, const test::FakeImage& image) const {
  const auto& told = world_.attachment;
  const bool named = record.names.node.empty() || record.names.node == world_.name;
  if (!named || told.state != plan::Attachment::State::here || record.proof.attachment_uid.empty() ||
      record.proof.attachment_uid != told.uid)
    return false;
  return image.lock_owner.empty() || image::host_of(image.lock_owner) == agent().node_address;
}

bool Node::provably_ours(const Kubelet& kubelet) const {
  const std::string& id = kubelet.volume.image;
  const auto record = std::find_if(world_.disk.records.begin(), world_.disk.records.end(),
                                   [&](const auto& one) { return one.volume_id == id; });
  if (record == world_.disk.records.end() || record->failed || record->device.boot_id != world_.kernel.boot_id ||
      !world_.disk.keys.contains(id))
    return false;
  // An older copy of the record does not have what proved it, such as the time of a break.
  if (changes_.damaged(id)) return false;
  const auto has_id = [&](const auto& device) { return device.backend == id && !device.disconnected; };
  if (std::none_of(world_.kernel.devices.begin(), world_.kernel.devices.end(), has_id)) return false;
  const auto image = world_.cluster.images.find(id);
  if (image == world_.cluster.images.end()) return false;
  if (record->use.read_only) return true;
  const auto foreign = [&](const std::string& watcher) { return !agent().clients.contains(watcher); };
  if (std::any_of(image->second.watchers.begin(), image->second.watchers.end(), foreign)) return false;
  // A visit of which the orchestrator knows nothing.
  const bool visited = std::ranges::find_if(world_.kernel.devices, has_id)->visits != image->second.visits;
  // rbd-nbd wrote in between, and the record that allows for that never reached the disk.
  if (world_.disk.outdated.contains(id) && record->proof.modified && record->proof.modified != image->second.modified)
    return false;
  // What was written by a call that failed the agent does not count on until it reads it again.
  const auto status = agent().running() ? agent().shell().status(id) : std::nullopt;
  const bool is_known = !status || status->attachment_uid == record->proof.attachment_uid;
  if (is_known && stayed_here(*record, image->second) && !visited) return true;
  // A try that rested on an operator's word took the lock, and failed: the word counted for that one.
  if (record->proof.operator_override) return false;
  const bool freed_by_us = image->second.lock_owner.empty() && image->second.our_break == image->second.version;
  const std::string& owner = image->second.lock_owner;
  // An agent died before it noted the end of its call (docs/proof-of-ownership.md#a-lock-that-comes-late).
  if (record->proof.lock_call && record->proof.lock_call->client == owner) return false;
  return record->device.exclusive_lock &&
         (freed_by_us || (agent().clients.contains(owner) && owner != image->second.late_owner));
}

bool Node::served(const Kubelet& kubelet) const {
  const auto has_it = [&](const auto& device) { return device.backend == kubelet.volume.image && device.alive; };
  const auto place = std::ranges::find_if(world_.kernel.devices, has_it);
  return place != world_.kernel.devices.end() && world_.kernel.is_served(*place);
}

void Node::look_at_what_is_left() {
  if (!world_.broken_rules.empty()) return;
  if (!world_.kernel.devices.empty()) world_.broke("a device is left after everything was unstaged");
  if (!world_.disk.records.empty()) world_.broke("a record is left after everything was unstaged");
  if (!world_.disk.keys.empty()) world_.broke("a key is left after everything was unstaged");
  if (!world_.kernel.mounts.empty())
    world_.broke("a mount is left after everything was unstaged: " + world_.kernel.mounts.front().target);
  if (!world_.disk.places.empty())
    world_.broke("a folder or file for a mount is left after everything was unstaged: " + *world_.disk.places.begin());
  if (world_.cluster.has_open_images()) world_.broke("an image is left open after everything was unstaged");
  for (const auto& [name, image] : world_.cluster.images)
    for (std::size_t block = 0; block < test::kBlocks; ++block)
      if (image.blocks[block] < image.acked[block])
        world_.broke("an acknowledged write is lost: block " + std::to_string(block) + " of " + image.id);
}

}  // namespace corbd::sim
