// Several io threads: which link is whose, and that all together have no more than one has.
#include "io_loops.hpp"

#include <algorithm>

#include "corbd/nbd/devices.hpp"
#include "ground.hpp"
#include "support/folder.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;
using State = device::Link::State;
constexpr std::uint32_t kShort = 64 << 10, kLong = 256 << 10;

struct Disk {
  explicit Disk(Ends ends) : image(1u << 20, ends) {}
  void send(const Bytes& bytes) const {
    REQUIRE(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  /// That many bytes have come within the time.
  bool gets(std::size_t bytes, std::chrono::milliseconds within = kPatience) const {
    Bytes into(bytes);
    for (std::size_t got = 0; got < bytes;) {
      pollfd poll{peer.get(), POLLIN, 0};
      if (::poll(&poll, 1, static_cast<int>(within.count())) <= 0) return false;
      const ssize_t now = ::recv(peer.get(), into.data() + got, bytes - got, 0);
      if (now <= 0) return false;
      got += static_cast<std::size_t>(now);
    }
    return true;
  }
  bool gets_replies(std::size_t count) const { return gets(count * nbd::reply_bytes); }

  MemoryImage image;
  Fd peer;
  std::unique_ptr<device::Link> link;
};

/// Disks and their control thread, which is the test. The io threads that serve them end before.
class Disks {
 public:
  /// `serve` gives the disk its link and its peer.
  template <class Serve>
  Disk& add(Ends ends, Serve serve) {
    Disk& disk = *all.emplace_back(std::make_unique<Disk>(ends));
    serve(disk);
    return disk;
  }
  /// Ends and destroys the links.
  void end() {
    for (auto& disk : all) {
      if (!disk->link) continue;
      disk->image.set_ends(Ends::at_once);
      disk->link->shut();
      eventually([&] {
        disk->image.release();
        return disk->link->in_flight() == 0 && disk->link->state() != State::serving;
      });
      // As the kernel does when it has seen the end.
      disk->peer.reset();
      disk->link.reset();
    }
  }
  bool eventually(const std::function<bool()>& condition) { return test::eventually(control, condition); }

  asio::io_context control;
  std::unique_ptr<Clock> clock = make_real_clock(control.get_executor());
  std::vector<std::unique_ptr<Disk>> all;
};

/// Destroyed before the io threads.
struct Ending {
  explicit Ending(Disks& of) : disks(of) {}
  ~Ending() { disks.end(); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  Disks& disks;
};

class Node {
 public:
  explicit Node(std::size_t threads, std::uint64_t budget = 64u << 20) : loops(threads, budget, 1u << 20, kShort) {}
  Disk& serve(Ends ends = Ends::at_once) {
    return disks.add(ends, [this](Disk& disk) {
      auto pair = nbd::make_socket_pair();
      REQUIRE(pair);
      disk.peer = std::move(pair->second);
      disk.link = nbd::serve_socket(disks.control.get_executor(), *disks.clock, loops.next(), disk.image,
                                    std::move(pair->first), counted);
    });
  }
  std::vector<std::uint64_t> served() const {
    std::vector<std::uint64_t> out;
    for (const auto& loop : loops.all()) out.push_back(loop->serving);
    return out;
  }
  device::Counters counters() const {
    device::Counters now;
    loops.add_to(now);
    return now;
  }

  Disks disks;
  nbd::Counters counted;
  nbd::IoLoops loops;
  const Ending ending{disks};
};

/// Holds an io thread until destroyed.
class Held {
 public:
  explicit Held(nbd::IoLoop& loop) {
    std::promise<void> entered;
    asio::post(loop.io(), [&entered, go = go_.get_future().share()] {
      entered.set_value();
      go.wait_for(kPatience);
    });
    REQUIRE(entered.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  ~Held() { go_.set_value(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::promise<void> go_;
};

/// Runs it there.
template <class Work>
void on(nbd::IoLoop& loop, Work work) {
  std::promise<void> done;
  asio::post(loop.io(), [&] {
    work();
    done.set_value();
  });
  REQUIRE(done.get_future().wait_for(kPatience) == std::future_status::ready);
}

Bytes reads(unsigned count, std::uint32_t length) {
  Bytes out;
  for (unsigned i = 0; i < count; ++i) out = out + request(Command::read, i, 0, length);
  return out;
}

}  // namespace

TEST_CASE("links are spread over the io threads, and the next one takes the place of one that ended") {
  Node node(3);
  for (int i = 0; i < 7; ++i) node.serve();
  CHECK(node.served() == std::vector<std::uint64_t>{3, 2, 2});
  // The second and the fifth: both of the second thread.
  for (const std::size_t ended : {1, 4}) {
    auto& link = *node.disks.all[ended]->link;
    link.shut();
    REQUIRE(node.disks.eventually([&] { return link.state() == State::closed; }));
  }
  CHECK(node.served() == std::vector<std::uint64_t>{3, 0, 2});
  node.serve();
  node.serve();
  CHECK(node.served() == std::vector<std::uint64_t>{3, 2, 2});
}

TEST_CASE("a busy io thread holds up no device of another one, and its own stay with it") {
  Node node(2);
  const Disk& first = node.serve();
  const Disk& second = node.serve();
  {
    const Held held(*node.loops.all()[0]);
    for (int i = 0; i < 10; ++i) {
      second.send(request(Command::flush, 1));
      REQUIRE(second.gets(nbd::reply_bytes, kPatience / 2));  // less than the other one is held
    }
    first.send(request(Command::flush, 1));
    CHECK_FALSE(first.gets(nbd::reply_bytes, std::chrono::milliseconds(0)));
    CHECK(first.image.calls().empty());
  }
  CHECK(first.gets_replies(1));
}

TEST_CASE("all io threads together have the budget and the spare memory of one", "[rule:23]") {
  constexpr std::uint64_t total = 512ull << 20;
  const std::size_t threads = GENERATE(1u, 2u, 3u, 16u);
  const nbd::IoLoops loops(threads, total, 32u << 20);
  REQUIRE(loops.all().size() == threads);
  device::Counters counters;
  loops.add_to(counters);
  CHECK(counters.budget <= total);
  CHECK(counters.budget > total - threads);
  constexpr std::size_t size = 1 << 20;
  std::size_t kept = 0;
  for (const auto& loop : loops.all()) {
    on(*loop, [&] {
      std::vector<std::byte*> peak;
      for (std::size_t i = 0; i < nbd::kKeptBuffers / size / threads + 4; ++i) peak.push_back(loop->buffers.take(size));
      for (auto* buffer : peak) loop->buffers.give_back(buffer, size);
      loop->buffers.look_back();
      loop->buffers.look_back();
      while (loop->buffers.trim(SIZE_MAX)) {
      }
      kept += loop->buffers.resident();
    });
  }
  CHECK(kept <= nbd::kKeptBuffers);
  CHECK(kept > nbd::kKeptBuffers - threads * size);
}

TEST_CASE("a request that is longer than its io thread's part of the budget is answered, and starves no device") {
  // 64 KiB for each thread.
  Node node(4, 4 * kShort);
  for (int i = 0; i < 4; ++i) node.serve(Ends::when_told);
  Disk& greedy = *node.disks.all[0];
  Disk& modest = node.serve(Ends::when_told);
  REQUIRE(node.served() == std::vector<std::uint64_t>{2, 1, 1, 1});
  greedy.send(reads(1, kShort) + reads(1, kLong));
  REQUIRE(node.disks.eventually(
      [&] { return greedy.image.waiting() == 1 && node.counted.of(device::Count::budget_waits) == 1; }));
  modest.send(reads(1, kShort));
  REQUIRE(node.disks.eventually([&] { return modest.image.waiting() == 1; }));
  greedy.image.release();
  CHECK(greedy.gets(nbd::reply_bytes + kShort));
  REQUIRE(node.disks.eventually([&] { return greedy.image.waiting() == 1; }));
  CHECK(node.counters().in_flight == kLong + kShort);
  greedy.image.release();
  CHECK(greedy.gets(nbd::reply_bytes + kLong));
}

TEST_CASE("the counters of several io threads add up") {
  Node node(2);
  for (int i = 0; i < 3; ++i) node.serve(Ends::when_told).send(reads(2, kShort));
  REQUIRE(node.disks.eventually([&] {
    return std::ranges::all_of(node.disks.all, [](const auto& disk) { return disk->image.waiting() == 2; });
  }));
  const auto now = node.counters();
  CHECK(now.budget == 64u << 20);
  CHECK(now.reserved == 3 * kShort);
  CHECK(now.in_flight == 6 * kShort);
  CHECK(now.buffers == 6 * kShort);
  CHECK(node.counted.read().requests[0] == 6);
}

TEST_CASE("a drain of all links answers what was read, whichever io thread has it") {
  constexpr unsigned kAtOnce = 16;
  const auto ends = GENERATE(Ends::when_told, Ends::elsewhere);
  Node node(3);
  for (int i = 0; i < 6; ++i) {
    Bytes batch;
    for (unsigned at = 0; at < kAtOnce; ++at) batch = batch + request(Command::write, at, 512 * at, 512) + pattern(512);
    node.serve(ends).send(batch);
  }
  auto& all = node.disks.all;
  const auto read = [](const auto& disk) { return disk->image.calls().size() == kAtOnce; };
  REQUIRE(node.disks.eventually([&] { return std::ranges::all_of(all, read); }));
  std::size_t drained = 0;
  for (auto& disk : all)
    asio::co_spawn(node.disks.control, disk->link->drain({node.disks.clock->now() + kPatience, nullptr}),
                   [&](std::exception_ptr, Waited how) { drained += how == Waited::ready ? 1 : 0; });
  for (auto& disk : all) disk->image.release();
  CHECK(node.disks.eventually([&] { return drained == all.size(); }));
  for (auto& disk : all) {
    CHECK(disk->gets_replies(kAtOnce));
    CHECK(disk->link->state() == State::serving);
  }
}

TEST_CASE("every io thread of the devices has a share of the budget, and the devices report the total") {
  Disks disks;
  const Folder empty;
  nbd::Config config;
  config.sysfs = empty.path();
  config.io_threads = 2;
  config.bytes_in_flight = 2 * kShort;
  config.reserved_bytes = kShort;
  const auto devices = nbd::make_devices(disks.control.get_executor(), *disks.clock, std::move(config));
  const Ending ending(disks);
  for (int i = 0; i < 2; ++i) {
    disks
        .add(Ends::when_told,
             [&](Disk& disk) {
               auto link = devices->serve(disk.image, false, [] {});
               REQUIRE(link);
               disk.link = std::move(*link);
               disk.peer = std::move(static_cast<nbd::NbdLink&>(*disk.link).kernel_end()->socket);
             })
        .send(reads(2, kShort));
  }
  REQUIRE(disks.eventually([&] { return devices->counters().of(device::Count::budget_waits) == 2; }));
  for (const auto& disk : disks.all) CHECK(disk->image.waiting() == 1);
  const auto now = devices->counters();
  CHECK(now.budget == 2 * kShort);
  CHECK(now.reserved == 2 * kShort);
  CHECK(now.in_flight == 2 * kShort);
  for (auto& disk : disks.all) {
    disk->image.release();
    REQUIRE(disks.eventually([&] { return disk->image.waiting() == 1; }));
    disk->image.release();
    CHECK(disk->gets(2 * (nbd::reply_bytes + kShort)));
  }
}

}  // namespace corbd::test
