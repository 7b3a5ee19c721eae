// Plays nbd's session, as far as the control side and the kernel see it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lost_cache.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {

FakeLink::FakeLink(World& world, image::BlockImage& image, device::ServeOptions options,
                   std::function<void()> on_stopped)
    : serial(world.cluster.new_serial()),
      image_id(image.key().image_id),
      visits(begin_visit(world, image)),
      world_(world),
      image_(image),
      options_(std::move(options)),
      lost_cache_(std::make_unique<nbd::LostCache>(options_.cache_lost)),
      on_stopped_(std::move(on_stopped)),
      ended_(world.loop().control(), world.loop().clock),
      idle_(world.loop().control(), world.loop().clock) {
  world_.kernel.links[serial] = this;
  look_whom_it_is_taken_from();
}

std::uint64_t FakeLink::begin_visit(World& world, const image::BlockImage& image) {
  FakeImage* of = world.cluster.by_id(image.key().image_id);
  if (of == nullptr) return 0;
  const auto* opened = dynamic_cast<const FakeOpened*>(&image);
  const bool writes = opened != nullptr && !image.read_only() && !of->shared;
  // A client that is cut off changes nothing, even if it does not know that yet.
  if (writes && world.cluster.refuses(opened->client())) return kNoVisit;
  const std::string& node = world.agent.node_address;
  if (writes && !of->served_by.empty() && of->served_by != node) ++of->visits;
  if (writes) of->served_by = node;
  return of->visits;
}

/// A new device writes. A client that had the image open at the agent's last look must be cut off by its own address: a
/// fence of its host may end at any time.
void FakeLink::look_whom_it_is_taken_from() {
  FakeImage* of = world_.cluster.by_id(image_id);
  if (of == nullptr || opened() == nullptr || image_.read_only() || of->shared) return;
  of->taken_from = of->seen_by[world_.agent.node_address];
  const auto is_of_image = [&](const KernelDevice& device) { return device.image_id == image_id; };
  if (std::ranges::any_of(world_.kernel.devices, is_of_image)) return;
  for (const auto& client : of->taken_from)
    if (!world_.cluster.has_entry(client))
      world_.broke(image_id + " was taken from " + client + ", which is not cut off");
}

FakeLink::~FakeLink() {
  if (!ops_.empty() && world_.agent.running())
    world_.broke("a session was destroyed while its operations were under way");
  if (state_ == State::serving && world_.agent.running()) world_.kernel.link_ended(serial);
  world_.kernel.links.erase(serial);
}

void FakeLink::take(std::uint32_t device, const KernelRequest& request) {
  if (state_ != State::serving || draining_) return;
  if (world_.kernel.inherited.contains(device)) world_.broke("a session read from a link that another process has");
  if (std::ranges::find(owed_, request.id, &Reply::request) != owed_.end()) return;
  if (world_.agent.leaving) world_.broke("a session took a request after the agent was told to leave");
  if (ops_.empty()) busy_since_ = world_.loop().clock.now();
  ++figures_.of(request.write ? device::RequestKind::write : device::RequestKind::read).requests;
  SessionOp& op = ops_.emplace_back();
  op.done = &FakeLink::completed;
  op.link = this;
  op.device = device;
  op.request = request.id;
  op.write = request.write;
  op.tells_loss = request.flush && lost_cache_->concerns({.command = nbd::Command::flush});
  if (request.flush) return image_.needs_flush() ? image_.flush(op) : op.done(&op, 0);
  const std::uint64_t offset = request.block * kBlockBytes;
  std::memcpy(op.buffer.data(), &request.number, sizeof request.number);
  if (request.write)
    image_.write(op, offset, op.buffer);
  else
    image_.read(op, offset, op.buffer);
}

void FakeLink::completed(image::Op* op, int result) noexcept {
  auto& ours = static_cast<SessionOp&>(*op);
  ours.link->end(ours, result);
}

void FakeLink::end(SessionOp& op, int result) {
  std::uint64_t number = 0;
  std::memcpy(&number, op.buffer.data(), sizeof number);
  const auto request = op.request;
  const bool tells_loss = op.tells_loss && result == 0;
  ops_.remove_if([&](const SessionOp& one) { return &one == &op; });
  busy_since_ = world_.loop().clock.now();
  if (state_ == State::serving) {
    if (const auto verdict = nbd::judge(result); verdict.hold) {
      stop(verdict.doubtful ? State::closed : State::held, -result);
    } else {
      owed_.push_back({request, tells_loss ? -EIO : result, number, tombstone()});
      send_later(request);
    }
  }
  note_idle();
}

