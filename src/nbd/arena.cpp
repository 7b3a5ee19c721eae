#include "arena.hpp"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "corbd/core/file.hpp"

namespace corbd::nbd {
namespace {
constexpr unsigned kNoExecSeal = 0x8;  // MFD_NOEXEC_SEAL, which older headers lack

Error no_memory(const char* doing) { return {errc::exhausted, std::string(doing) + ": " + std::strerror(errno)}; }

/// Whether the system allows no overcommit. Then a page of a file is charged only when it is written.
bool counts_every_page() {
  const auto mode = read_file("/proc/sys/vm/overcommit_memory", 16);
  return mode && mode->starts_with('2');
}
}  // namespace

result<Fd> make_memory_file(const char* name, std::size_t bytes) {
  // Beyond that limit the system ends the process by SIGXFSZ.
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes)
    return Error{errc::exhausted, "making a file in memory: this process may make files of " +
                                      std::to_string(most.rlim_cur) + " bytes at most (RLIMIT_FSIZE)"};
  if (counts_every_page())
    return Error{errc::exhausted,
                 "making a file in memory: with vm.overcommit_memory=2 its next page may be refused, by SIGBUS"};
  // A host may refuse executable memory (vm.memfd_noexec). Kernels before 6.3 do not know the flag.
  Fd file(::memfd_create(name, MFD_CLOEXEC | kNoExecSeal));
  if (!file && errno == EINVAL) file = Fd(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return no_memory("making a file in memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return no_memory("sizing a file in memory");
  return file;
}

std::uint64_t make_token() {
  std::uint64_t token = 0;
  while (token == 0)
    if (::getrandom(&token, sizeof token, 0) != sizeof token) token = 0;
  return token;
}

result<Arena> Arena::make(std::size_t bytes) {
  auto file = make_memory_file("corbd-buffers", bytes);
  if (!file) return file.error();
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file->get(), 0);
  if (base == MAP_FAILED) return no_memory("mapping the memory of buffers");
  ::madvise(base, bytes, MADV_DONTDUMP);
  return Arena(std::move(*file), static_cast<std::byte*>(base), bytes);
}

Arena::Arena(Fd file, std::byte* base, std::size_t bytes)
    : file_(std::move(file)), base_(base), bytes_(bytes), token_(make_token()) {}

Arena::Arena(Arena&& other) noexcept
    : file_(std::move(other.file_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      used_(other.used_),
      token_(other.token_) {}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

std::byte* Arena::take(std::size_t bytes) {
  if (bytes > bytes_ - used_) return nullptr;
  return base_ + std::exchange(used_, used_ + bytes);
}

std::uint64_t Arena::offset(const std::byte* place) const {
  return has(place) ? static_cast<std::uint64_t>(place - base_) : kElsewhere;
}

}  // namespace corbd::nbd
