// What the tests of sessions stand on: a session on one end of a socket pair, and the test as the kernel on the other.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "link.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/memory_image.hpp"

namespace corbd::test {

using Bytes = std::vector<std::byte>;
using nbd::Command;

/// Every wait of these tests ends by then; none is expected to come near.
inline constexpr std::chrono::seconds kPatience{20};

inline Bytes request(Command command, std::uint64_t cookie, std::uint64_t offset = 0, std::uint32_t length = 0,
                     std::uint16_t flags = 0) {
  Bytes out;
  const auto put = [&](std::uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
      out.push_back(static_cast<std::byte>(value >> shift & 0xff));
  };
  put(0x25609513, 4);
  put(flags, 2);
  put(static_cast<std::uint16_t>(command), 2);
  put(cookie, 8);
  put(offset, 8);
  put(length, 4);
  return out;
}

inline Bytes pattern(std::size_t size, unsigned seed = 1) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>((i * 31 + seed * 17 + i / 251) & 0xff);
  return out;
}

inline Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

struct GotReply {
  std::uint64_t cookie = 0;
  std::uint32_t error = 0;
};

/// A peer that is in the middle of sending more than the socket takes: the kernel's thread in sendmsg(2).
class MidSend {
 public:
  static constexpr std::size_t kBytes = 24u << 20;
  explicit MidSend(int socket)
      : thread_([this, socket] {
          const Bytes bytes(1u << 20);
          for (ssize_t now = 1; now > 0 && sent_ < kBytes; sent_ += static_cast<std::size_t>(std::max<ssize_t>(now, 0)))
            now = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
          done_.set_value(sent_);
        }) {
    pollfd room{socket, POLLOUT, 0};
    REQUIRE(test::eventually([&] { return ::poll(&room, 1, 0) == 0; }));
  }
  ~MidSend() { thread_.join(); }
  MidSend(const MidSend&) = delete;
  MidSend& operator=(const MidSend&) = delete;
  /// Soon, and without an error.
  bool sends_all() { return done_.get_future().get() >= kBytes; }

 private:
  std::size_t sent_ = 0;
  std::promise<std::size_t> done_;
  std::thread thread_;
};

class Ground {
 public:
  explicit Ground(MemoryImage::Ends ends = MemoryImage::Ends::at_once, std::uint64_t budget = 64u << 20,
                  std::uint32_t max_request = 1u << 20, bool read_only = false, duration slow = {})
      : image(1u << 20, ends),
        clock(make_real_clock(control.get_executor())),
        counters(slow),
        loop(budget, max_request, max_request) {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    peer = std::move(pair->second);
    link = nbd::serve_socket(control.get_executor(), *clock, loop, image, std::move(pair->first), counters, read_only,
                             [this] { ++stopped; });
  }
  ~Ground() {
    image.set_ends(MemoryImage::Ends::at_once);
    if (!link) return;
    link->shut();
    eventually([this] {
      image.release();
      return link->in_flight() == 0 && link->state() != device::Link::State::serving;
    });
  }

  void send(const Bytes& bytes) const { send(bytes, bytes.size()); }
  void send(const Bytes& bytes, std::size_t step) const {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(peer.get(), bytes.data() + at, std::min(step, bytes.size() - at), MSG_NOSIGNAL);
      REQUIRE(sent > 0);
      at += static_cast<std::size_t>(sent);
    }
  }
  /// Fewer only when the stream ended or nothing comes within the time.
  Bytes receive(std::size_t size, std::chrono::milliseconds within = kPatience) const {
    Bytes out(size);
    std::size_t got = 0;
    while (got < size) {
      pollfd poll{peer.get(), POLLIN, 0};
      if (::poll(&poll, 1, static_cast<int>(within.count())) <= 0) break;
      const ssize_t now = ::recv(peer.get(), out.data() + got, size - got, 0);
      if (now <= 0) break;
      got += static_cast<std::size_t>(now);
    }
    out.resize(got);
    return out;
  }
  GotReply reply() const {
    const Bytes raw = receive(nbd::reply_bytes);
    REQUIRE(raw.size() == nbd::reply_bytes);
    const auto number = [&](std::size_t at, std::size_t bytes) {
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint64_t>(raw[at + i]);
      return value;
    };
    REQUIRE(number(0, 4) == 0x67446698);
    return {number(8, 8), static_cast<std::uint32_t>(number(4, 4))};
  }
  /// The error of the one reply to this.
  std::uint32_t ask(const Bytes& bytes, std::uint64_t cookie) const {
    send(bytes);
    const GotReply got = reply();
    REQUIRE(got.cookie == cookie);
    return got.error;
  }
  /// The stream ends, without another byte.
  bool ends() const {
    pollfd poll{peer.get(), POLLIN, 0};
    char byte;
    return ::poll(&poll, 1, 20000) == 1 && ::recv(peer.get(), &byte, 1, 0) <= 0;
  }
  /// Nothing to read now. Only says something after another event of what serves it.
  bool silent() const {
    char byte;
    return ::recv(peer.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
  }
  bool eventually(const std::function<bool()>& condition) { return test::eventually(control, condition); }
  /// The io thread has done all that was posted to it before.
  void flush_posts() {
    std::promise<void> done;
    asio::post(loop.io(), [&] { done.set_value(); });
    REQUIRE(done.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  template <class T>
  T run(task<T> work) {
    std::optional<T> out;
    asio::co_spawn(control, std::move(work), [&](std::exception_ptr failed, T value) {
      if (failed) std::rethrow_exception(failed);
      out = std::move(value);
    });
    REQUIRE(eventually([&] { return out.has_value(); }));
    return std::move(*out);
  }
  Waited drain() { return run(link->drain({clock->now() + kPatience, nullptr})); }
  Waited ended() { return run(link->ended({clock->now() + kPatience, nullptr})); }
  Waited idle() { return run(link->idle({clock->now() + kPatience, nullptr})); }

  MemoryImage image;
  asio::io_context control;
  std::unique_ptr<Clock> clock;
  nbd::Counters counters;
  nbd::IoLoop loop;
  Fd peer;
  std::unique_ptr<nbd::NbdLink> link;
  int stopped = 0;
};

}  // namespace corbd::test
