// A server of a link that dies by SIGKILL at any moment, and another that goes on where it was: a client with many
// requests in flight gets every answer, once, whole and true.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <random>

#include "corbd/keeper/keeper.hpp"
#include "ground.hpp"
#include "keeping.hpp"

namespace corbd::test {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kRegions = 48, kRegion = 256 << 10;
constexpr std::size_t kImage = kRegions * kRegion;
constexpr std::uint32_t kDevice = 7;
const std::string kBackend = "a volume";

/// The cluster: what it has outlives every server. Operations take effect late, in any order, on threads of its own.
class SharedImage final : public image::Image {
 public:
  SharedImage(std::byte* bytes, unsigned seed) : bytes_(bytes), random_(seed), thread_([this] { work(); }) {
    thread_.detach();  // it ends with the process
  }
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return kImage; }
  bool read_only() const override { return false; }
  bool exclusive_lock() const override { return true; }
  std::string client() const override { return {}; }
  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override {
    run(op, [=, this] { std::memcpy(into.data(), bytes_ + offset, into.size()); });
  }
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override {
    run(op, [=, this] { std::memcpy(bytes_ + offset, from.data(), from.size()); });
  }
  void flush(image::Op& op) override {
    run(op, [] {});
  }
  void discard(image::Op& op, std::uint64_t offset, std::uint64_t length) override {
    run(op, [=, this] { std::memset(bytes_ + offset, 0, length); });
  }
  void write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) override { discard(op, offset, length); }

  task<result<>> refresh(Until) override { co_return result<>(); }
  task<result<image::Ownership>> ownership(Until) override { co_return image::Ownership(); }
  task<result<>> break_dead_lock(std::string, std::int64_t, Until) override { co_return result<>(); }
  task<result<>> acquire_lock(Until) override { co_return result<>(); }
  task<result<>> release_lock(Until) override { co_return result<>(); }
  task<result<bool>> has_data(Until) override { co_return true; }
  task<result<std::optional<std::string>>> metadata(std::string, Until) override {
    co_return std::optional<std::string>();
  }
  task<result<std::map<std::string, std::string>>> metadata_below(std::string, Until) override {
    co_return std::map<std::string, std::string>();
  }
  task<result<>> set_metadata(std::string, std::string, Until) override { co_return result<>(); }
  task<result<>> remove_metadata(std::string, Until) override { co_return result<>(); }
  task<result<>> close(Until) override { co_return result<>(); }

 private:
  struct Job {
    image::Op* op;
    std::function<void()> effect;
  };
  void run(image::Op& op, std::function<void()> effect) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({&op, std::move(effect)});
    some_.notify_one();
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      some_.wait(lock, [this] { return !jobs_.empty(); });
      const std::size_t which = random_() % jobs_.size();
      std::swap(jobs_[which], jobs_.back());
      const Job job = std::move(jobs_.back());
      jobs_.pop_back();
      const bool slow = random_() % 16 == 0;
      lock.unlock();
      if (slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
      job.effect();
      job.op->done(job.op, 0);
      lock.lock();
    }
  }

  const image::Key key_{"fsid", 1, "", "shared", 0};
  std::byte* bytes_;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable some_;
  std::vector<Job> jobs_;
  std::thread thread_;
};

[[noreturn]] void refuse_to_serve(const std::string& why) {
  std::fprintf(stderr, "the server cannot go on: %s\n", why.c_str());
  ::_exit(3);
}

/// The server: never returns. `fresh` is the link of the first one.
[[noreturn]] void serve(Fd keeper_socket, std::byte* bytes, unsigned seed, Fd fresh) {
  keeper::Client keep(std::move(keeper_socket));
  auto held = keep.take();
  if (!held) refuse_to_serve(held.error().text);
  SharedImage image(bytes, seed);
  asio::io_context control;
  const auto clock = make_real_clock(control.get_executor());
  nbd::Probe probe;
  nbd::IoLoop loop(16u << 20, 1u << 20, 1u << 20, nbd::kKeptBuffers, &keep);
  std::unique_ptr<nbd::Link> link;
  const auto ended = [] { ::_exit(4); };
  if (held->links.empty()) {
    link = std::make_unique<nbd::Link>(control.get_executor(), *clock, loop, image, false, std::move(fresh), Fd(),
                                       ended, probe);
    link->keep(kDevice, kBackend);
  } else {
    nbd::Expected expected{kDevice, kBackend, {kImage, false, 1u << 20}, {}};
    std::vector<std::shared_ptr<const nbd::OldArena>> memory;
    for (auto& one : held->memory) {
      auto opened = nbd::OldArena::open(keep, one.token, std::move(one.file));
      if (!opened) refuse_to_serve(opened.error().text);
      memory.push_back(*opened);
      expected.arenas.emplace_back(one.token, (*opened)->bytes().size());
    }
    if (held->links.size() != 1) refuse_to_serve("there are several links");
    auto owed = nbd::read_ledger(held->links[0].ledger.get(), expected);
    if (!owed) refuse_to_serve(owed.error().text);
    auto left = std::make_unique<nbd::Left>();
    for (const auto& one : memory)
      if (one->token() == owed->arena) left->arena = one;
    left->keep = &keep;
    left->owed = std::move(*owed);
    left->device = kDevice;
    left->backend = kBackend;
    left->token = held->links[0].link.token;
    memory.clear();
    link = std::make_unique<nbd::Link>(control.get_executor(), *clock, loop, image, false,
                                       std::move(held->links[0].socket), Fd(), ended, probe, std::move(left));
  }
  const auto work = asio::make_work_guard(control);
  control.run();
  ::_exit(5);
}

