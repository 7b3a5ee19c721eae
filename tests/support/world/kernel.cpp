// The kernel's side of a device: requests, dead links, replays.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "codec.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {

KernelDevice* Kernel::by_index(std::uint32_t index) {
  for (auto& known : devices)
    if (known.index == index) return &known;
  return nullptr;
}

void Kernel::boot() {
  devices.clear();
  read_only_numbers.clear();
  timers.clear();
  inherited.clear();
  mounts.clear();
  open_files.clear();
  detached.clear();
  frozen.reset();
  waiting_.clear();
  boot_id += "'";
}

bool Kernel::freeze(std::uint32_t index, const World* by, std::function<void()> then) {
  const KernelDevice* device = by_index(index);
  if (device == nullptr || device->requests.empty()) return false;
  world_.trace("a resize waits for the requests in flight of " + device::path(index));
  frozen = Frozen{index, by, std::move(then)};
  if (const auto happens = std::exchange(on_freeze, {})) happens();
  return true;
}

void Kernel::thaw_if_idle(std::uint32_t index) {
  const KernelDevice* device = by_index(index);
  if (!frozen || frozen->device != index || (device != nullptr && !device->requests.empty())) return;
  const Frozen ended = *std::exchange(frozen, std::nullopt);
  world_.trace("the requests in flight of " + device::path(index) + " have ended");
  ended.then();
  for (const auto& waits : std::exchange(waiting_, {})) waits();
}

bool Kernel::stands() const {
  if (!frozen) return false;
  const auto device = std::ranges::find(devices, frozen->device, &KernelDevice::index);
  return device == devices.end() || !device->alive;
}

void Kernel::application_writes(KernelDevice& device, std::size_t block) {
  device.unscanned = false;  // it has it open
  KernelRequest request;
  request.block = block;
  request.number = world_.cluster.new_number();
  ask_device(device, request);
}

void Kernel::application_reads(KernelDevice& device, std::size_t block) {
  device.unscanned = false;  // it has it open
  KernelRequest request;
  request.write = false;
  request.block = block;
  if (const FakeImage* image = world_.cluster.by_id(device.image_id)) request.number = image->acked[block];
  ask_device(device, request);
}

void Kernel::application_flushes(KernelDevice& device) {
  if (device.disconnected) {
    ++errors;
    return;
  }
  if (!device.flush) {
    KernelRequest at_once;
    at_once.flush = true;
    at_once.covers = device.unflushed;
    return flush_answered(device, at_once, {});
  }
  KernelRequest* waiting = nullptr;
  int flushes = 0;
  for (auto& known : device.requests)
    if (known.flush && ++flushes == 2) waiting = &known;
  if (waiting != nullptr) return waiting->covers.insert(device.unflushed.begin(), device.unflushed.end());
  KernelRequest request;
  request.write = false;
  request.flush = true;
  request.covers = device.unflushed;
  request.id = ++requests_;
  device.requests.push_back(request);
  if (device.alive && flushes == 0) send(device, device.requests.back());
  if (!device.alive) begin_patience(device, request.id);
}

/// Requests of one block come one after another, as those of one page do.
void Kernel::ask_device(KernelDevice& device, KernelRequest request) {
  if (device.disconnected) {
    ++errors;
    return;
  }
  if (request.write && read_only_numbers.contains(device.index)) {
    if (!device.read_only) world_.broke("a write failed because an earlier user left its device's number read-only");
    ++errors;
    return;
  }
  // New requests wait before the queue.
  if (frozen && frozen->device == device.index) return;
  const auto waits = [&](const KernelRequest& other) { return !other.flush && other.block == request.block; };
  if (std::any_of(device.requests.begin(), device.requests.end(), waits)) return;
  request.id = ++requests_;
  device.requests.push_back(request);
  device.alive ? send(device, device.requests.back()) : begin_patience(device, request.id);
}

void Kernel::begin_patience(const KernelDevice& device, std::uint64_t request) {
  if (device.dead_conn_timeout_s == 0) return;
  world_.loop().outside_in(
      std::chrono::seconds(device.dead_conn_timeout_s), [this, index = device.index, link = device.link, request] {
        KernelDevice* still = by_index(index);
        if (still == nullptr || still->alive || still->link != link) return;
        errors += std::erase_if(still->requests, [&](const auto& one) { return one.id == request; });
        thaw_if_idle(index);
      });
}

void Kernel::send(KernelDevice& device, KernelRequest& request) {
  request.sent_on = device.link;
  request.half_sent =
      world_.hazards != nullptr && request.id % 4 == 0 && device.kind == device::Kind::nbd && !is_read(device);
  // Take a copy: an answer may come at once and end the request.
  const KernelRequest sent = request;
  if (device.kind == device::Kind::krbd)
    return world_.loop().outside_in(std::chrono::milliseconds(1),
                                    [this, index = device.index, id = sent.id] { krbd_serves(index, id); });
  if (const auto place = links.find(device.link); place != links.end()) return place->second->take(device.index, sent);
  if (world_.ceph_csi.daemons.contains(device.index))
    world_.loop().outside_in(std::chrono::milliseconds(2), [this, index = device.index, link = device.link,
                                                            id = sent.id] { world_.ceph_csi.serves(index, link, id); });
}

