// A reply that leaves from the image's thread, because its operation is the only one under way.
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <thread>

#include "ground.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;

/// Holds the io thread until destroyed.
class Busy {
 public:
  explicit Busy(Ground& ground) {
    std::promise<void> entered;
    asio::post(ground.loop.io(), [&entered, go = go_.get_future().share()] {
      entered.set_value();
      go.wait_for(kPatience);
    });
    REQUIRE(entered.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  ~Busy() { go_.set_value(); }

 private:
  std::promise<void> go_;
};

/// Bytes that wait for the reader of the socket.
int unread(const Fd& socket) {
  int bytes = 0;
  REQUIRE(::ioctl(socket.get(), FIONREAD, &bytes) == 0);
  return bytes;
}

/// TCP takes any part of a message. A stream on a unix socket takes a small one whole or not at all.
std::pair<Fd, Fd> tcp_pair(int send_buffer) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* const address = reinterpret_cast<sockaddr*>(&at);
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(listener.get(), address, size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), address, &size) == 0);
  Fd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::setsockopt(peer.get(), SOL_SOCKET, SO_RCVBUF, &send_buffer, sizeof send_buffer) == 0);
  REQUIRE(::connect(peer.get(), address, size) == 0);
  Fd ours(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer) == 0);
  return {std::move(ours), std::move(peer)};
}

}  // namespace

TEST_CASE(
    "the only operation under way is answered by the thread on which it ended, also while the io thread is busy") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::write, 1, 512, 512) + pattern(512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  {
    const Busy busy(ground);
    ground.image.release();
    CHECK(ground.reply().cookie == 1);
    CHECK(ground.link->in_flight() == 1);
  }
  ground.send(request(Command::read, 2, 512, 512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  {
    const Busy busy(ground);
    ground.image.release();
    CHECK(ground.reply().cookie == 2);
    CHECK(ground.receive(512) == pattern(512));
  }
  ground.flush_posts();
  CHECK(ground.link->in_flight() == 0);
  CHECK(ground.silent());
}

TEST_CASE("with other operations under way the io thread answers") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1) + request(Command::flush, 2));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 2; }));
  {
    const Busy busy(ground);
    ground.image.release(1);
    CHECK(ground.silent());
  }
  CHECK(ground.reply().cookie == 1);
  ground.image.release();
  CHECK(ground.reply().cookie == 2);
}

TEST_CASE("an error of the only operation under way is judged on the io thread") {
  Ground ground(Ends::when_told);
  ground.image.fail(MemoryImage::Io::flush, ESHUTDOWN);
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.image.release();
  CHECK(ground.ends());
  CHECK(ground.link->state() == device::Link::State::held);
}

TEST_CASE("a reply that left in part from the image's thread goes on with its next byte") {
  Ground ground;
  constexpr std::uint32_t kLength = 32 << 10;
  auto [ours, peer] = tcp_pair(4096);
  MemoryImage image(1u << 20, Ends::when_told);
  auto link = nbd::serve_socket(ground.control.get_executor(), *ground.clock, ground.loop, image, std::move(ours),
                                ground.counters);
  std::swap(ground.peer, peer);
  ground.send(request(Command::write, 1, 0, kLength) + pattern(kLength));
  REQUIRE(ground.eventually([&] { return image.waiting() == 1; }));
  image.release();
  CHECK(ground.reply().cookie == 1);
  ground.send(request(Command::read, 2, 0, kLength));
  REQUIRE(ground.eventually([&] { return image.waiting() == 1; }));
  int first = 0;
  {
    const Busy busy(ground);
    image.release();
    first = unread(ground.peer);
    CHECK(first > 0);
    CHECK(first < static_cast<int>(kLength));
  }
  // The next reply comes behind it.
  ground.send(request(Command::flush, 3));
  REQUIRE(ground.eventually([&] { return image.waiting() == 1; }));
  image.release();
  CHECK(ground.reply().cookie == 2);
  CHECK(ground.receive(kLength) == pattern(kLength));
  CHECK(ground.reply().cookie == 3);
  link->shut();
  CHECK(ground.run(link->idle({ground.clock->now() + kPatience, nullptr})) == Waited::ready);
  link.reset();
  ground.flush_posts();
  std::swap(ground.peer, peer);
}

TEST_CASE("the io thread's replies never split a reply that the image's thread began") {
  Ground ground;
  constexpr std::uint32_t kLength = 32 << 10, kRefused = 20;
  auto [ours, peer] = tcp_pair(4096);
  MemoryImage image(1u << 20, Ends::when_told);
  auto link = nbd::serve_socket(ground.control.get_executor(), *ground.clock, ground.loop, image, std::move(ours),
                                ground.counters);
  std::swap(ground.peer, peer);
  for (int round = 0; round < 200; ++round) {
    ground.send(request(Command::read, 1, 0, kLength));
    while (image.waiting() == 0) std::this_thread::yield();
    std::thread other([&] { image.release(); });
    for (std::uint32_t i = 0; i < kRefused; ++i) ground.send(request(static_cast<Command>(9), 2));
    other.join();
    for (std::uint32_t i = 0; i <= kRefused; ++i)
      if (ground.reply().cookie == 1) REQUIRE(ground.receive(kLength) == Bytes(kLength));
  }
  link->shut();
  CHECK(ground.run(link->idle({ground.clock->now() + kPatience, nullptr})) == Waited::ready);
  link.reset();
  ground.flush_posts();
  std::swap(ground.peer, peer);
}

TEST_CASE("an operation that ends while its link is shut is answered once before that, or not at all") {
  constexpr int kWhole = nbd::reply_bytes + 512;
  int answered = 0;
  for (int round = 0; round < 200; ++round) {
    Ground ground(Ends::when_told);
    ground.send(request(Command::read, 1, 0, 512));
    while (ground.image.waiting() == 0) std::this_thread::yield();
    std::thread image([&] { ground.image.release(); });
    for (int spin = 0; spin < round; ++spin) std::this_thread::yield();
    ground.link->shut();
    ground.flush_posts();
    const int then = unread(ground.peer);
    image.join();
    ground.flush_posts();
    REQUIRE(unread(ground.peer) == then);
    REQUIRE((then == 0 || then == kWhole));
    REQUIRE(ground.link->in_flight() == 0);
    answered += then != 0;
  }
  CHECK(answered > 0);
}

TEST_CASE("a link that is destroyed while its only operation ends is gone after it") {
  for (int round = 0; round < 100; ++round) {
    Ground ground(Ends::when_told);
    ground.send(request(Command::read, 1, 0, 4096));
    while (ground.image.waiting() == 0) std::this_thread::yield();
    std::thread image([&] { ground.image.release(); });
    ground.link.reset();
    image.join();
    REQUIRE(ground.eventually([&] { return ground.loop.sessions == 0; }));
  }
}

}  // namespace corbd::test