/// The client, as the kernel is one: it sends a request once, and checks every byte of every answer.
class Peer {
 public:
  Peer(int socket, unsigned seed) : socket_(socket), random_(seed), model_(kImage), busy_(kRegions) {}

  void more(bool new_requests) {
    while (new_requests && waiting_.size() < kRegions && out_.size() - out_at_ < (64u << 10)) ask();
    push();
    pull();
  }
  bool quiet() const { return waiting_.empty() && out_at_ == out_.size() && wrong_.empty(); }
  std::size_t waiting() const { return waiting_.size(); }
  const std::string& wrong() const { return wrong_; }
  std::uint64_t answered() const { return answered_; }
  bool wants_to_send() const { return out_at_ < out_.size(); }

 private:
  struct Asked {
    Command command;
    std::size_t region;
    std::uint64_t offset;
    std::uint32_t length, error;
  };

  std::uint32_t below(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % most); }

  void ask() {
    std::size_t region = below(kRegions);
    while (busy_[region]) region = (region + 1) % kRegions;
    static constexpr std::array kCommands{Command::read,         Command::read,  Command::read,
                                          Command::write,        Command::write, Command::write,
                                          Command::write_zeroes, Command::trim,  Command::flush};
    Asked asked{kCommands.at(below(kCommands.size())), region, region * kRegion, 0, 0};
    if (asked.command != Command::flush) {
      asked.length = below(4) == 0 ? 1 + below(kRegion) : 512 * (1 + below(16));
      asked.offset += below(static_cast<std::uint32_t>(kRegion - asked.length + 1));
    }
    // Now and then one that is refused; a payload of it is skipped.
    const bool refused = asked.command != Command::flush && below(20) == 0;
    if (refused) asked.offset = kImage, asked.error = nbd::wire_einval;
    const std::uint64_t cookie = ++cookies_;
    out_ = out_ + request(asked.command, cookie, asked.offset, asked.length);
    if (asked.command == Command::write) {
      const Bytes data = pattern(asked.length, below(1000));
      out_ = out_ + data;
      if (!refused) std::copy(data.begin(), data.end(), model_.begin() + static_cast<std::ptrdiff_t>(asked.offset));
    } else if (!refused && (asked.command == Command::trim || asked.command == Command::write_zeroes)) {
      std::fill_n(model_.begin() + static_cast<std::ptrdiff_t>(asked.offset), asked.length, std::byte{0});
    }
    busy_[region] = true;
    waiting_.emplace(cookie, asked);
  }

  /// In pieces of any length, so that a server dies with a part of a header or of a payload.
  void push() {
    while (out_at_ < out_.size()) {
      const std::size_t piece = std::min<std::size_t>(out_.size() - out_at_, 1 + below(below(3) == 0 ? 40 : 40000));
      const ssize_t sent = ::send(socket_, out_.data() + out_at_, piece, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) wrong("the stream does not take requests any more");
      if (sent <= 0) return;
      out_at_ += static_cast<std::size_t>(sent);
    }
    out_.clear();
    out_at_ = 0;
  }

  void pull() {
    std::byte buffer[1 << 16];
    for (int reads = 0; reads < 4; ++reads) {
      const ssize_t got = ::recv(socket_, buffer, 1 + below(below(3) == 0 ? 20 : sizeof buffer), MSG_DONTWAIT);
      if (got == 0) wrong("the stream has ended");
      if (got <= 0) break;
      in_.insert(in_.end(), buffer, buffer + got);
    }
    std::size_t at = 0;
    while (wrong_.empty() && in_.size() - at >= nbd::reply_bytes) {
      const std::size_t used = answer(at);
      if (used == 0) break;
      at += used;
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  /// How many bytes the reply that begins there has; 0 if it is not whole yet.
  std::size_t answer(std::size_t at) {
    const auto number = [&](std::size_t from, std::size_t bytes) {
      std::uint64_t value = 0;
      for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<std::uint64_t>(in_[at + from + i]);
      return value;
    };
    if (number(0, 4) != 0x67446698) return wrong("what comes is no reply"), 0;
    const auto place = waiting_.find(number(8, 8));
    if (place == waiting_.end()) return wrong("an answer to nothing, or a second one"), 0;
    const Asked& asked = place->second;
    if (number(4, 4) != asked.error) return wrong("another error than expected: " + std::to_string(number(4, 4))), 0;
    const bool data = asked.command == Command::read && asked.error == 0;
    const std::size_t size = nbd::reply_bytes + (data ? asked.length : 0);
    if (in_.size() - at < size) return 0;
    if (data && !std::equal(in_.begin() + static_cast<std::ptrdiff_t>(at + nbd::reply_bytes),
                            in_.begin() + static_cast<std::ptrdiff_t>(at + size),
                            model_.begin() + static_cast<std::ptrdiff_t>(asked.offset)))
      return wrong("a read has wrong data"), 0;
    busy_[asked.region] = false;
    waiting_.erase(place);
    ++answered_;
    return size;
  }

  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  int socket_;
  std::mt19937 random_;
  Bytes model_, out_, in_;
  std::size_t out_at_ = 0;
  std::vector<bool> busy_;
  std::map<std::uint64_t, Asked> waiting_;
  std::uint64_t cookies_ = 0, answered_ = 0;
  std::string wrong_;
};

/// What the deaths left, to know that they came at every place.
struct Left {
  int partly = 0, filling = 0, answered = 0, part_of_header = 0, skipping = 0, unanswered = 0;
  void look(const keeper::Store& store) {
    for (const auto& one : store.holdings().links) {
      nbd::Expected expected{kDevice, kBackend, {kImage, false, 1u << 20}, {}};
      for (const auto& memory : store.holdings().memory) expected.arenas.emplace_back(memory.token, nbd::Arena::kBytes);
      const auto owed = nbd::read_ledger(one.ledger.get(), expected);
      if (!owed) continue;
      part_of_header += owed->input.empty() ? 0 : 1;
      skipping += owed->skip_left > 0 ? 1 : 0;
      bool known = false;
      for (const auto& slot : owed->slots) {
        partly += slot.sent > 0 ? 1 : 0;
        filling += slot.filling ? 1 : 0;
        known |= slot.answered && slot.sent == 0;
      }
      answered += known ? 1 : 0;
      unanswered += static_cast<int>(owed->slots.size());
    }
  }
};

int kills_wanted() {
  const char* given = std::getenv("CORBD_KILLS");
  return given != nullptr ? std::atoi(given) : 300;
}

}  // namespace