bool Kernel::is_read(const KernelDevice& device) const {
  const auto link = links.find(device.link);
  return world_.ceph_csi.daemons.contains(device.index) || (link != links.end() && link->second->reads());
}

void Kernel::disconnect(std::uint32_t index) {
  if (frozen) return after_thaw([this, index] { disconnect(index); });
  KernelDevice* device = by_index(index);
  if (device == nullptr || device->disconnected) return;
  world_.trace(device::path(index) + " is disconnected");
  device->disconnected = true;
  device->alive = false;
  inherited.erase(index);
  errors += device->requests.size();
  device->requests.clear();
  // rbd-nbd, too, has it open until it has ended.
  if (world_.ceph_csi.daemons.contains(index))
    world_.loop().outside_in(std::chrono::milliseconds(5), [this, index] { world_.ceph_csi.ends(index, true); });
  const auto link = links.find(device->link);
  if (link != links.end()) link->second->stop(FakeLink::State::closed, 0);
  world_.calls.wake_helpers(index);
  let_go(index);
}

void Kernel::let_go(std::uint32_t index) {
  const KernelDevice* device = by_index(index);
  const auto automount = automounts.find(index);
  if (automount != automounts.end() && world_.hazards != nullptr)
    world_.loop().outside_in(
        world_.hazards->any(std::chrono::milliseconds(3)), [this, index, target = automount->second] {
          const auto has_it = [&](const host::Mount& mount) { return shows_device(mount, index); };
          // The program may have ended meanwhile.
          const auto still = automounts.find(index);
          if (still != automounts.end() && still->second == target && std::ranges::none_of(mounts, has_it))
            mount_by_hand(index, target);
        });
  if (device == nullptr || !device->disconnected || device->openers > 0 || is_claimed(index) ||
      world_.ceph_csi.daemons.contains(index))
    return;
  // The number stays, unconfigured: its next device is a new one.
  world_.trace(device::path(index) + " is free");
  if (device->kind == device::Kind::nbd) timers[index] = device->io_timeout_ms;
  std::erase_if(devices, [&](const auto& one) { return one.index == index; });
}

bool Kernel::is_claimed(std::uint32_t index) {
  const KernelDevice* device = by_index(index);
  if (device != nullptr && (device->mapping || device->integrity)) return true;
  // A bind of the device node does not claim it.
  const auto is_of = [&](const host::Mount& mount) { return device_below(mount) == index; };
  return std::ranges::any_of(mounts, is_of) ||
         std::ranges::any_of(detached, [&](const auto& one) { return one.second == index; });
}

void Kernel::open_device(std::uint32_t index) {
  KernelDevice* device = by_index(index);
  ++device->openers;
  device->unscanned &= !device->alive;
}

void Kernel::close_device(std::uint32_t index) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || device->openers == 0) return;
  --device->openers;
  let_go(index);
}

/// The first link whose client is not cut off begins it.
void Kernel::begin_visit(KernelDevice& device) {
  if (const auto place = links.find(device.link); device.visits == kNoVisit && place != links.end())
    device.visits = place->second->visits;
}

void Kernel::connect_link(KernelDevice& device, int link) {
  device.link = link;
  device.alive = true;
  begin_visit(device);
  world_.trace(device::path(device.index) + " is served by link " + std::to_string(link));
  const auto timer = std::chrono::milliseconds(device.io_timeout_ms) + std::chrono::seconds(1);
  // Requests in flight are sent again when their timers fire, in any order; those that waited for a link, now.
  for (const auto& request : device.requests) {
    const bool in_flight = request.sent_on != 0;
    const auto in = in_flight && world_.hazards != nullptr ? world_.hazards->any(timer)
                    : in_flight                            ? duration(timer)
                                                           : duration::zero();
    world_.loop().outside_in(in, [this, index = device.index, link, id = request.id] { replay(index, link, id); });
  }
  world_.calls.wake_helpers(device.index);
}

void Kernel::resume_link(KernelDevice& device, int link) {
  device.link = link;
  begin_visit(device);
  world_.trace(device::path(device.index) + " is served by link " + std::to_string(link) + ", which was given");
  for (const auto& request : device.requests)
    world_.loop().outside_in({}, [this, index = device.index, link, id = request.id] { replay(index, link, id); });
  world_.calls.wake_helpers(device.index);
}

void Kernel::replay(std::uint32_t index, int link, std::uint64_t id) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || !device->alive || device->link != link) return;
  const auto first_flush = std::ranges::find_if(device->requests, &KernelRequest::flush);
  for (auto& request : device->requests) {
    if (request.id != id || request.sent_on == link) continue;
    if (!request.flush || request.id == first_flush->id) send(*device, request);
    return;
  }
}

void Kernel::discard_inherited(std::uint32_t index) {
  const auto place = inherited.find(index);
  if (place == inherited.end()) return;
  const int link = place->second.link;
  inherited.erase(place);
  link_ended(link);
}

