// The kernel's side of a device: requests, dead links, replays. And what serves it, as far as both sides see that.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "codec.hpp"
#include "support/world_ports.hpp"

namespace corbd::test {

// --- What serves it -----------------------------------------------------------------------------

World::FakeLink::FakeLink(World& world, image::Image& image, std::function<void()> on_stopped)
    : serial(++world.made),
      image_id(image.key().image_id),
      visits([&] {
        const FakeImage* of = world.by_id(image.key().image_id);
        return of == nullptr ? 0 : of->visits;
      }()),
      world_(world),
      image_(image),
      on_stopped_(std::move(on_stopped)),
      idle_(world.loop().control(), world.loop().clock),
      drained_(world.loop().control(), world.loop().clock) {
  world_.links[serial] = this;
}

World::FakeLink::~FakeLink() {
  if (!ops_.empty() && world_.running()) world_.broke("a session was destroyed while its operations were under way");
  if (state_ == State::serving && world_.running()) world_.link_ended(serial);
  world_.links.erase(serial);
}

void World::FakeLink::take(std::uint32_t device, const KernelRequest& request) {
  if (state_ != State::serving || draining_) return;
  if (world_.leaving) world_.broke("a session took a request after the agent was told to leave");
  if (ops_.empty()) busy_since_ = world_.loop().clock.now();
  SessionOp& op = ops_.emplace_back();
  op.done = &FakeLink::completed;
  op.link = this;
  op.device = device;
  op.request = request.id;
  op.write = request.write;
  const std::uint64_t offset = request.block * kBlockBytes;
  std::memcpy(op.buffer.data(), &request.number, sizeof request.number);
  if (request.write)
    image_.write(op, offset, op.buffer);
  else
    image_.read(op, offset, op.buffer);
}

void World::FakeLink::completed(image::Op* op, int result) noexcept {
  auto& ours = static_cast<SessionOp&>(*op);
  ours.link->end(ours, result);
}

void World::FakeLink::end(SessionOp& op, int result) {
  std::uint64_t number = 0;
  std::memcpy(&number, op.buffer.data(), sizeof number);
  const auto device = op.device;
  const auto request = op.request;
  ops_.remove_if([&](const SessionOp& one) { return &one == &op; });
  busy_since_ = world_.loop().clock.now();
  if (state_ == State::serving) {
    if (const auto verdict = nbd::judge(result); verdict.hold) {
      stop(verdict.doubtful ? State::closed : State::held, -result);
    } else {
      if (!first_answer_) first_answer_ = world_.loop().clock.now();
      world_.answer(device, request, result, number, tombstone());
    }
  }
  if (!ops_.empty()) return;
  if (draining_) drained_.set();
  if (state_ != State::serving) idle_.set();
}

void World::FakeLink::stop(State state, int error) {
  if (state_ != State::serving) return;
  state_ = state;
  error_ = error;
  world_.trace("link " + std::to_string(serial) + (state == State::held ? " is held" : " is shut"));
  if (given) world_.link_ended(serial);
  if (on_stopped_) asio::post(world_.loop().control(), on_stopped_);
  if (ops_.empty()) idle_.set();
}

task<Waited> World::FakeLink::drain(Until until) {
  draining_ = true;
  if (ops_.empty()) drained_.set();
  co_return co_await drained_.wait(until);
}

// --- The kernel ---------------------------------------------------------------------------------

void World::application_writes(KernelDevice& device, std::size_t block) {
  KernelRequest request;
  request.block = block;
  request.number = ++numbers_;
  ask_device(device, request);
}

void World::application_reads(KernelDevice& device, std::size_t block) {
  KernelRequest request;
  request.write = false;
  request.block = block;
  if (const FakeImage* image = by_id(device.image_id)) request.number = image->acked[block];
  ask_device(device, request);
}

/// Requests of one block come one after another, as those of one page do.
void World::ask_device(KernelDevice& device, KernelRequest request) {
  if (device.disconnected) {
    ++errors;
    return;
  }
  const auto waits = [&](const KernelRequest& other) { return other.block == request.block; };
  if (std::any_of(device.requests.begin(), device.requests.end(), waits)) return;
  request.id = ++requests_;
  device.requests.push_back(request);
  if (device.alive) send(device, device.requests.back());
}

void World::send(KernelDevice& device, KernelRequest& request) {
  request.sent_on = device.link;
  // By value: an answer may come at once and end the request.
  const KernelRequest sent = request;
  if (const auto place = links.find(device.link); place != links.end()) return place->second->take(device.index, sent);
  if (others.contains(device.index))
    loop_.outside_in(std::chrono::milliseconds(2),
                     [this, index = device.index, link = device.link, id = sent.id] { other_serves(index, link, id); });
}

void World::disconnect(std::uint32_t index) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || device->disconnected) return;
  trace(device::path(index) + " is disconnected");
  device->disconnected = true;
  device->alive = false;
  errors += device->requests.size();
  device->requests.clear();
  // rbd-nbd, too, has it open until it has ended.
  if (others.contains(index))
    loop_.outside_in(std::chrono::milliseconds(5), [this, index] { other_ends(index, true); });
  const auto link = links.find(device->link);
  if (link != links.end()) link->second->stop(FakeLink::State::closed, 0);
  wake_helpers(index);
  let_go(index);
}

