#include "outstanding.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ledger.hpp"

namespace corbd::nbd {
namespace {

using ledger::Head;
using ledger::State;

Error off(std::string what) { return {errc::failed_precondition, std::move(what)}; }

/// One pass over a ledger. Each step either finds its part sound and fills `out`, or returns the error.
class Look {
 public:
  Look(std::span<const std::byte> memory, const Expected& expected) : memory_(memory), expected_(expected) {}

  result<Outstanding> recover_outstanding() {
    for (const auto step :
         {&Look::head, &Look::arena, &Look::reader, &Look::find_slots, &Look::writer, &Look::requests, &Look::buffers})
      if (auto sound = (this->*step)(); !sound) return sound.error();
    return build();
  }

 private:
  struct Found {
    ledger::Slot slot;
    bool alive = false;  ///< read, and its reply is not known to be sent
  };

  result<> head() {
    if (memory_.size() < ledger::kHeadBytes) return off("it is cut off within its head");
    std::memcpy(&head_, memory_.data(), sizeof head_);
    if (head_.magic != ledger::kMagic) return off("it is not a ledger, or its link was being ended");
    if (head_.version != ledger::kVersion)
      return off("it has version " + std::to_string(head_.version) + " instead of " + std::to_string(ledger::kVersion));
    if (head_.slots != ledger::kSlots || head_.input != ledger::kInput) return off("its parts have other sizes");
    if (memory_.size() != ledger::kBytes) return off("it has " + std::to_string(memory_.size()) + " bytes");
    if (head_.device != expected_.device || head_.backend != ledger::hash(expected_.backend))
      return off("it is another device's");
    return {};
  }

  result<> arena() {
    const auto place = std::ranges::find(expected_.arenas, head_.arena, [](const auto& one) { return one.first; });
    arena_bytes_ = place == expected_.arenas.end() ? 0 : place->second;
    return {};
  }

  /// Finds the state of the reader, including the bytes of its last call if it died before it recorded them.
  result<> reader() {
    reader_ = head_.reader[head_.reader_seq % 2];
    if (reader_.begin > reader_.end || reader_.end > ledger::kInput)
      return off("the reader's place is not in its input");
    if (reader_.payload_left > 0 && reader_.skip_left > 0) return off("the reader waits for two payloads");
    if (reader_.filling > ledger::kSlots) return off("the reader fills a slot that is none");
    if (reader_.payload_left > 0 && reader_.filling == 0) return off("the reader waits for the payload of no slot");
    if (head_.receive_seq == head_.reader_seq && head_.receive.msg_len != ledger::kNothing) {
      const std::uint32_t got = head_.receive.msg_len;
      const std::uint32_t straight = std::min(got, reader_.payload_left);
      if (got - straight > ledger::kInput - reader_.end) return off("more was read than there was room for");
      reader_.payload_left -= straight;
      reader_.end += got - straight;
    }
    return {};
  }

  result<> find_slots() {
    for (std::size_t i = 0; i < ledger::kSlots; ++i) {
      Found& one = found_.at(i);
      std::memcpy(&one.slot, memory_.data() + ledger::kHeadBytes + i * sizeof one.slot, sizeof one.slot);
      if (one.slot.state != State::free && one.slot.state != State::taken && one.slot.state != State::answered)
        return off("a slot is in no state");
      if (one.slot.state != State::free && one.slot.born > head_.reader_seq + 1)
        return off("a slot is of the time to come");
      // Its header still counts as input: the next server takes it again from there.
      one.alive = one.slot.state != State::free && one.slot.born <= head_.reader_seq;
    }
    return {};
  }

  result<> writer() {
    writer_ = head_.writer[head_.writer_seq % 2];
    if (writer_.partly > ledger::kSlots) return off("the writer is within a slot that is none");
    if ((writer_.partly == 0) != (writer_.sent == 0)) return off("the writer is within the reply of no slot");
    if (head_.send_seq == head_.writer_seq && head_.send.msg_len != ledger::kNothing)
      if (auto sound = last_call(); !sound) return sound;
    if (writer_.partly == 0) return {};
    const Found& one = found_.at(writer_.partly - 1);
    if (!one.alive || one.slot.state != State::answered) return off("an unknown reply was sent in part");
    if (writer_.sent >= reply_size(one.slot)) return off("more of a reply is out than it has");
    return {};
  }

