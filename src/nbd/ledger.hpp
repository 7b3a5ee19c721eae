// The debts of a session to its client, in memory that may outlive the process: how far the stream is read, which
// requests are unanswered, and which bytes of a reply are out. From the memory that a SIGKILL at any instruction
// leaves, recover_outstanding() computes all of that, to the byte (docs/keeper.md#what-a-sigkill-leaves).
//
// Three things make it so:
// - recvmmsg(2) and sendmmsg(2) store the length in the caller's memory within the system call that moves the bytes.
// - A state of several words has two places. One word, its sequence number, says which of them holds, and is stored
//   last. A call names the number of the state that it goes out from, so nobody counts its bytes twice.
// - A slot says with which state of the reader it begins to exist. Until then its header still counts as unread input.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "arena.hpp"
#include "codec.hpp"
#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/nbd/devices.hpp"

namespace corbd::nbd {

namespace ledger {

inline constexpr std::uint64_t kMagic = 0x637262644c454447;  // "crbdLEDG"
inline constexpr std::uint32_t kVersion = kLedgerVersion;
inline constexpr std::uint32_t kSlots = 256, kInput = 128 << 10;
inline constexpr std::size_t kMostSends = 128;
/// Value of `msg_len` before a call: no byte has moved.
inline constexpr std::uint32_t kNothing = UINT32_MAX;

struct Reader {
  std::uint32_t begin = 0, end = 0;               ///< part of the input that is not parsed yet
  std::uint32_t payload_left = 0, skip_left = 0;  ///< bytes of the stream
  std::uint32_t filling = 0;                      ///< slot whose payload is coming, plus one; 0: none
  bool operator==(const Reader&) const = default;
};

struct Writer {
  std::uint32_t partly = 0;  ///< slot whose reply is partly sent, plus one; 0: none
  std::uint32_t sent = 0;    ///< bytes of that reply
};

enum class State : std::uint32_t { free, taken, answered };

struct alignas(64) Slot {
  State state = State::free;
  std::uint32_t error = 0;   ///< error of the reply, once answered
  std::uint64_t born = 0;    ///< the reader's sequence number from which on the slot exists
  std::uint64_t buffer = 0;  ///< offset in the arena, or Arena::kElsewhere
  std::uint64_t cookie = 0, offset = 0;
  std::uint32_t length = 0;
  std::uint16_t flags = 0, command = 0;
};

struct Head {
  std::uint64_t magic = 0;
  std::uint32_t version = 0, slots = 0, input = 0;
  std::uint32_t device = 0;   ///< index of the device
  std::uint64_t backend = 0;  ///< hash of the device's identifier
  std::uint64_t token = 0;    ///< token of this ledger
  std::uint64_t arena = 0;    ///< token of the arena that has the payloads

  alignas(64) std::uint64_t reader_seq = 0;
  std::uint64_t receive_seq = UINT64_MAX;  ///< sequence number of the reader's state at the start of the last call
  Reader reader[2];
  mmsghdr receive{};

  alignas(64) std::uint64_t writer_seq = 0;
  std::uint64_t send_seq = UINT64_MAX;  ///< the same for the writer
  Writer writer[2];
  mmsghdr send{};
  std::uint32_t sends = 0;              ///< number of replies in that call,
  std::uint16_t sending[kMostSends]{};  ///< and their slots, in order
};

/// The head has pages of its own, which stay in memory: a page fault in the store of a length could lose it.
inline constexpr std::size_t kHeadBytes = 4096, kSlotsBytes = kSlots * sizeof(Slot);
inline constexpr std::size_t kBytes = kHeadBytes + kSlotsBytes + kInput;
static_assert(sizeof(Head) <= kHeadBytes && sizeof(Slot) == 64 && kSlotsBytes % 4096 == 0);

std::uint64_t hash(std::string_view backend);

}  // namespace ledger

/// The books of one link. Each method stores in the order that keeps recover_outstanding() exact. The reader's half and
/// the slots belong to the io thread, the writer's half to the present sender.
class Ledger {
 public:
  /// Uses a file in memory if it is to be kept, otherwise memory of this process.
  static result<Ledger> make(bool kept);
  Ledger(Ledger&& other) noexcept;
  Ledger& operator=(Ledger&&) = delete;
  ~Ledger();

  std::span<std::byte> input() const;
  /// Call this before anybody else gets the file.
  void belongs_to(std::uint32_t device, std::string_view backend, std::uint64_t arena);
  /// Makes every later reader of the file refuse it: nobody resumes this link.
  void close();
  /// Returns the file; -1: it is memory of this process.
  int file() const { return file_.get(); }
  std::uint64_t token() const { return head_->token; }

  /// Marks a slot as taken, from the next publish() on. The slot must be free.
  void taken(std::uint16_t number, const Request& request, std::uint64_t buffer);
  /// Marks a slot whose reply is known, including its data.
  void answered(std::uint16_t number, std::uint32_t error);
  /// Marks a slot whose reply is sent. Until the next publish() of a writer, nobody may take the slot again.
  void out(std::uint16_t number);

  void publish(const ledger::Reader& reader);
  void publish(const ledger::Writer& writer);

  /// Work like recvmsg(2) and sendmsg(2), without waiting. Publish the moved bytes before the next such call.
  ssize_t receive(int socket, std::span<iovec> into);
  /// `replies` slots of sending() have their replies at the beginning of these parts.
  ssize_t send(int socket, std::span<iovec> parts, std::size_t replies);
  std::span<std::uint16_t> sending() const { return head_->sending; }

 private:
  Ledger(Fd file, std::byte* memory);
  ledger::Slot& slot(std::uint16_t number) const;
  Fd file_;
  std::byte* memory_;
  ledger::Head* head_;
};

}  // namespace corbd::nbd
