// A server of a link that dies by SIGKILL at any moment, and another that goes on where it was: a client with many
// requests in flight gets every answer, once, whole and true.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <random>
#include <sstream>

#include "corbd/keeper/keeper.hpp"
#include "ground.hpp"
#include "inherited_links.hpp"
#include "strict_client.hpp"

namespace corbd::test {
namespace {

constexpr std::uint32_t kDevice = 7;
constexpr int kMostInHaste = 5;

std::string backend_of(std::size_t link) { return "volume " + std::to_string(link); }

/// The cluster: what it has outlives every server. Operations take effect late, in any order, on threads of its own.
class SharedImage final : public image::BlockImage {
 public:
  SharedImage(const Disk& disk, unsigned seed) : disk_(disk), random_(seed), thread_([this] { work(); }) {
    thread_.detach();  // it ends with the process
  }
  const image::Key& key() const override { return key_; }
  std::uint64_t size() const override { return disk_.size(); }
  bool read_only() const override { return false; }
  void read(image::Op& op, std::uint64_t offset, std::span<std::byte> into) override {
    run(op, [=, this] { std::memcpy(into.data(), disk_.at(offset), into.size()); });
  }
  void write(image::Op& op, std::uint64_t offset, std::span<const std::byte> from) override {
    run(op, [=, this] { std::memcpy(disk_.at(offset), from.data(), from.size()); });
  }
  void flush(image::Op& op) override {
    run(op, [] {});
  }
  void discard(image::Op& op, std::uint64_t offset, std::uint64_t length) override {
    run(op, [=, this] { disk_.zero(offset, length); });
  }
  void write_zeroes(image::Op& op, std::uint64_t offset, std::uint64_t length) override { discard(op, offset, length); }

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
  const Disk& disk_;
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

/// The server: never returns. `fresh`: the links of the first one.
[[noreturn]] void serve(const Play& play, Fd keeper_socket, const std::vector<std::unique_ptr<Disk>>& disks,
                        unsigned seed, std::vector<Fd> fresh) {
  keeper::Client keep(std::move(keeper_socket));
  auto held = keep.take();
  if (!held) refuse_to_serve(held.error().text);
  asio::io_context control;
  const auto clock = make_real_clock(control.get_executor());
  nbd::Counters counters;
  nbd::IoLoop loop(play.budgets.at(seed % play.budgets.size()), play.limits().max_request, play.reserved,
                   nbd::kKeptBuffers, &keep);
  nbd::Config config;
  config.fd_store = &keep;
  config.max_request_bytes = play.limits().max_request;
  const bool first = held->links.empty();
  for (auto& one : held->memory) config.memory.emplace(one.token, std::move(one.file));
  for (auto& one : held->links)
    config.inherited.emplace_back(
        one.link.device,
        nbd::InheritedLink{std::move(one.link.backend), std::move(one.socket), std::move(one.ledger), one.link.token});
  nbd::InheritedLinks given(control.get_executor(), *clock, loop, config);
  std::vector<std::unique_ptr<SharedImage>> images;
  std::vector<std::unique_ptr<nbd::NbdLink>> links;
  for (std::size_t i = 0; i < play.links; ++i) {
    const auto device = static_cast<std::uint32_t>(kDevice + i);
    SharedImage& image = *images.emplace_back(std::make_unique<SharedImage>(*disks.at(i), seed));
    std::optional<nbd::InheritedLinks::Found> found;
    if (!first && !(found = given.find(device, backend_of(i), image, false))) refuse_to_serve("nothing to go on with");
    links.push_back(std::make_unique<nbd::NbdLink>(
        control.get_executor(), *clock, loop, image, false, found ? std::move(found->socket) : std::move(fresh.at(i)),
        Fd(), [] { ::_exit(4); }, counters, found ? std::move(found->inherited) : nullptr));
    if (first) links.back()->keep(device, backend_of(i));
  }
  const auto work = asio::make_work_guard(control);
  control.run();
  ::_exit(5);
}

/// What the deaths left, to know that they came at every place.
struct Left {
  int unanswered = 0, partly = 0, filling = 0, answered = 0, input = 0, skipping = 0, alone = 0, no_memory = 0,
      pieces = 0, fua = 0, flushes = 0;
  std::size_t most_files = 0, most_kib = 0;  ///< of payloads, with the keeper
  void look(const Play& play, const keeper::Store& store) {
    std::uint64_t used = 0, wanted = 0;
    for (const auto& one : store.stored().links) {
      nbd::Expected expected{one.link.device, one.link.backend, play.limits(), {}};
      for (const auto& memory : store.stored().memory) expected.arenas.emplace_back(memory.token, nbd::Arena::kBytes);
      const auto owed = nbd::read_ledger(one.ledger.get(), expected);
      if (!owed) continue;
      input += owed->input.empty() ? 0 : 1;
      skipping += owed->skip_left > 0 ? 1 : 0;
      alone += owed->slots.size() == 1 ? 1 : 0;
      bool known = false;
      for (const auto& slot : owed->slots) {
        look(slot);
        known |= slot.answered && slot.sent == 0;
        if (slot.request.has_data()) used += nbd::Buffers::rounded(slot.request.length);
      }
      answered += known ? 1 : 0;
      wanted += next(*owed);
    }
    most_files = std::max(most_files, store.stored().memory.size());
    most_kib = std::max(most_kib, kib(store));
    no_memory += wanted > 0 && used + wanted > play.budgets.front() ? 1 : 0;
  }

