// When a session lets somebody keep its stream, and when it takes that back.
#include "corbd/device/fd_store.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <algorithm>

#include <mutex>
#include <set>

#include "ground.hpp"
#include "inherited_session.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;
using State = device::Link::State;

/// Writes down what it hears. Any thread.
class Diary final : public device::FdStore {
 public:
  result<> hold(const Link& link, int, int ledger) override {
    const std::lock_guard lock(mutex_);
    if (refuses) return Error{errc::unavailable, "the keeper does not read"};
    held.push_back(link);
    ledger_ = Fd(::fcntl(ledger, F_DUPFD_CLOEXEC, 3));
    return {};
  }
  result<> hold_memory(std::uint64_t token, int file) override {
    if (refuses_memory) return Error{errc::unavailable, "the keeper does not read"};
    memory = token;
    arena = Fd(::fcntl(file, F_DUPFD_CLOEXEC, 3));
    return {};
  }
  result<> drop(std::uint64_t token) override {
    const std::lock_guard lock(mutex_);
    if (refuses) return Error{errc::unavailable, "the keeper does not read"};
    dropped.push_back(token);
    return {};
  }
  std::size_t count(std::vector<std::uint64_t> Diary::* which) {
    const std::lock_guard lock(mutex_);
    return (this->*which).size();
  }
  std::size_t holds() {
    const std::lock_guard lock(mutex_);
    return held.size();
  }
  int ledger() const { return ledger_.get(); }

  std::atomic<bool> refuses{false};
  bool refuses_memory = false;
  std::vector<Link> held;
  std::vector<std::uint64_t> dropped;
  std::uint64_t memory = 0;
  Fd arena;

 private:
  std::mutex mutex_;
  Fd ledger_;
};

struct KeptGround {
  explicit KeptGround(Diary& to) : keep(to), image(1u << 20), loop(64u << 20, 1u << 20, 1u << 20, 1u << 20, &to) {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    peer = std::move(pair->second);
    socket = Fd(::dup(pair->first.get()));
    serve(std::move(pair->first), nullptr);
  }
  ~KeptGround() {
    end();
    std::promise<void> done;
    asio::post(loop.io(), [&] { done.set_value(); });
    done.get_future().wait();
  }
  void serve(Fd end, std::unique_ptr<nbd::InheritedSession> left) {
    link = std::make_unique<nbd::NbdLink>(control.get_executor(), *clock, loop, image, false, std::move(end), Fd(),
                                          std::function<void()>(), counters, std::move(left));
  }
  void end() {
    image.set_ends(Ends::at_once);
    if (!link) return;
    link->shut();
    eventually(control, [this] {
      image.release();
      return link->in_flight() == 0 && link->state() != State::serving;
    });
    link.reset();
  }
  bool answers(std::uint64_t cookie) const {
    const Bytes asked = request(Command::flush, cookie);
    if (::send(peer.get(), asked.data(), asked.size(), MSG_NOSIGNAL) < 0) return false;
    pollfd poll{peer.get(), POLLIN, 0};
    std::byte reply[nbd::reply_bytes];
    return ::poll(&poll, 1, 10000) == 1 && ::recv(peer.get(), reply, sizeof reply, MSG_WAITALL) == sizeof reply;
  }
  /// What the dead session of a link with this ledger left.
  std::unique_ptr<nbd::InheritedSession> left() {
    nbd::Expected expected{3, "volume", {1u << 20, false, 1u << 20}, {{keep.memory, nbd::Arena::kBytes}}};
    auto owed = nbd::read_ledger(keep.ledger(), expected);
    REQUIRE(owed);
    auto out = std::make_unique<nbd::InheritedSession>();
    out->fd_store = &keep;
    out->owed = std::move(*owed);
    out->arena = nbd::OldArena::open(keep, keep.memory, Fd(::dup(keep.arena.get()))).value();
    out->device = 3;
    out->backend = "volume";
    out->token = keep.held.back().token;
    return out;
  }

  Diary& keep;
  MemoryImage image;
  asio::io_context control;
  std::unique_ptr<Clock> clock = make_real_clock(control.get_executor());
  nbd::Counters counters;
  nbd::IoLoop loop;
  Fd peer, socket;
  std::unique_ptr<nbd::NbdLink> link;
};

}  // namespace

TEST_CASE("a link is kept once the kernel has it, and dropped when it ends") {
  Diary keep;
  KeptGround ground(keep);
  CHECK(ground.answers(1));
  CHECK(keep.holds() == 0);
  ground.link->keep(3, "volume");
  REQUIRE(eventually([&] { return keep.holds() == 1; }));
  CHECK(keep.held[0].device == 3);
  CHECK(keep.held[0].backend == "volume");
  ground.end();
  ground.peer.reset();
  REQUIRE(eventually([&] { return keep.count(&Diary::dropped) == 1; }));
  CHECK(keep.dropped[0] == keep.held[0].token);
}

TEST_CASE("a link that is being ended is kept until the kernel has ended it, and no session can resume it",
          "[failure:158]") {
  Diary keep;
  KeptGround ground(keep);
  ground.link->keep(3, "volume");
  REQUIRE(eventually([&] { return keep.holds() == 1; }));
  ground.link->shut();
  std::byte byte;
  REQUIRE(::recv(ground.peer.get(), &byte, 1, 0) == 0);
  CHECK(keep.count(&Diary::dropped) == 0);
  nbd::Expected expected{3, "volume", {1u << 20, false, 1u << 20}, {}};
  CHECK_FALSE(nbd::read_ledger(keep.ledger(), expected));
  ground.peer.reset();
  CHECK(eventually([&] { return keep.count(&Diary::dropped) == 1; }));
}