TEST_CASE("a client whose server is killed at any moment gets every answer once and true from the next ones") {
  auto* const bytes =
      static_cast<std::byte*>(::mmap(nullptr, kImage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(bytes != MAP_FAILED);
  auto pair = nbd::make_socket_pair();
  REQUIRE(pair);
  // So that replies leave in parts.
  const int small = 96 << 10;
  for (const int fd : {pair->first.get(), pair->second.get()})
    REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
  Peer peer(pair->second.get(), 1);
  keeper::Store store;
  std::mt19937 random(2);
  Left left;
  const int kills = kills_wanted();
  for (int kill = 0; kill <= kills; ++kill) {
    auto line = keeper::make_pair();
    REQUIRE(line);
    store.give_all(line->first.get());
    const pid_t server = ::fork();
    REQUIRE(server >= 0);
    if (server == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also after a check that fails
      const int quiet = ::open("/dev/null", O_WRONLY);
      if (std::getenv("CORBD_KILLS_LOUD") == nullptr) ::dup2(quiet, STDERR_FILENO);
      serve(std::move(line->second), bytes, static_cast<unsigned>(kill), Fd(::dup(pair->first.get())));
    }
    line->second.reset();
    const bool last = kill == kills;
    INFO("after " << kill << " kills and " << peer.answered() << " answers");
    const auto patience = SteadyClock::now() + kPatience;
    const auto answered = peer.answered();
    auto until = SteadyClock::time_point::max();
    // Some die right at their start, the others under load.
    const std::uint64_t wanted = random() % 8 == 0 ? 0 : answered + 1;
    for (;;) {
      const auto now = SteadyClock::now();
      REQUIRE(now < patience);
      store.hear(line->first.get());
      peer.more(!last);
      if (!peer.wrong().empty()) break;
      if (last && peer.quiet()) break;
      const bool held = !store.holdings().links.empty();
      if (!last && held && peer.answered() >= wanted && until == SteadyClock::time_point::max())
        until = now + std::chrono::microseconds(random() % 4000);
      if (now >= until) break;
      int status = 0;
      if (::waitpid(server, &status, WNOHANG) == server) FAIL("the server ended by itself: " << status);
    }
    ::kill(server, SIGKILL);
    REQUIRE(::waitpid(server, nullptr, 0) == server);
    store.hear(line->first.get());
    REQUIRE(peer.wrong() == "");
    if (!last) left.look(store);
    REQUIRE(store.holdings().links.size() == 1);
  }
  ::munmap(bytes, kImage);
  WARN(kills << " kills, " << peer.answered() << " answers; unanswered at the kills " << left.unanswered
             << ", within a reply " << left.partly << ", within a payload " << left.filling << ", with a known reply "
             << left.answered << ", with unread input " << left.part_of_header << ", within a skipped payload "
             << left.skipping);
  CHECK(left.partly > 0);
  CHECK(left.filling > 0);
  CHECK(left.answered > 0);
}

}  // namespace corbd::test
