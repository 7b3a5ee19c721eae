// Another implementation of the protocol is the client: libnbd.
#include <libnbd.h>

#include <random>

#include "ground.hpp"
#include "support/newstyle.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;
constexpr nbd_completion_callback kNoCompletion{nullptr, nullptr, nullptr};

struct Client {
  explicit Client(Ground& at, bool read_only = false) : ground(at), handle(::nbd_create(), &::nbd_close) {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    Fd server(fds[0]);
    bool agreed = false;
    std::thread handshake([&] { agreed = newstyle_handshake(server.get(), ground.image.size(), read_only); });
    const int connected = ::nbd_connect_socket(handle.get(), fds[1]);
    handshake.join();
    INFO((connected == 0 ? "" : ::nbd_get_error()));
    REQUIRE(connected == 0);
    REQUIRE(agreed);
    link = nbd::serve_socket(ground.control.get_executor(), *ground.clock, ground.loop, ground.image, std::move(server),
                             ground.counters, read_only);
  }
  nbd_handle* nbd() const { return handle.get(); }

  Ground& ground;
  std::unique_ptr<nbd_handle, decltype(&::nbd_close)> handle;
  std::unique_ptr<nbd::NbdLink> link;
};

/// One after another, against a plain vector.
void compare(Client& client, unsigned seed, int steps) {
  std::mt19937 random(seed);
  Bytes model = client.ground.image.content();
  const auto below = [&](std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random);
  };
  for (int step = 0; step < steps; ++step) {
    const std::uint64_t offset = below(model.size());
    const std::size_t length = 1 + below(std::min<std::uint64_t>(model.size() - offset, below(4) == 0 ? 300000 : 9000));
    const auto at = model.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto end = at + static_cast<std::ptrdiff_t>(length);
    int failed = 0;
    switch (below(5)) {
      case 0: {
        const Bytes data = pattern(length, static_cast<unsigned>(step));
        std::copy(data.begin(), data.end(), at);
        failed = ::nbd_pwrite(client.nbd(), data.data(), length, offset, step % 2 == 0 ? LIBNBD_CMD_FLAG_FUA : 0);
        break;
      }
      case 1:
        std::fill(at, end, std::byte{0});
        failed = ::nbd_trim(client.nbd(), length, offset, 0);
        break;
      case 2:
        std::fill(at, end, std::byte{0});
        failed = ::nbd_zero(client.nbd(), length, offset, LIBNBD_CMD_FLAG_NO_HOLE);
        break;
      case 3:
        failed = ::nbd_flush(client.nbd(), 0);
        break;
      default: {
        Bytes data(length);
        failed = ::nbd_pread(client.nbd(), data.data(), length, offset, 0);
        REQUIRE(std::equal(at, end, data.begin()));
      }
    }
    INFO(step << ": " << (failed == 0 ? "" : ::nbd_get_error()));
    REQUIRE(failed == 0);
  }
  CHECK(client.ground.image.content() == model);
}

}  // namespace

TEST_CASE("libnbd and a plain vector agree after any sequence of requests", "[failure:51]") {
  for (const Ends ends : {Ends::at_once, Ends::elsewhere}) {
    Ground ground(ends);
    Client client(ground);
    for (unsigned seed = 1; seed <= 4; ++seed) compare(client, seed, 150);
    CHECK(::nbd_shutdown(client.nbd(), 0) == 0);
    CHECK(ground.eventually([&] { return client.link->state() == device::Link::State::closed; }));
  }
}

TEST_CASE("libnbd with many requests under way gets every one of them right") {
  constexpr unsigned kRequests = 512;
  constexpr std::size_t kLength = 2048;
  Ground ground(Ends::elsewhere, 1u << 20);
  Client client(ground);
  const Bytes data = pattern(kRequests * kLength);
  Bytes back(data.size());
  for (const bool writes : {true, false}) {
    for (unsigned i = 0; i < kRequests; ++i) {
      const std::size_t at = i * kLength;
      const auto cookie = writes ? ::nbd_aio_pwrite(client.nbd(), data.data() + at, kLength, at, kNoCompletion, 0)
                                 : ::nbd_aio_pread(client.nbd(), back.data() + at, kLength, at, kNoCompletion, 0);
      REQUIRE(cookie > 0);
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (::nbd_aio_in_flight(client.nbd()) > 0) {
      REQUIRE(::nbd_poll(client.nbd(), 1000) >= 0);
      REQUIRE(std::chrono::steady_clock::now() < end);
    }
    std::int64_t done;
    while ((done = ::nbd_aio_peek_command_completed(client.nbd())) > 0)
      REQUIRE(::nbd_aio_command_completed(client.nbd(), static_cast<std::uint64_t>(done)) == 1);
  }
  CHECK(back == data);
}

TEST_CASE("libnbd is told of errors and goes on") {
  Ground ground;
  Client client(ground);
  REQUIRE(::nbd_set_strict_mode(client.nbd(), 0) == 0);
  Bytes data(512);
  CHECK(::nbd_pread(client.nbd(), data.data(), data.size(), ground.image.size(), 0) == -1);
  CHECK(::nbd_get_errno() == EINVAL);
  CHECK(::nbd_pwrite(client.nbd(), data.data(), data.size(), ground.image.size() - 1, 0) == -1);
  CHECK(::nbd_get_errno() == EINVAL);
  ground.image.fail(MemoryImage::Io::flush, EOPNOTSUPP);
  CHECK(::nbd_flush(client.nbd(), 0) == -1);
  CHECK(::nbd_get_errno() == EOPNOTSUPP);
  CHECK(::nbd_pread(client.nbd(), data.data(), data.size(), 0, 0) == 0);
}

TEST_CASE("libnbd may not write to a read-only device") {
  Ground ground;
  Client client(ground, true);
  REQUIRE(::nbd_is_read_only(client.nbd()) == 1);
  REQUIRE(::nbd_set_strict_mode(client.nbd(), 0) == 0);
  const Bytes data(512);
  CHECK(::nbd_pwrite(client.nbd(), data.data(), data.size(), 0, 0) == -1);
  CHECK(::nbd_get_errno() == EPERM);
}

TEST_CASE("libnbd sees a dead server, not an error, when the connection of the image is lost") {
  Ground ground;
  Client client(ground);
  ground.image.fail(MemoryImage::Io::write, ESHUTDOWN);
  const Bytes data(512);
  CHECK(::nbd_pwrite(client.nbd(), data.data(), data.size(), 0, 0) == -1);
  CHECK(::nbd_aio_is_dead(client.nbd()) + ::nbd_aio_is_closed(client.nbd()) == 1);
  CHECK(ground.eventually([&] { return client.link->state() == device::Link::State::held; }));
}

}  // namespace corbd::test