bool FakeLink::fails_flushes() const { return lost_cache_->any(); }

void FakeLink::accept_loss() {
  world_.trace("link " + std::to_string(serial) + " fails no more flushes");
  lost_cache_->accept();
}

/// With a keeper there is a moment in which only the books have the answer.
void FakeLink::send_later(std::uint64_t request) {
  if (!kept_ || world_.hazards == nullptr) return send(request);
  world_.loop().outside_in(world_.hazards->any(std::chrono::milliseconds(4)),
                           [&world = world_, serial = serial, request] {
                             if (const auto place = world.kernel.links.find(serial); place != world.kernel.links.end())
                               place->second->send(request);
                           });
}

void FakeLink::send(std::uint64_t request) {
  const auto place = std::ranges::find(owed_, request, &Reply::request);
  if (place == owed_.end() || state_ != State::serving || !assigned) return;
  const Reply reply = *place;
  owed_.erase(place);
  world_.kernel.answer(*assigned, serial, reply);
  note_idle();
}

void FakeLink::owe(std::vector<Reply> replies) {
  owed_ = std::move(replies);
  for (const Reply& reply : std::vector<Reply>(owed_)) send_later(reply.request);
}

void FakeLink::note_idle() {
  if (ops_.empty() && state_ != State::serving) idle_.set();
  if (!busy() && drained_) drained_->set();
}

/// Without memory for its books the link is not kept, and dies with the agent.
void FakeLink::keep() {
  if (!world_.agent.keeper || kept_) return;
  kept_ = world_.hazards == nullptr || world_.hazards->any(duration(24)).count() != 0;
  if (!kept_) world_.trace("link " + std::to_string(serial) + " is not kept");
}

void FakeLink::shut() {
  if (state_ == State::serving && in_flight() > 0) shut_early_ = world_.loop().clock.now();
  stop(State::closed, 0);
}

void FakeLink::stop(State state, int error) {
  if (state_ != State::serving) return;
  state_ = state;
  error_ = error;
  // The kernel sends those requests again, on the next link.
  owed_.clear();
  world_.trace("link " + std::to_string(serial) + (state == State::held ? " is held" : " is shut"));
  assigned ? world_.kernel.link_ended(serial) : seen_dead();
  // Nobody waits longer for the kernel.
  if (!ended_.is_set())
    world_.loop().outside_in(std::chrono::seconds(10), [&world = world_, serial = serial] {
      if (const auto place = world.kernel.links.find(serial); place != world.kernel.links.end())
        place->second->seen_dead();
    });
  if (on_stopped_) asio::post(world_.loop().control(), on_stopped_);
  note_idle();
}

task<result<Fd>> FakeLink::hand_over(Until) {
  if (state_ != State::serving || !draining_ || busy() || !assigned)
    co_return Error{errc::unavailable, "the link has ended, or has something left to answer"};
  state_ = State::closed;
  world_.trace("link " + std::to_string(serial) + " is given away");
  world_.kernel.inherited[*assigned] = {.link = serial, .of = &world_, .taken = false};
  world_.kernel.links.erase(serial);
  if (on_stopped_) asio::post(world_.loop().control(), on_stopped_);
  idle_.set();
  ended_.set();
  // The world knows the socket by its device.
  co_return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

task<Waited> FakeLink::drain(Until until) {
  draining_ = true;
  if (!drained_) drained_ = std::make_shared<Event>(world_.loop().control(), world_.loop().clock);
  const auto drained = drained_;
  note_idle();
  co_return co_await drained->wait(until);
}

/// It reads the bytes that wait in the socket.
void FakeLink::undrain() {
  draining_ = false;
  drained_.reset();
  const KernelDevice* device = assigned ? world_.kernel.by_index(*assigned) : nullptr;
  if (device == nullptr || device->link != serial) return;
  // The kernel holds a flush back while another is under way.
  const auto is_new = [this](const KernelRequest& one) {
    return one.sent_on == serial && std::ranges::find(ops_, one.id, &SessionOp::request) == ops_.end();
  };
  for (const KernelRequest& request : std::vector(device->requests.begin(), device->requests.end()))
    if (is_new(request)) take(*assigned, request);
}

}  // namespace corbd::test
