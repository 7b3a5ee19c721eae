// What the next agent does with the links that a dead one left: the real port, with ledgers as a dead session leaves
// them or otherwise.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <set>

#include "corbd/core/log.hpp"
#include "corbd/core/text.hpp"
#include "corbd/device/fd_store.hpp"
#include "corbd/nbd/devices.hpp"
#include "ground.hpp"
#include "ledger.hpp"
#include "support/folder.hpp"
#include "support/loop.hpp"

namespace corbd::test {
namespace {

using State = device::Link::State;
using nbd::ledger::Head;
using namespace std::chrono_literals;

constexpr std::uint32_t kIndex = 3;
const std::string kVolume = "volume";

/// Writes down what a keeper hears. Any thread.
class Heard final : public device::FdStore {
 public:
  result<> hold(const Link& link, int, int) override {
    const std::lock_guard lock(mutex_);
    held_.push_back(link);
    return {};
  }
  result<> hold_memory(std::uint64_t, int) override { return {}; }
  result<> drop(std::uint64_t token) override {
    const std::lock_guard lock(mutex_);
    dropped_.insert(token);
    changed_.notify_all();
    return {};
  }
  bool dropped(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    return dropped_.contains(token);
  }
  /// By now, or soon.
  bool drops(std::uint64_t token) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return dropped_.contains(token); });
  }
  /// A ledger has taken the place of that one.
  bool has_instead_of(std::uint64_t token) {
    const std::lock_guard lock(mutex_);
    return std::ranges::count(held_, token, &Link::instead_of) == 1;
  }
  bool has_nothing() {
    const std::lock_guard lock(mutex_);
    return held_.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> held_;
  std::multiset<std::uint64_t> dropped_;
};

/// What stderr says from its construction on.
class Said {
 public:
  Said() : old_(::dup(STDERR_FILENO)), into_(::memfd_create("log", MFD_CLOEXEC)) { ::dup2(into_.get(), STDERR_FILENO); }
  ~Said() { ::dup2(old_.get(), STDERR_FILENO); }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;
  bool has(const std::string& what) const {
    std::string all(1 << 16, ' ');
    all.resize(static_cast<std::size_t>(::pread(into_.get(), all.data(), all.size(), 0)));
    return all.find(what) != std::string::npos;
  }

 private:
  Fd old_, into_;
};

/// What a session left that died with a write read and unanswered.
struct Dead {
  explicit Dead(nbd::Arena& memory, const std::string& volume = kVolume)
      : arena(memory), ledger(nbd::Ledger::make(true).value()) {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    socket = std::move(pair->first);
    kernel = std::move(pair->second);
    ledger.belongs_to(kIndex, volume, arena.token());
    std::byte* const buffer = arena.take(4096);
    std::ranges::copy(pattern(4096), buffer);
    ledger.taken(0, {0, Command::write, 1ull << 56, 8192, 4096}, arena.offset(buffer));  // in the order of the wire
    ledger.publish(nbd::ledger::Reader{});
  }
  Head& head() const { return *reinterpret_cast<Head*>(ledger.input().data() - nbd::ledger::kSlotsBytes - sizes); }
  nbd::ledger::Slot& slot(std::size_t number) const {
    return reinterpret_cast<nbd::ledger::Slot*>(ledger.input().data() - nbd::ledger::kSlotsBytes)[number];
  }
  nbd::InheritedLink given(const std::string& volume = kVolume) const {
    return {volume, Fd(::dup(socket.get())), Fd(::dup(ledger.file())), token};
  }
  bool goes_on() const {
    pollfd asked{kernel.get(), POLLIN, 0};
    return ::poll(&asked, 1, 0) == 0;
  }
  /// The kernel sees the end of the link, and ends its side.
  bool shut() const {
    pollfd asked{kernel.get(), POLLIN, 0};
    char byte;
    const bool ended = ::poll(&asked, 1, 20000) == 1 && ::recv(kernel.get(), &byte, 1, MSG_DONTWAIT) == 0;
    ::shutdown(kernel.get(), SHUT_RDWR);
    return ended;
  }
  /// The cookie of the next reply; nothing if the stream ended instead.
  std::optional<std::uint64_t> answer() const {
    pollfd asked{kernel.get(), POLLIN, 0};
    std::byte reply[nbd::reply_bytes];
    if (::poll(&asked, 1, 20000) != 1 || ::recv(kernel.get(), reply, sizeof reply, MSG_WAITALL) != sizeof reply)
      return std::nullopt;
    return static_cast<std::uint64_t>(reply[15]);
  }

  static constexpr std::size_t sizes = nbd::ledger::kHeadBytes;
  nbd::Arena& arena;
  nbd::Ledger ledger;
  const std::uint64_t token = ledger.token();  // which a ledger that is cut off does not say
  Fd socket, kernel;
};