  std::string text() const {
    std::ostringstream out;
    out << "unanswered at the kills " << unanswered << " (pieces " << pieces << ", FUA " << fua << ", flushes "
        << flushes << "), within a reply " << partly << ", within a payload " << filling << ", with a known reply "
        << answered << ", with unread input " << input << ", within a skipped payload " << skipping
        << ", with one request alone " << alone << ", without memory for the next " << no_memory
        << "; payloads at most " << most_kib << " KiB in " << most_files << " files";
    return out.str();
  }
  static std::size_t kib(const keeper::Store& store) {
    std::size_t blocks = 0;
    for (const auto& memory : store.stored().memory) {
      struct stat found{};
      REQUIRE(::fstat(memory.file.get(), &found) == 0);
      blocks += static_cast<std::size_t>(found.st_blocks);
    }
    return blocks / 2;
  }

 private:
  void look(const nbd::Outstanding::Slot& slot) {
    ++unanswered;
    partly += slot.sent > 0 ? 1 : 0;
    filling += slot.filling ? 1 : 0;
    const bool waits = !slot.answered;
    pieces += waits && slot.request.in_pieces() && slot.request.length > kPiece ? 1 : 0;
    fua += waits && (slot.request.flags & nbd::flag_fua) != 0 ? 1 : 0;
    flushes += waits && slot.request.command == Command::flush ? 1 : 0;
  }
  /// What the next request needs, which nobody began.
  static std::uint64_t next(const nbd::Outstanding& owed) {
    if (owed.skip_left > 0 || owed.input.size() < nbd::request_bytes) return 0;
    if (!owed.slots.empty() && owed.slots.back().filling) return 0;
    const auto request = nbd::parse_request(std::span(owed.input).first<nbd::request_bytes>());
    return request && request->has_data() ? nbd::Buffers::rounded(request->length) : 0;
  }
};

/// What the present server has logged.
class Words {
 public:
  void forget() const {
    if (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0) std::abort();
  }
  void become_stderr() const { ::dup2(file_.get(), STDERR_FILENO); }
  std::string text() const {
    std::string out(1 << 16, '\0');
    const ssize_t got = ::pread(file_.get(), out.data(), out.size(), 0);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }

 private:
  Fd file_ = nbd::make_memory_file("words", 0).value();
};

int kills_wanted(const Play& play) {
  const char* given = std::getenv("CORBD_KILLS");
  return given != nullptr ? std::atoi(given) : play.kills;
}

/// A server after the other is killed under clients that go on as if nothing was. Each answer comes once and is true,
/// and at the end the images have what was written.
class Killing {
 public:
  explicit Killing(const Play& play) : play_(play) {
    for (std::size_t i = 0; i < play.links; ++i) {
      disks_.push_back(std::make_unique<Disk>(play.image()));
      auto pair = nbd::make_socket_pair();
      REQUIRE(pair);
      for (const int fd : {pair->first.get(), pair->second.get()})
        REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &play.send_buffer, sizeof play.send_buffer) == 0);
      clients_.push_back(std::make_unique<StrictClient>(play_, pair->second.get(), static_cast<unsigned>(i + 1)));
      sockets_.push_back(std::move(*pair));
    }
  }

  Left run() {
    const int kills = kills_wanted(play_);
    for (int kill = 0; kill <= kills; ++kill) {
      INFO("after " << kill << " kills and " << answers() << " answers");
      const bool last = kill == kills;
      const Fd line = start(static_cast<unsigned>(kill));
      last ? finish(line) : load(line);
      ::kill(server_, SIGKILL);
      REQUIRE(::waitpid(server_, nullptr, 0) == server_);
      store_.hear(line.get());
      INFO("the server said: " << words_.text());
      REQUIRE(wrong_ == "");
      in_haste_ = store_.all_taken() ? 0 : in_haste_ + 1;
      if (!last) left_.look(play_, store_);
      REQUIRE(store_.stored().links.size() == play_.links);
    }
    for (std::size_t i = 0; i < play_.links; ++i) CHECK((*disks_[i] == clients_[i]->model()));
    WARN(kills << " kills, " << answers() << " answers; " << left_.text() << ", at the end " << Left::kib(store_)
               << " in one");
    return left_;
  }

