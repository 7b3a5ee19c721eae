#include "ledger.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "corbd/core/expect.hpp"

namespace corbd::nbd {

using ledger::Head;

namespace {

/// Stores a word in program order: everything before it is stored before it, and everything after it later. A killed
/// thread ends between two of its own instructions, and a later reader sees all stores before that place. So only the
/// compiler could change the order. The release is for other threads of this process.
template <class Word>
void commit(Word& word, Word value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::atomic_ref<Word>(word).store(value, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

Error unusable(const char* doing) { return {errc::exhausted, std::string(doing) + ": " + std::strerror(errno)}; }

}  // namespace

/// Hashes with FNV-1a. Nobody has a reason to make two identifiers collide, and the kernel's device is compared by
/// name, too.
std::uint64_t ledger::hash(std::string_view backend) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : backend) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

result<Ledger> Ledger::make(bool kept) {
  Fd file;
  if (kept) {
    auto made = make_memory_file("corbd-ledger", ledger::kBytes);
    if (!made) return made.error();
    file = std::move(*made);
  }
  const int flags = kept ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const memory = ::mmap(nullptr, ledger::kBytes, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (memory == MAP_FAILED) return unusable("mapping a ledger");
  Ledger made(std::move(file), static_cast<std::byte*>(memory));
  if (kept && ::mlock(memory, ledger::kHeadBytes) != 0) return unusable("locking a ledger's head in memory");
  return made;
}

Ledger::Ledger(Fd file, std::byte* memory) : file_(std::move(file)), memory_(memory), head_(new(memory) Head) {
  head_->version = ledger::kVersion;
  head_->slots = ledger::kSlots;
  head_->input = ledger::kInput;
  head_->token = make_token();
  head_->receive.msg_len = head_->send.msg_len = ledger::kNothing;
  commit(head_->magic, ledger::kMagic);
}

Ledger::Ledger(Ledger&& other) noexcept
    : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, nullptr)), head_(other.head_) {}

Ledger::~Ledger() {
  if (memory_ != nullptr) ::munmap(memory_, ledger::kBytes);
}

std::span<std::byte> Ledger::input() const {
  return {memory_ + ledger::kHeadBytes + ledger::kSlotsBytes, ledger::kInput};
}

ledger::Slot& Ledger::slot(std::uint16_t number) const {
  return *reinterpret_cast<ledger::Slot*>(memory_ + ledger::kHeadBytes + number * sizeof(ledger::Slot));
}

void Ledger::belongs_to(std::uint32_t device, std::string_view backend, std::uint64_t arena) {
  head_->device = device;
  head_->backend = ledger::hash(backend);
  head_->arena = arena;
}

void Ledger::close() { commit(head_->magic, std::uint64_t{0}); }

void Ledger::taken(std::uint16_t number, const Request& request, std::uint64_t buffer) {
  ledger::Slot& one = slot(number);
  expect(one.state == ledger::State::free, "a request gets a free slot of the ledger");
  one.buffer = buffer;
  one.cookie = request.cookie;
  one.offset = request.offset;
  one.length = request.length;
  one.flags = request.flags;
  one.command = static_cast<std::uint16_t>(request.command);
  one.born = head_->reader_seq + 1;
  commit(one.state, ledger::State::taken);
}

void Ledger::answered(std::uint16_t number, std::uint32_t error) {
  ledger::Slot& one = slot(number);
  one.error = error;
  commit(one.state, ledger::State::answered);
}

void Ledger::out(std::uint16_t number) { commit(slot(number).state, ledger::State::free); }

void Ledger::publish(const ledger::Reader& reader) {
  const std::uint64_t next = head_->reader_seq + 1;
  head_->reader[next % 2] = reader;
  commit(head_->reader_seq, next);
}

void Ledger::publish(const ledger::Writer& writer) {
  const std::uint64_t next = head_->writer_seq + 1;
  head_->writer[next % 2] = writer;
  commit(head_->writer_seq, next);
}

ssize_t Ledger::receive(int socket, std::span<iovec> into) {
  mmsghdr& message = head_->receive;
  commit(message.msg_len, ledger::kNothing);
  message.msg_hdr = {};
  message.msg_hdr.msg_iov = into.data();
  message.msg_hdr.msg_iovlen = into.size();
  commit(head_->receive_seq, head_->reader_seq);
  int got = ::recvmmsg(socket, &message, 1, MSG_DONTWAIT, nullptr);
  // The peer ended with a reply unread. recvmmsg() returns that error once, before the peer's bytes.
  if (got != 1 && errno == ECONNRESET) got = ::recvmmsg(socket, &message, 1, MSG_DONTWAIT, nullptr);
  if (got != 1) return -1;
  return static_cast<ssize_t>(message.msg_len);
}

ssize_t Ledger::send(int socket, std::span<iovec> parts, std::size_t replies) {
  mmsghdr& message = head_->send;
  commit(message.msg_len, ledger::kNothing);
  message.msg_hdr = {};
  message.msg_hdr.msg_iov = parts.data();
  message.msg_hdr.msg_iovlen = parts.size();
  head_->sends = static_cast<std::uint32_t>(replies);
  commit(head_->send_seq, head_->writer_seq);
  if (::sendmmsg(socket, &message, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) return -1;
  return static_cast<ssize_t>(message.msg_len);
}

}  // namespace corbd::nbd