struct Node {
  Node() { config.fd_store = &keep; }
  ~Node() {
    end();
    devices.reset();
  }
  void end() {
    if (link) {
      link->shut();
      CHECK(eventually(control.io, [&] { return link->state() != State::serving && link->in_flight() == 0; }));
    }
    link.reset();
  }
  bool serve() {
    auto made = devices->serve(image, false, {});
    if (made) link = std::move(*made);
    return made.has_value();
  }
  void start() { devices = nbd::make_devices(control.control(), control.clock, std::move(config)); }
  void start_with(const Dead& dead) {
    config.inherited.emplace_back(kIndex, dead.given());
    config.memory.emplace(arena.token(), Fd(::dup(arena.file())));
    start();
  }
  /// Somebody goes on with it.
  bool resume(const std::string& volume = kVolume, std::uint32_t index = kIndex) {
    link = devices->resume(index, volume, image, false, {});
    return link != nullptr;
  }

  Loop control;
  Heard keep;
  nbd::Arena arena = nbd::Arena::make(1u << 20).value();
  MemoryImage image{1u << 20};
  nbd::Config config;
  std::unique_ptr<device::Devices> devices;
  std::unique_ptr<device::Link> link;
};

/// `what` in a process of its own, because it takes something from the whole process. Its exit code.
template <class What>
int apart(What what) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(what());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void limit(int resource, rlim_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &now);
  now.rlim_cur = most;
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

/// Bytes of addresses that this process has.
rlim_t addresses() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * 4096;
}

/// In a child: 0 if a link without anything to keep it answers.
int serves_all_the_same() {
  Node node;
  node.start();
  auto link = node.devices->serve(node.image, false, {});
  if (!link) return 1;
  node.link = std::move(*link);
  return node.link->state() == State::serving ? 0 : 2;
}

/// Two are left for the sockets of a link, and none for its ledger.
int serves_without_descriptors() {
  Node node;
  node.start();
  // So that the threads have begun.
  if (!node.serve()) return 2;
  node.end();
  log::warning("nbd.link_not_stored", {{"error", "none: with descriptors that are free"}});
  std::size_t open = 0;
  int looks = 0;
  const bool rests = eventually(node.control.io, [&] {
    const auto now = open_descriptors();
    looks = now == open ? looks + 1 : 0;
    open = now;
    return looks == 20;
  });
  rlimit before{};
  if (!rests || ::getrlimit(RLIMIT_NOFILE, &before) != 0) return 3;
  {
    const Fd first(::dup(STDIN_FILENO)), second(::dup(STDIN_FILENO)), third(::dup(STDIN_FILENO));
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(third.get()));
  }
  const bool served = node.serve() && node.link->state() == State::serving;
  ::setrlimit(RLIMIT_NOFILE, &before);
  return served ? 0 : 4;
}

}  // namespace

