// What our own code costs per request: an NBD session on a memory image, a client on the other end of a socket pair that keeps `depth`
// requests under way. Ratios against a peer come from the lab, where both run on the same kernel and cluster.
#include <benchmark/benchmark.h>
#include <endian.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <cstring>

#include "link.hpp"
#include "support/memory_image.hpp"

namespace {

using namespace corbd;

constexpr std::uint32_t kRequestMagic = 0x25609513;
constexpr std::size_t kHeaderBytes = 28, kReplyBytes = 16;
constexpr std::uint64_t kImageBytes = 64u << 20;

struct Served {
  Served() : image(kImageBytes), clock(make_real_clock(control.get_executor())), loop(256u << 20, 32u << 20) {
    image.remember_calls(false);
    auto pair = nbd::make_socket_pair();
    peer = std::move(pair->second);
    link = nbd::serve_socket(control.get_executor(), *clock, loop, image, std::move(pair->first), probe, false, [] {});
  }
  ~Served() {
    link->shut();
    while (link->state() == device::Link::State::serving || link->in_flight() > 0) std::this_thread::yield();
  }
  asio::io_context control;
  test::MemoryImage image;
  std::unique_ptr<Clock> clock;
  nbd::IoLoop loop;
  nbd::Probe probe;
  Fd peer;
  std::unique_ptr<device::Link> link;
};

void put_header(std::byte* to, std::uint16_t type, std::uint64_t offset, std::uint32_t length) {
  const std::uint32_t magic = htobe32(kRequestMagic), wire_length = htobe32(length);
  const std::uint16_t wire_type = htobe16(type);
  const std::uint64_t wire_offset = htobe64(offset);
  std::memset(to, 0, kHeaderBytes);
  std::memcpy(to, &magic, 4);
  std::memcpy(to + 6, &wire_type, 2);
  std::memcpy(to + 16, &wire_offset, 8);
  std::memcpy(to + 24, &wire_length, 4);
}

void move_all(ssize_t (*call)(int, void*, std::size_t, int), int fd, std::byte* at, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t moved = call(fd, at, bytes, 0);
    if (moved <= 0) std::abort();
    at += moved;
    bytes -= static_cast<std::size_t>(moved);
  }
}

/// One iteration is `depth` requests sent together and all their replies.
void requests(benchmark::State& state, bool writes) {
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  Served served;
  const std::size_t out_each = kHeaderBytes + (writes ? bytes : 0), in_each = kReplyBytes + (writes ? 0 : bytes);
  std::vector<std::byte> out(depth * out_each), in(depth * in_each);
  for (std::size_t i = 0; i < depth; ++i) put_header(out.data() + i * out_each, writes ? 1 : 0, i * bytes, bytes);
  const auto send = [](int fd, void* from, std::size_t size, int flags) { return ::send(fd, from, size, flags); };
  for (auto _ : state) {
    move_all(send, served.peer.get(), out.data(), out.size());
    move_all(::recv, served.peer.get(), in.data(), in.size());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * depth));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * depth * bytes));
}

void sizes(benchmark::internal::Benchmark* of) {
  for (const std::int64_t bytes : {4 << 10, 256 << 10})
    for (const std::int64_t depth : {1, 16}) of->Args({bytes, depth});
}

BENCHMARK_CAPTURE(requests, read, false)->Apply(sizes)->UseRealTime();
BENCHMARK_CAPTURE(requests, write, true)->Apply(sizes)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