bool Kernel::is_served(const KernelDevice& device) const {
  const auto link = links.find(device.link);
  return device.alive && link != links.end() && link->second->state() == FakeLink::State::serving;
}

void Kernel::link_cut(int link, bool well) {
  for (auto& device : devices) {
    if (device.link != link || !device.alive) continue;
    const auto failed = std::erase_if(device.requests, [](const KernelRequest& one) { return one.half_sent; });
    errors += failed;
    if (failed > 0) world_.trace(device::path(device.index) + " fails what it was in the middle of sending");
    if (failed > 0 && well) world_.broke("an agent ended, and the kernel failed a request that it was sending");
  }
  link_ended(link);
}

void Kernel::link_ended(int link) {
  for (auto& device : devices)
    if (device.link == link)
      for (auto& request : device.requests) request.half_sent = false;
  const auto seen_in = world_.hazards == nullptr ? duration::zero() : world_.hazards->until_seen_dead();
  if (seen_in == duration::zero()) return seen_dead(link);
  world_.loop().outside_in(seen_in, [this, link] { seen_dead(link); });
}

void Kernel::seen_dead(int link) {
  if (const auto ended = links.find(link); ended != links.end()) ended->second->seen_dead();
  for (auto& device : devices) {
    if (device.link != link || !device.alive) continue;
    device.alive = false;
    ++deaths;
    world_.trace("the kernel sees the link of " + device::path(device.index) + " dead");
    for (const auto& request : device.requests) begin_patience(device, request.id);
    const auto told_in = world_.hazards == nullptr ? std::nullopt : world_.hazards->until_told_dead();
    if (!told_in) continue;
    world_.loop().outside_in(*told_in, [this, index = device.index] {
      for (const auto& [process, tell] : tell_dead) tell(index);
    });
  }
}

/// On a live link each request is answered once, by the one process that has it.
void Kernel::answer(std::uint32_t index, int link, const Reply& reply) {
  KernelDevice* device = by_index(index);
  if (device == nullptr) return;
  if (inherited.contains(index) || device->link != link) return world_.broke("two processes answer on one link");
  const auto place = std::find_if(device->requests.begin(), device->requests.end(),
                                  [&](const auto& request) { return request.id == reply.request; });
  if (place == device->requests.end())
    return world_.broke("the kernel was answered a request that it does not wait for");
  const KernelRequest request = *place;
  device->requests.erase(place);
  ++device->completed;
  if (request.flush) {
    flush_answered(*device, request, reply);
    return thaw_if_idle(index);
  }
  if (reply.failed == 0) {
    ++answered;
    if (reply.cached)
      device->unflushed[request.block] = request.number;
    else
      look_at_data(*device, request, reply.number);
  } else {
    ++errors;
    // ENOENT is the own answer of an image that was removed.
    if (!reply.tombstone && reply.failed != -ENOENT)
      world_.broke("an error reached the kernel that the image did not give: " + std::to_string(reply.failed));
  }
  thaw_if_idle(index);
}

void Kernel::flush_answered(KernelDevice& device, const KernelRequest& request, const Reply& reply) {
  FakeImage* image = world_.cluster.by_id(device.image_id);
  if (reply.failed != 0) {
    ++flushes_failed;
    if (!reply.tombstone) ++losses_told;
    if (!reply.tombstone && !device.cache_died) world_.broke("a flush failed, and nothing before it can be lost");
    // The application learns of the loss here.
    device.unflushed.clear();
  } else {
    ++flushed;
    for (const auto& [block, number] : request.covers) {
      const std::string where = "block " + std::to_string(block) + " of " + device.image_id;
      if (image != nullptr && !image->stored.contains(number))
        world_.broke("a flush ended well, and a write before it is lost: " + where);
      if (image != nullptr && image->blocks[block] >= number)
        image->acked[block] = std::max(image->acked[block], number);
      const auto done = device.unflushed.find(block);
      if (done != device.unflushed.end() && done->second == number) device.unflushed.erase(done);
    }
  }
  const auto next = std::ranges::find_if(device.requests, &KernelRequest::flush);
  if (next != device.requests.end() && next->sent_on == 0 && device.alive) send(device, *next);
}

void Kernel::look_at_data(const KernelDevice& device, const KernelRequest& request, std::uint64_t number) {
  FakeImage* image = world_.cluster.by_id(device.image_id);
  if (image == nullptr) return;
  const std::string where = "block " + std::to_string(request.block) + " of " + image->id;
  if (request.write && !image->stored.contains(request.number))
    world_.broke("a write was acknowledged that was never stored: " + where);
  if (image->visits != device.visits) return;
  if (request.write) {
    if (image->blocks[request.block] != request.number)
      world_.broke("a write was acknowledged that is not stored: " + where);
    image->acked[request.block] = request.number;
  } else if (number < request.number) {
    world_.broke("a read of " + where + " gave " + std::to_string(number) + ", an acknowledged write was " +
                 std::to_string(request.number));
  }
}

}  // namespace corbd::test