TEST_CASE("a session resumes a kept link where its dead server stopped, and gives the keeper a new ledger") {
  Node node;
  const Dead dead(node.arena);
  node.start_with(dead);
  REQUIRE(node.resume());
  CHECK(dead.answer() == 1);
  const Bytes content = node.image.content();
  CHECK(Bytes(content.begin() + 8192, content.begin() + 8192 + 4096) == pattern(4096));
  CHECK(node.keep.has_instead_of(dead.token));
  const Bytes more = request(Command::flush, 2);
  REQUIRE(::send(dead.kernel.get(), more.data(), more.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(more.size()));
  CHECK(dead.answer() == 2);
}

TEST_CASE("a kept link whose device number another volume now has is shut, and none of its requests reach that volume",
          "[failure:153]") {
  const Said said;
  Node node;
  const Dead dead(node.arena);
  node.start_with(dead);
  CHECK_FALSE(node.resume("another volume"));
  CHECK(dead.shut());
  CHECK(node.keep.drops(dead.token));
  CHECK(node.image.calls().empty());
  CHECK(said.has("now belongs to another volume"));
  CHECK_FALSE(node.resume());
}

TEST_CASE("a kept link of another device number than the volume's is not resumed") {
  Node node;
  const Dead dead(node.arena);
  node.start_with(dead);
  CHECK_FALSE(node.resume(kVolume, kIndex + 1));
  CHECK(node.image.calls().empty());
}

TEST_CASE("a kept link whose ledger is another volume's is shut") {
  const Said said;
  Node node;
  const Dead dead(node.arena, "another volume");
  node.start_with(dead);
  CHECK_FALSE(node.resume());
  CHECK(dead.shut());
  CHECK(said.has("it is another device's"));
}

TEST_CASE("a kept link that no session resumes within a minute is shut, and its memory freed", "[failure:153]") {
  const Said said;
  Node node;
  const Dead dead(node.arena);
  node.start_with(dead);
  node.control.advance(59s);
  CHECK(dead.goes_on());
  CHECK_FALSE(node.keep.dropped(node.arena.token()));
  node.control.advance(2s);
  CHECK(dead.shut());
  CHECK(node.keep.drops(dead.token));
  CHECK(node.keep.drops(node.arena.token()));
  CHECK(said.has("within a minute"));
  CHECK_FALSE(node.resume());
}

TEST_CASE("a kept link that no session resumes is shut as soon as the command under way has ended") {
  Node node;
  const Folder folder;
  const std::string lock = folder.path() + "/commands";
  node.config.commands_lock = lock;
  const Dead dead(node.arena);
  node.start_with(dead);
  // After the device port's own command, which listens to the driver.
  Fd command(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(command.get(), LOCK_EX) == 0);
  node.control.advance(70s);
  CHECK(dead.goes_on());
  command.reset();
  node.control.advance(2s);
  CHECK(dead.shut());
}

TEST_CASE("a link that no session resumes receives the rest of a request that its peer is in the middle of sending",
          "[failure:158]") {
  Node node;
  const Dead dead(node.arena);
  node.start_with(dead);
  MidSend sending(dead.kernel.get());
  node.control.advance(61s);
  CHECK(sending.sends_all());
  CHECK(dead.shut());
}

TEST_CASE("a kept link is not resumed if its agent died while ending it", "[failure:158]") {
  const Said said;
  Node node;
  const Dead dead(node.arena);
  {
    Node before;
    before.start_with(dead);
    before.control.advance(61s);
    pollfd asked{dead.kernel.get(), POLLIN, 0};
    REQUIRE(::poll(&asked, 1, 20000) == 1);
    CHECK_FALSE(before.keep.dropped(dead.token));
    node.start_with(dead);
    CHECK_FALSE(node.resume());
    CHECK(dead.shut());
  }
  CHECK(node.image.calls().empty());
  CHECK(node.keep.drops(dead.token));
}

TEST_CASE("a kept link that the kernel has ended is not resumed") {
  const Said said;
  Node node;
  Dead dead(node.arena);
  node.start_with(dead);
  dead.kernel.reset();
  CHECK_FALSE(node.resume());
  CHECK(node.keep.drops(dead.token));
  CHECK(said.has("the kernel has ended the link"));
}

TEST_CASE("a kept link whose ledger does not add up is shut, and the log says why", "[failure:153]") {
  struct Broken {
    const char* why;
    std::function<void(const Dead&)> how;
  };
  const auto cut = [](off_t bytes) {
    return [bytes](const Dead& dead) { REQUIRE(::ftruncate(dead.ledger.file(), bytes) == 0); };
  };
  const std::vector<Broken> all{
      {"it has version", [](const Dead& dead) { ++dead.head().version; }},
      {"it has 0 bytes", cut(0)},
      {"within its head", cut(100)},
      {"it has 4096 bytes", cut(nbd::ledger::kHeadBytes)},
      {"bytes", cut(nbd::ledger::kBytes - 1)},
      {"bytes", cut(1ll << 40)},
      {"not a ledger", [](const Dead& dead) { std::memset(&dead.head(), 0, nbd::ledger::kBytes); }},
      {"in no state", [](const Dead& dead) { dead.slot(0).state = static_cast<nbd::ledger::State>(9); }},
      {"the time to come", [](const Dead& dead) { dead.slot(0).born += 2; }},
      {"fills a slot that is not a write",
       [](const Dead& dead) { dead.head().reader[dead.head().reader_seq % 2] = {0, 0, 10, 0, 2}; }},
      {"within the reply of no slot", [](const Dead& dead) { dead.head().writer[0].partly = 1; }},
      {"not in the memory of payloads", [](const Dead& dead) { dead.slot(0).buffer = 1ull << 40; }},
      {"not at hand", [](const Dead& dead) { ++dead.head().arena; }},
  };
  for (const auto& [why, how] : all) {
    INFO(why);
    const Said said;
    Node node;
    const Dead dead(node.arena);
    how(dead);
    node.start_with(dead);
    CHECK_FALSE(node.resume());
    CHECK(dead.shut());
    CHECK(node.keep.drops(dead.token));
    CHECK(node.keep.drops(node.arena.token()));
    CHECK(node.image.calls().empty());
    CHECK(said.has(why));
  }
}

TEST_CASE("a session resumes the live one of a device's two kept links") {
  for (const bool first : {false, true}) {
    Node node;
    Dead ended(node.arena);
    const Dead alive(node.arena);
    ended.kernel.reset();
    node.config.inherited.emplace_back(kIndex, (first ? alive : ended).given());
    node.start_with(first ? ended : alive);
    CHECK(node.resume());
    CHECK(alive.answer() == 1);
    CHECK(node.keep.drops(ended.token));
  }
}

TEST_CASE("no session resumes a device's kept links if two of them are live", "[failure:153]") {
  const Said said;
  Node node;
  const Dead one(node.arena), other(node.arena);
  node.config.inherited.emplace_back(kIndex, one.given());
  node.start_with(other);
  CHECK_FALSE(node.resume());
  CHECK(one.shut());
  CHECK(other.shut());
  CHECK(node.image.calls().empty());
  CHECK(said.has("two live links"));
}

TEST_CASE("a device with two live links gets no new one before the kernel has ended both", "[rule:4]") {
  Node node;
  const Dead one(node.arena), other(node.arena);
  node.config.inherited.emplace_back(kIndex, one.given());
  node.start_with(other);
  REQUIRE(one.shut());
  REQUIRE(node.keep.drops(one.token));
  REQUIRE(node.serve());
  const Until soon{node.control.clock.now() + 1s};
  const auto done = node.control.run(node.devices->reconnect(*node.link, {kIndex, kVolume}, soon));
  REQUIRE_FALSE(done);
  CHECK_THAT(done.error().text, ContainsSubstring("the end of the link"));
}

TEST_CASE("a kept link whose payloads cannot be read is shut before any byte is read from it", "[failure:153]") {
  const Folder folder;
  const std::string path = folder.path() + "/blind";
  const auto blind = [&] {  // as large as the arena, and unreadable
    Fd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    REQUIRE(::ftruncate(file.get(), 1u << 20) == 0);
    return file;
  };
  const std::vector<std::pair<const char*, std::function<Fd(const nbd::Arena&)>>> all{
      {"payload", [&](const nbd::Arena&) { return blind(); }},
      {"not at hand", [](const nbd::Arena&) { return Fd(); }},
      {"not at hand",
       [](const nbd::Arena& arena) {
         Fd file(::dup(arena.file()));
         REQUIRE(::ftruncate(file.get(), 0) == 0);
         return file;
       }},
      {"not in the memory", [](const nbd::Arena& arena) {
         Fd file(::dup(arena.file()));
         REQUIRE(::ftruncate(file.get(), 100) == 0);
         return file;
       }}};
  for (const auto& [why, memory] : all) {
    INFO(why);
    const Said said;
    Node node;
    const Dead dead(node.arena);
    node.config.inherited.emplace_back(kIndex, dead.given());
    node.config.memory.emplace(node.arena.token(), memory(node.arena));
    node.start();
    if (node.resume()) REQUIRE(eventually(node.control.io, [&] { return node.link->state() == State::closed; }));
    CHECK(dead.shut());
    CHECK(node.keep.drops(dead.token));
    CHECK(node.keep.drops(node.arena.token()));
    CHECK(node.keep.has_nothing());
    CHECK(node.image.calls().empty());
    CHECK(said.has(why));
  }
}

TEST_CASE("memory that no kept link refers to is freed at once, and other memory with the last link that does") {
  Node node;
  const Dead dead(node.arena);
  const nbd::Arena older = nbd::Arena::make(1u << 20).value();
  Dead later(node.arena);
  later.head().device = kIndex + 1;
  node.config.inherited.emplace_back(kIndex + 1, later.given());
  node.config.memory.emplace(older.token(), Fd(::dup(older.file())));
  node.start_with(dead);
  CHECK(node.keep.drops(older.token()));
  CHECK_FALSE(node.keep.dropped(node.arena.token()));
  REQUIRE(node.resume());
  CHECK(dead.answer() == 1);
  CHECK_FALSE(node.keep.dropped(node.arena.token()));
  // The other link's.
  node.control.advance(61s);
  CHECK(later.shut());
  CHECK(node.keep.drops(node.arena.token()));
}

TEST_CASE("a process that may make no large files serves links that are not kept, and the log says why",
          "[failure:153]") {
  const Said said;
  CHECK(apart([] {
          limit(RLIMIT_FSIZE, 1u << 20);
          return serves_all_the_same();
        }) == 0);
  CHECK(said.has("RLIMIT_FSIZE"));
}

TEST_CASE("a process without addresses for payloads serves links that are not kept, and the log says why",
          "[failure:153]") {
  const Said said;
  CHECK(apart([] {
          limit(RLIMIT_AS, addresses() + (1ull << 30));
          return serves_all_the_same();
        }) == 0);
  CHECK(said.has("mapping the memory of buffers: Cannot allocate memory"));
}

TEST_CASE("a link without a descriptor for its ledger is served and not kept, and the log says why", "[failure:153]") {
  const Said said;
  // UBSan ends a process with 1 in which it sees an object of some type for the first time, and finds no descriptor for
  // its own use.
  int code = 1;
  for (int tries = 0; code == 1 && tries < 50; ++tries) code = apart(serves_without_descriptors);
  CHECK(code == 0);
  CHECK(said.has("making a file in memory: Too many open files"));
}

}  // namespace corbd::test
