// nbd's session, as far as the control side and the kernel see it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "codec.hpp"
#include "support/world/ports.hpp"

namespace corbd::test {

FakeLink::FakeLink(World& world, image::Image& image, std::function<void()> on_stopped)
    : serial(world.cluster.new_serial()),
      image_id(image.key().image_id),
      visits(begin_visit(world, image)),
      world_(world),
      image_(image),
      on_stopped_(std::move(on_stopped)),
      idle_(world.loop().control(), world.loop().clock),
      drained_(world.loop().control(), world.loop().clock) {
  world_.kernel.links[serial] = this;
  look_whom_it_is_taken_from();
}

std::uint64_t FakeLink::begin_visit(World& world, const image::Image& image) {
  FakeImage* of = world.cluster.by_id(image.key().image_id);
  if (of == nullptr) return 0;
  const auto* opened = dynamic_cast<const FakeOpened*>(&image);
  const bool writes = opened != nullptr && !image.read_only() && !of->shared;
  // Who is cut off changes nothing, even if it does not know that yet.
  if (writes && world.cluster.refuses(opened->client())) return kNoVisit;
  const std::string& node = world.agent.node_address;
  if (writes && !of->served_by.empty() && of->served_by != node) ++of->visits;
  if (writes) of->served_by = node;
  return of->visits;
}

/// A new device writes. Who had the image open when the agent looked last must be cut off by its own address: a fence
/// of its host may end at any time.
void FakeLink::look_whom_it_is_taken_from() {
  FakeImage* of = world_.cluster.by_id(image_id);
  if (of == nullptr || opened() == nullptr || image_.read_only() || of->shared) return;
  of->taken_from = of->seen_by[world_.agent.node_address];
  const auto is_of_image = [&](const KernelDevice& device) { return device.image_id == image_id; };
  if (std::ranges::any_of(world_.kernel.devices, is_of_image)) return;
  for (const auto& client : of->taken_from)
    if (!world_.cluster.blocklisted.contains(client))
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
  if (world_.agent.leaving) world_.broke("a session took a request after the agent was told to leave");
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

void FakeLink::completed(image::Op* op, int result) noexcept {
  auto& ours = static_cast<SessionOp&>(*op);
  ours.link->end(ours, result);
}

void FakeLink::end(SessionOp& op, int result) {
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
      world_.kernel.answer(device, request, result, number, tombstone());
    }
  }
  if (!ops_.empty()) return;
  if (draining_) drained_.set();
  if (state_ != State::serving) idle_.set();
}

void FakeLink::stop(State state, int error) {
  if (state_ != State::serving) return;
  state_ = state;
  error_ = error;
  world_.trace("link " + std::to_string(serial) + (state == State::held ? " is held" : " is shut"));
  if (given) world_.kernel.link_ended(serial);
  if (on_stopped_) asio::post(world_.loop().control(), on_stopped_);
  if (ops_.empty()) idle_.set();
}

task<result<Fd>> FakeLink::give(Until) {
  if (state_ != State::serving || !draining_ || !ops_.empty() || !given)
    co_return Error{errc::unavailable, "the link has ended, or has something left to answer"};
  state_ = State::closed;
  world_.trace("link " + std::to_string(serial) + " is given away");
  world_.kernel.given[*given] = serial;
  world_.kernel.links.erase(serial);
  if (on_stopped_) asio::post(world_.loop().control(), on_stopped_);
  idle_.set();
  // The world knows the socket by its device.
  co_return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

task<Waited> FakeLink::drain(Until until) {
  draining_ = true;
  if (ops_.empty()) drained_.set();
  co_return co_await drained_.wait(until);
}

}  // namespace corbd::test
