#include "inherited_session.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "corbd/core/log.hpp"
#include "corbd/device/values.hpp"
#include "ledger.hpp"

namespace corbd::nbd {
namespace {

Error not_read(const char* what, const char* why) {
  return {errc::unavailable, std::string("reading ") + what + ": " + why};
}

result<std::size_t> size_of(int file, const char* what) {
  struct stat found{};
  if (::fstat(file, &found) != 0) return not_read(what, std::strerror(errno));
  return static_cast<std::size_t>(found.st_size);
}

result<> read_all(int file, std::uint64_t offset, std::span<std::byte> into, const char* what) {
  while (!into.empty()) {
    const ssize_t got = ::pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return not_read(what, got == 0 ? "it ends there" : std::strerror(errno));
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace

OldArena::OldArena(device::FdStore& fd_store, std::uint64_t token, Fd file)
    : fd_store_(fd_store), token_(token), file_(std::move(file)) {}

result<std::shared_ptr<const OldArena>> OldArena::open(device::FdStore& fd_store, std::uint64_t token, Fd file) {
  const std::shared_ptr<OldArena> made(new OldArena(fd_store, token, std::move(file)));
  const auto size = size_of(made->file_.get(), "the payloads of dead sessions");
  if (!size) return size.error();
  made->size_ = *size;
  return std::shared_ptr<const OldArena>(made);
}

OldArena::~OldArena() {
  static_cast<void>(fd_store_.drop(token_));  // the store drops it with this process, at the latest
}

result<> OldArena::read(std::uint64_t offset, std::span<std::byte> into) const {
  return read_all(file_.get(), offset, into, "a payload of a dead session");
}

void log_not_resumed(const std::string& backend, std::uint32_t device, const Error& why) {
  log::warning("nbd.not_resumed", {{"volume", backend},
                                   {"device", device::path(device)},
                                   {"error", why.text},
                                   {"effect", "the kernel repeats the requests in flight on a new link"}});
}

result<Outstanding> read_ledger(int file, const Expected& expected) {
  const auto size = size_of(file, "a ledger");
  if (!size) return size.error();
  // No file of ours is larger, and the content of a broken one is useless.
  if (*size == 0 || *size > 2 * ledger::kBytes)
    return Error{errc::failed_precondition, "it has " + std::to_string(*size) + " bytes"};
  std::vector<std::byte> memory(*size);
  if (auto read = read_all(file, 0, memory, "a ledger"); !read) return read.error();
  return recover_outstanding(memory, expected);
}

void close_ledger(int file) {
  if (file >= 0 && ::ftruncate(file, 0) != 0) log::warning("nbd.ledger_not_closed", {{"error", std::strerror(errno)}});
}

std::uint64_t arena_of(int ledger) {
  ledger::Head head;
  if (!read_all(ledger, 0, std::as_writable_bytes(std::span(&head, 1)), "a ledger")) return 0;
  return head.magic == ledger::kMagic && head.version == ledger::kVersion ? head.arena : 0;
}

}  // namespace corbd::nbd
