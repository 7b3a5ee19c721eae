// Counts what a busy session asks the allocator for: operator new of this whole executable. Not in sanitizer builds,
// which have their own and switch off Asio's recycling.
#ifndef BOOST_ASIO_DISABLE_SMALL_BLOCK_RECYCLING
#include <atomic>
#include <cstdlib>
#include <new>

#include "ground.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace corbd::test {
namespace {

constexpr unsigned kDepth = 32, kRounds = 200;
constexpr std::uint32_t kLength = 8192;
constexpr std::uint64_t kAllowed = 8;  // over 12,800 requests: a batch deeper than any before it

/// Writes and reads, kDepth of each at once; with nothing but system calls in between.
void round(const Ground& ground, const Bytes& batch, Bytes& replies) {
  REQUIRE(::send(ground.peer.get(), batch.data(), batch.size(), 0) == static_cast<ssize_t>(batch.size()));
  std::size_t got = 0;
  while (got < replies.size()) {
    const ssize_t now = ::recv(ground.peer.get(), replies.data() + got, replies.size() - got, 0);
    if (now <= 0) std::abort();
    got += static_cast<std::size_t>(now);
  }
}

std::uint64_t allocated_when_warm(Ground& ground) {
  ground.image.remember_calls(false);
  Bytes batch;
  for (unsigned i = 0; i < kDepth; ++i)
    batch = batch + request(Command::write, i, kLength * i, kLength) + pattern(kLength, i) +
            request(Command::read, i, kLength * i, kLength);
  Bytes replies(kDepth * (2 * nbd::reply_bytes + kLength));
  for (unsigned i = 0; i < kRounds; ++i) round(ground, batch, replies);
  ground.flush_posts();
  const std::uint64_t made = ground.loop.buffers.made();
  const std::uint64_t before = allocations.load();
  for (unsigned i = 0; i < kRounds; ++i) round(ground, batch, replies);
  const std::uint64_t after = allocations.load();
  ground.flush_posts();
  return after - before + ground.loop.buffers.made() - made;
}

}  // namespace

TEST_CASE("a busy session whose operations end at once allocates nothing") {
  Ground ground(MemoryImage::Ends::at_once);
  CHECK(allocated_when_warm(ground) <= kAllowed);
}

TEST_CASE("a busy session whose operations end on another thread allocates nothing") {
  Ground ground(MemoryImage::Ends::elsewhere);
  CHECK(allocated_when_warm(ground) <= kAllowed);
}

}  // namespace corbd::test

#endif
