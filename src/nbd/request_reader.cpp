#include "request_reader.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "corbd/core/log.hpp"
#include "slot.hpp"

namespace corbd::nbd {
namespace {

constexpr int kReadsPerTurn = 16;  // after this many it is the other devices' turn
// The kernel's nbd has 128 requests per socket at most. We do not read from a peer with more unanswered requests.
constexpr std::size_t kMaxRequests = ledger::kSlots;

bool fetch(const InheritedSession& inherited, const Outstanding::Slot& old, std::byte* into) {
  const std::size_t bytes = old.data_bytes();
  const auto read = bytes > 0 ? inherited.arena->read(old.buffer, {into, bytes}) : result<>();
  if (!read) log_not_resumed(inherited.backend, inherited.device, read.error());
  return read.has_value();
}

}  // namespace

RequestReader::RequestReader(const Parts& parts) : parts_(parts), framer_(parts.ledger.input()) {}

void RequestReader::begin_turn() {
  halt_ = Halt::none;
  reads_ = 0;
  emptied_ = freed_ = false;
  read_us_ = now_us();
}

Slot* RequestReader::next() {
  Slot* slot = nullptr;
  while (slot == nullptr && halt_ == Halt::none) {
    if (!pending_) {
      slot = parse();
    } else if (take_room(*pending_)) {
      slot = begin(*pending_);
      pending_.reset();
    } else {
      halt_ = Halt::no_room;
    }
  }
  return slot;
}

/// Returns a write that is complete now.
Slot* RequestReader::parse() {
  const Framer::Framed event = framer_.next({parts_.image.size(), parts_.read_only, parts_.loop.max_request()});
  switch (event.kind) {
    case Framer::Kind::request:
    case Framer::Kind::refused:
      pending_ = {event.request, event.error};
      break;
    case Framer::Kind::filled: {
      Slot* const slot = std::exchange(filling_, nullptr);
      publish();
      return slot;
    }
    case Framer::Kind::disconnect:
      leaving_ = true;
      halt_ = framer_.at_boundary() ? Halt::boundary : Halt::broken;
      break;
    case Framer::Kind::broken:
      parts_.counters.add(device::Count::links_broken);
      log::warning("nbd.broken_stream", {{"image", parts_.image.key().text()}});
      halt_ = Halt::broken;
      break;
    case Framer::Kind::starved:
      receive();
      break;
  }
  return nullptr;
}

void RequestReader::receive() {
  if (draining_ && framer_.at_boundary()) {
    halt_ = Halt::boundary;
    return;
  }
  if (emptied_ || reads_++ == kReadsPerTurn) {
    halt_ = Halt::no_bytes;
    return;
  }
  iovec into[2];
  // A draining reader leaves the next request in the socket, for the next server.
  const std::span<iovec> wanted(into, framer_.room(into, draining_));
  std::size_t asked = 0;
  for (const iovec& one : wanted) asked += one.iov_len;
  publish();
  const ssize_t got = parts_.ledger.receive(parts_.socket, wanted);
  if (got <= 0) {
    halt_ = got < 0 && (errno == EAGAIN || errno == EINTR) ? Halt::no_bytes : Halt::closed;
    return;
  }
  read_us_ = now_us();
  emptied_ = static_cast<std::size_t>(got) < asked;
  framer_.arrived(static_cast<std::size_t>(got));
  publish();
}

bool RequestReader::take_room(const Pending& pending) {
  if (parts_.slots.used() == kMaxRequests) return false;
  const bool has_data = pending.is_for_image() && pending.request.has_data();
  const std::size_t bytes = has_data ? Buffers::rounded(pending.request.length) : 0;
  if (bytes > 0 && !parts_.loop.budget.take(parts_.waiter, bytes, budget_used_)) {
    parts_.counters.add(device::Count::budget_waits);
    parts_.loop.budget.wait(parts_.waiter, bytes);
    parts_.stats.stands_still();
    return false;
  }
  parts_.stats.reads_on();
  budget_used_ += bytes;
  return true;
}

/// Gives a request its slot. Returns it if it is for the image, and complete.
Slot* RequestReader::begin(const Pending& pending) {
  const Request& request = pending.request;
  Slot& slot = parts_.slots.take(request);
  if (!pending.is_for_image()) {
    if (pending.error != 0) parts_.counters.add(device::Count::refused);
    parts_.ledger.taken(slot.number, request, Arena::kElsewhere);
    parts_.writer.answer(slot, pending.error);
    publish();
    return nullptr;
  }
  if (request.has_data()) slot.buffer = parts_.loop.buffers.take(request.length);
  if (request.has_payload()) {
    framer_.payload_into(slot.buffer);
    filling_ = &slot;
  }
  parts_.ledger.taken(slot.number, request, parts_.loop.offset(slot.buffer));
  publish();
  return filling_ == nullptr ? &slot : nullptr;
}

void RequestReader::release(Slot& slot) {
  if (slot.buffer != nullptr) {
    const std::size_t bytes = Buffers::rounded(slot.request.length);
    parts_.loop.give_back_buffer(std::exchange(slot.buffer, nullptr), slot.request.length);
    budget_used_ -= bytes;
    parts_.loop.budget.give_back(parts_.waiter, bytes);
  }
  parts_.slots.give_back(slot);
  freed_ = true;
}

void RequestReader::release_all(Reply* replies) {
  while (replies != nullptr) {
    Reply& reply = *replies;
    replies = reply.next_reply;
    release(static_cast<Slot&>(reply));
  }
}

bool RequestReader::has_left() const {
  char byte;
  const ssize_t got = ::recv(parts_.socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got >= 0 || errno != EAGAIN;
}

void RequestReader::close() {
  parts_.stats.reads_on();
  pending_.reset();
  if (filling_ != nullptr) release(*std::exchange(filling_, nullptr));
}

bool RequestReader::take_over(const InheritedSession& inherited, std::vector<Slot*>& again) {
  const Outstanding& owed = inherited.owed;
  Framer::Place place{0, static_cast<std::uint32_t>(owed.input.size()), 0, owed.skip_left};
  std::byte* payload = nullptr;
  if (!owed.input.empty()) std::memcpy(parts_.ledger.input().data(), owed.input.data(), owed.input.size());
  for (const Outstanding::Slot& old : owed.slots) {
    Slot& slot = parts_.slots.take(old.request);
    if (old.request.has_data() && old.request.length > 0 && (!old.answered || old.data_bytes() > 0)) {
      // The bytes were in the budget before, so the total hardly exceeds it.
      parts_.loop.budget.resume(parts_.waiter, Buffers::rounded(old.request.length));
      budget_used_ += Buffers::rounded(old.request.length);
      slot.buffer = parts_.loop.buffers.take(old.request.length);
      if (!fetch(inherited, old, slot.buffer)) {
        release(slot);
        return false;
      }
    }
    parts_.ledger.taken(slot.number, slot.request, parts_.loop.offset(slot.buffer));
    if (old.answered) {
      parts_.writer.resume(slot, old.error, old.sent);
    } else if (old.filling) {
      filling_ = &slot;
      place.payload_left = old.request.length - old.arrived;
      payload = slot.buffer + old.arrived;
    } else {
      again.push_back(&slot);
    }
  }
  framer_.resume(place, payload);
  publish();
  return true;
}

void RequestReader::publish() {
  const Framer::Place place = framer_.place();
  parts_.ledger.publish(ledger::Reader{place.begin, place.end, place.payload_left, place.skip_left,
                                       filling_ != nullptr ? filling_->number + 1u : 0u});
}

}  // namespace corbd::nbd