void World::let_go(std::uint32_t index) {
  const KernelDevice* device = by_index(index);
  const auto automount = automounts.find(index);
  if (automount != automounts.end() && hazards != nullptr)
    loop_.outside_in(hazards->any(std::chrono::milliseconds(3)), [this, index, target = automount->second] {
      const auto has_it = [&](const host::Mount& mount) { return shows_device(mount, index); };
      if (std::ranges::none_of(mounts, has_it)) mount_by_hand(index, target);
    });
  if (device == nullptr || !device->disconnected || device->openers > 0 || device->mapping || others.contains(index))
    return;
  // A path that the device is bound on does not hold it open.
  const auto holds = [&](const host::Mount& mount) { return mount.fstype != "devtmpfs" && shows_device(mount, index); };
  if (std::any_of(mounts.begin(), mounts.end(), holds)) return;
  // It stays, unconfigured: the next device of that number is a new one.
  trace(device::path(index) + " is free");
  std::erase_if(devices, [&](const auto& one) { return one.index == index; });
}

void World::open_device(std::uint32_t index) { ++by_index(index)->openers; }

void World::close_device(std::uint32_t index) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || device->openers == 0) return;
  --device->openers;
  let_go(index);
}

void World::connect_link(KernelDevice& device, int link) {
  device.link = link;
  device.alive = true;
  trace(device::path(device.index) + " is served by link " + std::to_string(link));
  const auto timer = std::chrono::milliseconds(device.io_timeout_ms) + std::chrono::seconds(1);
  // What was in flight goes out again when its timer fires, in any order; what waited for a link, now.
  for (const auto& request : device.requests) {
    const bool in_flight = request.sent_on != 0;
    const auto in = in_flight && hazards != nullptr ? hazards->any(timer)
                    : in_flight                     ? duration(timer)
                                                    : duration::zero();
    loop_.outside_in(in, [this, index = device.index, link, id = request.id] { replay(index, link, id); });
  }
  wake_helpers(device.index);
}

void World::replay(std::uint32_t index, int link, std::uint64_t id) {
  KernelDevice* device = by_index(index);
  if (device == nullptr || !device->alive || device->link != link) return;
  for (auto& request : device->requests)
    if (request.id == id && request.sent_on != link) return send(*device, request);
}

void World::link_ended(int link) {
  const auto seen_in = hazards == nullptr ? duration::zero() : hazards->until_seen_dead();
  if (seen_in == duration::zero()) return seen_dead(link);
  loop_.outside_in(seen_in, [this, link] { seen_dead(link); });
}

void World::seen_dead(int link) {
  for (auto& device : devices) {
    if (device.link != link || !device.alive) continue;
    device.alive = false;
    trace("the kernel sees the link of " + device::path(device.index) + " dead");
    const auto told_in = hazards == nullptr ? std::nullopt : hazards->until_told_dead();
    if (!told_in) continue;
    loop_.outside_in(*told_in, [this, index = device.index] {
      if (tell_dead) tell_dead(index);
    });
  }
}

void World::answer(std::uint32_t index, std::uint64_t id, int failed, std::uint64_t number, bool tombstone) {
  KernelDevice* device = by_index(index);
  if (device == nullptr) return;
  const auto place = std::find_if(device->requests.begin(), device->requests.end(),
                                  [&](const auto& request) { return request.id == id; });
  if (place == device->requests.end()) return broke("the kernel was answered a request that it does not wait for");
  const KernelRequest request = *place;
  device->requests.erase(place);
  if (failed != 0) {
    ++errors;
    // ENOENT: of an image that was removed, its own answer.
    if (!tombstone && failed != -ENOENT)
      broke("an error reached the kernel that the image did not give: " + std::to_string(failed));
    return;
  }
  ++answered;
  FakeImage* image = by_id(device->image_id);
  if (image == nullptr || image->visits != device->visits) return;
  const std::string where = "block " + std::to_string(request.block) + " of " + image->id;
  if (request.write) {
    if (image->blocks[request.block] != request.number) broke("a write was acknowledged that is not stored: " + where);
    image->acked[request.block] = request.number;
  } else if (number < request.number) {
    broke("a read of " + where + " gave " + std::to_string(number) + ", an acknowledged write was " +
          std::to_string(request.number));
  }
}

}  // namespace corbd::test