 private:
  std::uint64_t answers() const {
    std::uint64_t all = 0;
    for (const auto& client : clients_) all += client->answered();
    return all;
  }
  bool quiet() const {
    return std::ranges::all_of(clients_, [](const auto& client) { return client->quiet(); });
  }

  /// The next server. Returns the keeper's end of its line.
  Fd start(unsigned seed) {
    auto line = keeper::make_pair();
    REQUIRE(line);
    store_.give_all(line->first.get());
    words_.forget();
    server_ = ::fork();
    REQUIRE(server_ >= 0);
    if (server_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also after a check that fails
      words_.become_stderr();
      std::vector<Fd> fresh;
      for (const auto& pair : sockets_) fresh.emplace_back(::dup(pair.first.get()));
      serve(play_, std::move(line->second), disks_, seed, std::move(fresh));
    }
    return std::move(line->first);
  }

  /// Some die right at their start, the others under load. On a busy machine many in a row may die before they have
  /// taken every link, and the keeper gives up a link that ten agents did not take.
  void load(const Fd& line) {
    const std::uint64_t wanted = random_() % 8 == 0 ? 0 : answers() + 1;
    const bool takes_all = in_haste_ == kMostInHaste;
    drive(line, true, [&] {
      const bool all = store_.stored().links.size() == play_.links && (!takes_all || store_.all_taken());
      return all && answers() >= wanted;
    });
    const auto until = SteadyClock::now() + std::chrono::microseconds(random_() % 4000);
    drive(line, true, [&] { return SteadyClock::now() >= until; });
  }
  void finish(const Fd& line) {
    // What the dead ones had is gone by then.
    drive(line, false, [&] { return quiet() && store_.stored().memory.size() == 1; });
  }

  template <class Done>
  void drive(const Fd& line, bool new_requests, Done done) {
    const auto patience = SteadyClock::now() + kPatience;
    while (wrong_.empty() && !done()) {
      REQUIRE(SteadyClock::now() < patience);
      store_.hear(line.get());
      for (auto& client : clients_) {
        client->more(new_requests);
        if (wrong_.empty()) wrong_ = client->wrong();
      }
      int status = 0;
      if (::waitpid(server_, &status, WNOHANG) == server_)
        FAIL("the server ended by itself: " << status << ": " << words_.text());
    }
  }

  const Play play_;
  std::vector<std::unique_ptr<Disk>> disks_;
  std::vector<std::unique_ptr<StrictClient>> clients_;
  std::vector<std::pair<Fd, Fd>> sockets_;
  keeper::Store store_;
  std::mt19937 random_{2};
  Words words_;
  int in_haste_ = 0;  ///< how many died in a row before they had every link
  pid_t server_ = 0;
  std::string wrong_;
  Left left_;
};

Left kill_servers(const Play& play) { return Killing(play).run(); }

}  // namespace

TEST_CASE("a client whose server is killed at any moment gets every answer once, correct, from its successors",
          "[failure:152]") {
  const Left left = kill_servers({});
  CHECK(left.partly > 0);
  CHECK(left.filling > 0);
  CHECK(left.answered > 0);
  CHECK(left.fua > 0);
  CHECK(left.flushes > 0);
}

TEST_CASE("a client whose server is killed with its only request gets that answer once, correct, from the successor",
          "[failure:152]") {
  Play play;
  play.depth = 1;
  play.longest = 32 << 10;  // which a thread of the image answers
  play.send_buffer = 8 << 10;
  play.reads_late = true;
  play.bursts = true;
  const Left left = kill_servers(play);
  CHECK(left.alone > 0);
  CHECK(left.partly > 0);
}

TEST_CASE("clients whose server is killed while their requests wait for memory get every answer once, correct",
          "[failure:152]") {
  Play play;
  play.links = 3;
  play.budgets = {512 << 10, 256 << 10, 1 << 20};
  play.reserved = 64 << 10;
  play.kills = 150;
  const Left left = kill_servers(play);
  CHECK(left.no_memory > 0);
}

TEST_CASE("a client whose server is killed between the pieces of a request gets that answer once, correct",
          "[failure:152]") {
  Play play;
  play.depth = 6;
  play.long_parts = 4;
  play.kills = 100;
  const Left left = kill_servers(play);
  CHECK(left.pieces > 0);
}

}  // namespace corbd::test
