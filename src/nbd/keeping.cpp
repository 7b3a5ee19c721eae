#include "keeping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "ledger.hpp"

namespace corbd::nbd {
namespace {

struct Mapping {
  ~Mapping() {
    if (at != MAP_FAILED) ::munmap(at, bytes);
  }
  Mapping(int file, std::size_t size) : at(::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0)), bytes(size) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* at;
  std::size_t bytes;
};

result<std::size_t> size_of(int file) {
  struct stat found{};
  if (::fstat(file, &found) != 0)
    return Error{errc::unavailable, std::string("looking at a kept file: ") + std::strerror(errno)};
  return static_cast<std::size_t>(found.st_size);
}

Error not_mapped() {
  return {errc::exhausted, std::string("mapping what a dead session left: ") + std::strerror(errno)};
}

}  // namespace

result<std::shared_ptr<const OldArena>> OldArena::open(device::Keep& keep, std::uint64_t token, Fd file) {
  const auto size = size_of(file.get());
  if (!size) return size.error();
  void* const at = ::mmap(nullptr, *size, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (at == MAP_FAILED) return not_mapped();
  ::madvise(at, *size, MADV_DONTDUMP);
  return std::shared_ptr<const OldArena>(new OldArena(keep, token, {static_cast<const std::byte*>(at), *size}));
}

OldArena::~OldArena() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  static_cast<void>(keep_.drop(token_));  // it goes with the process, at the latest
}

result<Settled> read_ledger(int file, const Expected& expected) {
  const auto size = size_of(file);
  if (!size) return size.error();
  // No file of ours is larger, and nobody wants to map what a broken one says.
  if (*size == 0 || *size > 2 * ledger::kBytes)
    return Error{errc::failed_precondition, "it has " + std::to_string(*size) + " bytes"};
  const Mapping memory(file, *size);
  if (memory.at == MAP_FAILED) return not_mapped();
  return settle({static_cast<const std::byte*>(memory.at), memory.bytes}, expected);
}

}  // namespace corbd::nbd