  /// Adds the bytes of the last call to its replies in their order, after the bytes of the first one that were sent
  /// before.
  result<> last_call() {
    if (head_.sends > ledger::kMostSends) return off("the writer's last call has too many replies");
    std::uint64_t out = writer_.sent + std::uint64_t{head_.send.msg_len};
    std::array<bool, ledger::kSlots> seen{};
    const auto first = writer_.partly;
    writer_ = {};
    for (std::uint32_t i = 0; i < head_.sends && out > 0; ++i) {
      const std::uint16_t number = head_.sending[i];
      if (number >= ledger::kSlots || seen.at(number)) return off("the writer's last call has a slot that is none");
      if (i == 0 && first != 0 && number != first - 1) return off("the writer left a reply in the middle");
      seen.at(number) = true;
      Found& one = found_.at(number);
      // The dead session may have freed it already. It was not taken since.
      if (one.slot.born > head_.reader_seq || one.slot.state == State::taken) return off("an unknown reply was sent");
      const std::uint64_t size = reply_size(one.slot);
      if (out < size) {
        writer_ = {number + 1u, static_cast<std::uint32_t>(out)};
        return {};
      }
      out -= size;
      one.alive = false;
    }
    return out == 0 ? result<>() : off("more is out than the writer's last call had");
  }

  result<> requests() {
    for (const Found& one : found_) {
      if (!one.alive) continue;
      const Request request = request_of(one.slot);
      // A request that was refused, or had nothing to do, was answered at once.
      if (one.slot.state == State::answered && (one.slot.error != 0 || request.length == 0)) continue;
      if (check(request, expected_.limits) != 0) return off("a slot has a request that is refused when it is read");
      if (request.length == 0 && request.command != Command::flush) return off("a slot waits for an empty request");
    }
    if (reader_.filling == 0) return {};
    const Found& one = found_.at(reader_.filling - 1);
    if (!one.alive || one.slot.state != State::taken || one.slot.command != static_cast<std::uint16_t>(Command::write))
      return off("the reader fills a slot that is not a write");
    if (reader_.payload_left > one.slot.length) return off("the reader waits for more than the write has");
    return {};
  }

  /// Checks that each buffer is in the arena, and that no two overlap.
  result<> buffers() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> used;
    for (const Found& one : found_) {
      if (!one.alive || !has_buffer(one.slot)) continue;
      if (arena_bytes_ == 0) return off("the memory of its payloads is not at hand");
      if (one.slot.buffer > arena_bytes_ || one.slot.length > arena_bytes_ - one.slot.buffer)
        return off("a payload is not in the memory of payloads");
      used.emplace_back(one.slot.buffer, one.slot.buffer + one.slot.length);
    }
    std::ranges::sort(used);
    for (std::size_t i = 1; i < used.size(); ++i)
      if (used[i].first < used[i - 1].second) return off("two slots have the same memory");
    return {};
  }

  Outstanding build() const {
    Outstanding out;
    out.arena = head_.arena;
    out.skip_left = reader_.skip_left;
    const std::byte* const input = memory_.data() + ledger::kHeadBytes + ledger::kSlotsBytes;
    out.input.assign(input + reader_.begin, input + reader_.end);
    std::vector<const Found*> order;
    for (const Found& one : found_)
      if (one.alive) order.push_back(&one);
    const auto rank = [&](const Found* one) {
      const auto number = static_cast<std::uint32_t>(one - found_.data()) + 1;
      return std::pair(number == writer_.partly ? 0 : number == reader_.filling ? 2 : 1, one->slot.born);
    };
    std::ranges::sort(order, {}, rank);
    for (const Found* one : order) {
      const auto number = static_cast<std::uint32_t>(one - found_.data()) + 1;
      Outstanding::Slot slot;
      slot.request = request_of(one->slot);
      slot.answered = one->slot.state == State::answered;
      slot.error = slot.answered ? one->slot.error : 0;
      slot.sent = number == writer_.partly ? writer_.sent : 0;
      slot.filling = number == reader_.filling;
      slot.arrived = slot.filling ? one->slot.length - reader_.payload_left : 0;
      slot.buffer = one->slot.buffer;
      out.slots.push_back(slot);
    }
    return out;
  }

  static Request request_of(const ledger::Slot& slot) {
    return {slot.flags, static_cast<Command>(slot.command), slot.cookie, slot.offset, slot.length};
  }
  static std::size_t reply_size(const ledger::Slot& slot) {
    return Outstanding::Slot{.request = request_of(slot), .error = slot.error}.reply_size();
  }
  /// Whether the slot's buffer holds bytes that matter now.
  static bool has_buffer(const ledger::Slot& slot) {
    const Request request = request_of(slot);
    if (slot.state == State::answered) return request.command == Command::read && slot.error == 0 && request.length > 0;
    return request.command == Command::write;
  }

  std::span<const std::byte> memory_;
  const Expected& expected_;
  Head head_{};
  std::uint64_t arena_bytes_ = 0;
  ledger::Reader reader_;
  ledger::Writer writer_;
  std::array<Found, ledger::kSlots> found_{};
};

}  // namespace

result<Outstanding> recover_outstanding(std::span<const std::byte> memory, const Expected& expected) {
  return Look(memory, expected).recover_outstanding();
}

}  // namespace corbd::nbd
