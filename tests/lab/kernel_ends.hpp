// The kernel's end of links, played by threads, and an agent that gives its links away. No kernel is needed.
#pragma once

#include <arpa/inet.h>
#include <endian.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <thread>

#include "control_plane.hpp"
#include "corbd/handover/handover.hpp"
#include "io_loops.hpp"
#include "link.hpp"

namespace corbd::lab {

inline constexpr std::uint32_t kBlock = 4096, kBlocks = 256;

/// The kernel has an end of every socket, whichever agent has the other.
using KernelEnds = std::map<std::string, Fd>;

/// Real sessions behind devices that nobody but the test knows.
class Devices final : public test::still::Devices {
 public:
  explicit Devices(KernelEnds& kernel) : kernel_(kernel) {}
  void on(executor control, Clock& clock) { control_ = std::move(control), clock_ = &clock; }

  result<std::unique_ptr<device::Link>> serve(image::BlockImage& image, device::ServeOptions,
                                              std::function<void()> on_stopped) override {
    auto pair = nbd::make_socket_pair();
    if (!pair) return pair.error();
    auto link = session_on(image, std::move(pair->first), std::move(on_stopped));
    waiting_[link.get()] = std::move(pair->second);
    return link;
  }
  task<result<std::uint32_t>> connect(device::Link& link, device::ConnectArgs args, Until) override {
    add(args.backend, args.size);
    kernel_[args.backend] = std::move(waiting_.at(&link));
    co_return seen.back().index;
  }
  task<result<>> disconnect(std::uint32_t index, std::string, Until) override {
    const auto place = std::ranges::find(seen, index, &device::Seen::index);
    if (place == seen.end()) co_return result<>();
    kernel_.erase(place->backend);
    seen.erase(place);
    co_return result<>();
  }
  void take(std::uint32_t, std::string backend, Fd socket) override { given_[backend] = std::move(socket); }
  std::unique_ptr<device::Link> resume(std::uint32_t, const std::string& backend, image::BlockImage& image,
                                       device::ServeOptions, std::function<void()> on_stopped) override {
    const auto place = given_.find(backend);
    if (place == given_.end()) return nullptr;
    return session_on(image, std::move(place->second), std::move(on_stopped));
  }

 private:
  std::unique_ptr<device::Link> session_on(image::BlockImage& image, Fd socket, std::function<void()> on_stopped) {
    return nbd::serve_socket(*control_, *clock_, loops_.next(), image, std::move(socket), counters_, false,
                             std::move(on_stopped));
  }
  KernelEnds& kernel_;
  std::optional<executor> control_;
  Clock* clock_ = nullptr;
  nbd::IoLoops loops_{1, 512u << 20, 32u << 20};
  nbd::Counters counters_;
  std::map<const device::Link*, Fd> waiting_;
  std::map<std::string, Fd> given_;
};

struct Node {
  Node(const std::string& dir, KernelEnds& kernel, bool beside)
      : plane(dir, beside, std::make_unique<Devices>(kernel)) {
    devices().on(plane.io.get_executor(), *plane.clock);
  }
  Devices& devices() { return static_cast<Devices&>(*plane.devices); }
  ControlPlane plane;
};

/// One request at a time, each block in its turn, each write one number higher.
class Writer {
 public:
  explicit Writer(int socket) : socket_(socket), thread_([this] { write_all(); }) {}
  /// Reads every block back. How many do not have what was acknowledged last.
  int stop() {
    ends_ = true;
    thread_.join();
    int lost = 0;
    for (std::uint32_t block = 0; block < kBlocks; ++block)
      if (acknowledged_[block] != 0 && exchange(block, false, 0) != acknowledged_[block]) ++lost;
    return lost;
  }
  std::chrono::microseconds longest() const { return longest_; }
  /// Since the last call.
  std::chrono::microseconds take_longest() { return longest_.exchange(std::chrono::microseconds(0)); }
  std::uint64_t writes() const { return number_; }
  bool failed() const { return failed_; }

 private:
  struct [[gnu::packed]] Request {
    std::uint32_t magic = htonl(0x25609513);
    std::uint16_t flags = 0, command = 0;
    std::uint64_t cookie = 0, offset = 0;
    std::uint32_t length = htonl(kBlock);
  };
  struct [[gnu::packed]] Reply {
    std::uint32_t magic = 0, error = 0;
    std::uint64_t cookie = 0;
  };

  void write_all() {
    while (!ends_ && !failed_) {
      const auto block = static_cast<std::uint32_t>(++number_ % kBlocks);
      const auto begun = std::chrono::steady_clock::now();
      exchange(block, true, number_);
      const auto took = std::chrono::steady_clock::now() - begun;
      longest_ = std::max(longest_.load(), std::chrono::duration_cast<std::chrono::microseconds>(took));
      if (!failed_) acknowledged_[block] = number_;
    }
  }
  std::uint64_t exchange(std::uint32_t block, bool write, std::uint64_t number) {
    std::array<std::uint64_t, kBlock / sizeof(std::uint64_t)> data;
    data.fill(number);
    Request request;
    request.command = htons(write ? 1 : 0);
    request.cookie = number;
    request.offset = htobe64(std::uint64_t{block} * kBlock);
    send_all(&request, sizeof request);
    if (write) send_all(data.data(), sizeof data);
    Reply reply;
    receive_all(&reply, sizeof reply);
    if (!write) receive_all(data.data(), sizeof data);
    failed_ = failed_ || ntohl(reply.magic) != 0x67446698 || reply.error != 0 || reply.cookie != number;
    return data.back();
  }
  void send_all(const void* bytes, std::size_t count) {
    failed_ = failed_ || ::send(socket_, bytes, count, MSG_NOSIGNAL) != static_cast<ssize_t>(count);
  }
  void receive_all(void* bytes, std::size_t count) {
    failed_ = failed_ || ::recv(socket_, bytes, count, MSG_WAITALL) != static_cast<ssize_t>(count);
  }

  const int socket_;
  std::atomic<bool> ends_{false};
  std::atomic<bool> failed_{false};
  std::atomic<std::uint64_t> number_{0};
  std::array<std::uint64_t, kBlocks> acknowledged_{};
  std::atomic<std::chrono::microseconds> longest_{std::chrono::microseconds(0)};
  std::thread thread_;
};

/// As the agent that serves does it (lifecycle/ending).
inline task<result<std::size_t>> hand_over(ControlPlane& plane, handover::Giver& giver, const Fd& lock) {
  if (const bool ready = co_await giver.next_answers(30s); !ready) co_return Error{errc::unavailable, "no next agent"};
  if (const bool begun = co_await giver.ask_commit(30s); !begun) co_return Error{errc::unavailable, "no next agent"};
  if (auto quiet = co_await plane.shell.quiesce(); !quiet) co_return quiet.error();
  if (auto begun = co_await giver.hand_over_lock(lock); !begun) co_return begun.error();
  const auto links = co_await plane.shell.hand_over([&giver](device::LinkSocket one) -> task<volume::Taken> {
    const auto given = co_await giver.hand_over(one);
    if (!given) co_return volume::Taken::refused;
    co_return *given ? volume::Taken::served : volume::Taken::later;
  });
  if (auto closed = co_await plane.clusters->shutdown({plane.clock->now() + 10s}); !closed) co_return closed.error();
  if (auto ended = giver.end(); !ended) co_return ended.error();
  co_return links;
}

}  // namespace corbd::lab