TEST_CASE("a link is dropped before it is given away, and stays if that fails") {
  Diary keep;
  KeptGround ground(keep);
  ground.link->keep(3, "volume");
  REQUIRE(eventually([&] { return keep.holds() == 1; }));
  const auto give = [&] {
    std::optional<result<Fd>> given;
    const Until until{ground.clock->now() + kPatience, nullptr};
    asio::co_spawn(
        ground.control,
        [](nbd::NbdLink& link, Until by) -> task<result<Fd>> {
          static_cast<void>(co_await link.drain(by));
          co_return co_await link.hand_over(by);
        }(*ground.link, until),
        [&](std::exception_ptr, result<Fd> done) { given = std::move(done); });
    REQUIRE(eventually(ground.control, [&] { return given.has_value(); }));
    return std::move(*given);
  };
  keep.refuses = true;
  CHECK_FALSE(give());
  keep.refuses = false;
  CHECK(give());
  CHECK(keep.dropped == std::vector<std::uint64_t>{keep.held[0].token});
}

TEST_CASE("a link that nobody can keep is served all the same") {
  for (const bool memory : {false, true}) {
    Diary keep;
    keep.refuses_memory = memory;
    keep.refuses = !memory;
    KeptGround ground(keep);
    ground.link->keep(3, "volume");
    CHECK(ground.answers(1));
    CHECK(keep.holds() == 0);
    keep.refuses = false;
  }
}

TEST_CASE("a session that cannot be kept resumes only after the keeper has dropped the old ledger") {
  for (const bool refuses : {false, true}) {
    Diary keep;
    KeptGround before(keep);
    before.link->keep(3, "volume");
    REQUIRE(eventually([&] { return keep.holds() == 1; }));
    auto left = before.left();
    keep.refuses_memory = true;
    KeptGround after(keep);
    after.end();
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    after.peer = std::move(pair->second);
    keep.refuses = refuses;
    after.serve(std::move(pair->first), std::move(left));
    CHECK(after.answers(1) != refuses);
    CHECK(keep.holds() == 1);
    CHECK(std::ranges::count(keep.dropped, keep.held[0].token) == (refuses ? 0 : 1));
    keep.refuses = false;
  }
}

TEST_CASE("a session resumes a dead one's requests, and its ledger replaces the old one") {
  Diary keep;
  KeptGround before(keep);
  before.image.set_ends(Ends::when_told);
  before.link->keep(3, "volume");
  const Bytes asked =
      request(Command::write, 1, 4096, 4096) + pattern(4096) + request(Command::write, 2, 0, 4096) + pattern(1000);
  REQUIRE(::send(before.peer.get(), asked.data(), asked.size(), 0) == static_cast<ssize_t>(asked.size()));
  REQUIRE(eventually([&] { return keep.holds() == 1 && before.image.waiting() == 1; }));
  REQUIRE(eventually([&] {
    int left = 0;
    ::ioctl(before.socket.get(), FIONREAD, &left);
    return left == 0;
  }));
  std::promise<void> still;
  asio::post(before.loop.io(), [&] { still.set_value(); });
  still.get_future().wait();
  const std::uint64_t old = keep.held[0].token;
  // The first session stands still: nothing reads its socket until it gets bytes. It plays dead.
  auto left = before.left(), again = before.left();
  CHECK(left->owed.slots.size() == 2);
  // Copied to its place or not, nobody has said so.
  CHECK(left->owed.slots.back().arrived + left->owed.input.size() == 1000);
  keep.refuses = true;
  {
    // Nobody takes its ledger, so it must not touch the stream.
    MemoryImage image(1u << 20);
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    nbd::IoLoop refused(64u << 20, 1u << 20, 1u << 20, 1u << 20, &keep);
    nbd::NbdLink link(before.control.get_executor(), *before.clock, refused, image, false, std::move(pair->first), Fd(),
                      std::function<void()>(), before.counters, std::move(again));
    REQUIRE(eventually([&] { return link.state() == State::closed; }));
    CHECK(image.calls().empty());
    std::byte byte;
    CHECK(::recv(pair->second.get(), &byte, 1, 0) == 0);
    pair->second.reset();
  }
  keep.refuses = false;
  auto pair = nbd::make_socket_pair();
  REQUIRE(pair);
  KeptGround after(keep);
  after.end();
  after.peer = std::move(pair->second);
  after.serve(std::move(pair->first), std::move(left));
  REQUIRE(eventually([&] { return keep.holds() == 2; }));
  CHECK(keep.held[1].instead_of == old);
  const Bytes more(pattern(4096));
  REQUIRE(::send(after.peer.get(), more.data() + 1000, 3096, 0) == 3096);
  std::set<std::uint64_t> cookies;
  for (int replies = 0; replies < 2; ++replies) {
    std::byte reply[nbd::reply_bytes];
    REQUIRE(::recv(after.peer.get(), reply, sizeof reply, MSG_WAITALL) == sizeof reply);
    cookies.insert(static_cast<std::uint64_t>(reply[15]));
  }
  CHECK(cookies == std::set<std::uint64_t>{1, 2});
  const Bytes content = after.image.content();
  CHECK(Bytes(content.begin(), content.begin() + 4096) == more);
  CHECK(Bytes(content.begin() + 4096, content.begin() + 8192) == more);
  before.image.release();
}

}  // namespace corbd::test
