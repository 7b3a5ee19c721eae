// What an agent deposits, and what the next one gets.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

#include "corbd/device/link_end.hpp"
#include "corbd/keeper/keeper.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/places.hpp"
#include "wire.hpp"

namespace corbd::test {
namespace {

using namespace std::chrono_literals;

Fd something() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

/// An agent and its keeper in one process.
struct Line {
  Line() {
    auto pair = keeper::make_pair();
    REQUIRE(pair);
    ours = std::move(pair->first);
    socket = pair->second.get();
    client.emplace(std::move(pair->second));
  }
  void hold(std::uint64_t token, std::uint64_t instead_of = 0) {
    REQUIRE(client->hold({token, 7, "volume", instead_of}, something().get(), something().get()));
  }
  /// What an agent that starts now would get.
  std::vector<std::uint64_t> tokens(keeper::Store& store) {
    store.hear(ours.get());
    Line next;
    store.give_all(next.ours.get());
    const auto all = next.client->take();
    REQUIRE(all);
    std::vector<std::uint64_t> out;
    for (const auto& one : all->links) out.push_back(one.link.token);
    for (const auto& one : all->memory) out.push_back(one.token);
    return out;
  }
  Fd ours;
  int socket = -1;  ///< the agent's
  std::optional<keeper::Client> client;
  using Tokens = std::vector<std::uint64_t>;
};

}  // namespace

TEST_CASE("the next agent gets each link that the last one held, with its device, and the keeper keeps its copy") {
  Line line;
  keeper::Store store;
  REQUIRE(line.client->hold_memory(5, something().get()));
  line.hold(1);
  CHECK(line.tokens(store) == Line::Tokens{1, 5});
  CHECK(line.tokens(store) == Line::Tokens{1, 5});
  CHECK(store.stored().links.at(0).link.device == 7);
  CHECK(store.stored().links.at(0).link.backend == "volume");
}

TEST_CASE(
    "the next agent gets the listening sockets of the last one, also if no link is trusted, until they are dropped",
    "[failure:235]") {
  Line line;
  keeper::Store store;
  const auto held = [&] {
    store.hear(line.ours.get());
    Line next;
    store.give_all(next.ours.get());
    const auto all = next.client->take();
    REQUIRE(all);
    std::vector<std::pair<std::string, bool>> out;
    for (const auto& one : all->listeners) out.emplace_back(one.path, one.registered);
    return out;
  };
  using Held = std::vector<std::pair<std::string, bool>>;
  REQUIRE(line.client->hold_listener("/csi.sock", false, something().get()));
  REQUIRE(line.client->hold_listener("/reg.sock", false, something().get()));
  REQUIRE(line.client->hold_listener("/reg.sock", true, something().get()));
  line.hold(1);
  CHECK(held() == Held{{"/csi.sock", false}, {"/reg.sock", true}});
  store.let_go();
  CHECK(held() == Held{{"/csi.sock", false}, {"/reg.sock", true}});
  REQUIRE(line.client->drop_listener("/csi.sock"));
  CHECK(held() == Held{{"/reg.sock", true}});
  store.begin_anew();
  CHECK(held().empty());
}

TEST_CASE("an agent has every link once it has put something in the place of each that it was given", "[failure:163]") {
  Line line;
  keeper::Store store;
  line.hold(1);
  line.hold(2);
  store.hear(line.ours.get());
  CHECK(store.all_taken());
  Line next;
  store.give_all(next.ours.get());
  CHECK_FALSE(store.all_taken());
  next.hold(3, 1);
  store.hear(next.ours.get());
  CHECK_FALSE(store.all_taken());
  next.hold(4, 2);
  store.hear(next.ours.get());
  CHECK(store.all_taken());
}

TEST_CASE("an agent takes nothing from a keeper of another protocol, and the keeper then ends the links") {
  Line line;
  keeper::Store store;
  auto [ours, kernel] = keeper::make_pair().value();
  REQUIRE(line.client->hold({1, 7, "volume", 0}, ours.get(), something().get()));
  ours.reset();
  store.hear(line.ours.get());
  Line next;
  REQUIRE(keeper::tell(next.ours.get(), {keeper::Kind::protocol, keeper::kProtocol + 1, 0, 0}, {}, {}));
  store.give_all(next.ours.get());
  const auto taken = next.client->take();
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::failed_precondition);
  REQUIRE(::shutdown(kernel.get(), SHUT_WR) == 0);
  store.let_go();  // as after any agent that ends by itself
  char byte;
  CHECK(::recv(kernel.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

namespace {

using Messages = std::vector<std::pair<keeper::KeeperMessage, std::string>>;

/// The file has what tell() sent on a socket, in hexadecimal (little-endian processors), and never changes: another
/// form is another kProtocol (docs/compatibility.md).
void check_golden(const std::string& file, const Messages& all) {
  std::ifstream golden(tests_folder() + "/unit/keeper/golden/" + file);
  for (const auto& [note, backend] : all) {
    Line line;
    REQUIRE(keeper::tell(line.ours.get(), note, backend, {}));
    char bytes[256];
    const auto got = ::recv(line.socket, bytes, sizeof bytes, 0);
    REQUIRE(got > 0);
    std::string hex, name, expected;
    for (ssize_t i = 0; i < got; ++i) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(bytes[i]);
      hex += {kDigits[byte >> 4], kDigits[byte & 15]};
    }
    REQUIRE(golden >> name >> expected);
    INFO(name);
    CHECK(hex == expected);
  }
  std::string more;
  CHECK_FALSE(golden >> more);
}

/// Both protocols have them after the first message.
Messages common_messages() {
  using keeper::Kind;
  return {{{Kind::memory, 0, 5, 0}, {}},    {{Kind::link, 7, 1, 2}, "volume"},    {{Kind::drop, 0, 1, 0}, {}},
          {{Kind::deaths, 2, 1000, 9}, {}}, {{Kind::pause, 0, 100000000, 0}, {}}, {{Kind::end, 0, 0, 0}, {}}};
}

}  // namespace

TEST_CASE("the messages between keeper and agent are those of 0.1.0, byte for byte") {
  Messages all = common_messages();
  all.insert(all.begin(), {{keeper::Kind::protocol, 1, 0, 0}, {}});
  check_golden("messages-0.1.0.hex", all);
}

TEST_CASE("the messages between keeper and agent are those of protocol 2, byte for byte") {
  using keeper::Kind;
  Messages all = common_messages();
  all.insert(all.begin(), {{Kind::protocol, keeper::kProtocol, 0, 0}, {}});
  all.push_back({{Kind::listener, 1, 0, 0}, "/csi.sock"});
  all.push_back({{Kind::drop_listener, 0, 0, 0}, "/csi.sock"});
  check_golden("messages-2.hex", all);
}

TEST_CASE("an agent takes nothing from a keeper that says no protocol") {
  Line line;
  REQUIRE(keeper::tell(line.ours.get(), {keeper::Kind::end, 0, 0, 0}, {}, {}));
  const auto taken = line.client->take();
  REQUIRE_FALSE(taken);
  CHECK(taken.error().code == errc::failed_precondition);
}

TEST_CASE("a link that ten agents inherited and none resumed ends") {
  Line line;
  keeper::Store store;
  auto [ours, kernel] = keeper::make_pair().value();
  REQUIRE(line.client->hold({1, 7, "volume", 0}, ours.get(), something().get()));
  ours.reset();
  for (int agents = 0; agents < 10; ++agents) CHECK(line.tokens(store) == Line::Tokens{1});
  // The kernel does so when it sees the end.
  REQUIRE(::shutdown(kernel.get(), SHUT_WR) == 0);
  CHECK(line.tokens(store).empty());
  char byte;
  CHECK(::recv(kernel.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

TEST_CASE("one ledger replaces another atomically") {
  Line line;
  keeper::Store store;
  line.hold(1);
  line.hold(2, 1);
  CHECK(line.tokens(store) == Line::Tokens{2});
}

TEST_CASE("messages that an agent sent before it died count") {
  Line line;
  keeper::Store store;
  line.hold(1);
  line.hold(2);
  REQUIRE(line.client->drop(1));
  line.client.reset();
  CHECK(line.tokens(store) == Line::Tokens{2});
}

TEST_CASE("a truncated message makes the keeper drop everything", "[failure:153]") {
  Line line;
  keeper::Store store;
  line.hold(1);
  auto pair = keeper::make_pair();
  REQUIRE(pair);
  store.hear(line.ours.get());
  REQUIRE(store.stored().links.size() == 1);
  REQUIRE(::send(pair->second.get(), "?", 1, 0) == 1);
  store.hear(pair->first.get());
  CHECK(store.stored().links.empty());
  // So the agent knows that it is not kept when it has something to say.
  CHECK(::send(pair->second.get(), "?", 1, MSG_NOSIGNAL) == -1);
}

TEST_CASE("the keeper ignores everything that follows a truncated message", "[failure:153]") {
  keeper::Store store;
  auto [ours, theirs] = keeper::make_pair().value();
  const int agent = theirs.get();
  keeper::Client client(std::move(theirs));
  REQUIRE(::send(agent, "?", 1, 0) == 1);
  REQUIRE(client.hold({1, 7, "volume", 0}, something().get(), something().get()));
  REQUIRE(client.hold_memory(5, something().get()));
  store.hear(ours.get());
  CHECK(store.stored().links.empty());
  CHECK(store.stored().memory.empty());
}

TEST_CASE("the keeper accepts the next agent's messages after a truncated one") {
  keeper::Store store;
  Line line;
  REQUIRE(::send(line.socket, "?", 1, 0) == 1);
  store.hear(line.ours.get());
  Line next;
  store.give_all(next.ours.get());
  REQUIRE(next.client->take());
  next.hold(1);
  CHECK(next.tokens(store) == Line::Tokens{1});
}

TEST_CASE("a keeper that drops a link receives the rest of a request that the kernel is sending", "[failure:158]") {
  enum class How { let_go, given_up, unheard };
  const How how = GENERATE(How::let_go, How::given_up, How::unheard);
  Line line;
  keeper::Store store;
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  Fd ours(sockets[0]), kernel(sockets[1]);
  REQUIRE(line.client->hold({1, 7, "volume", 0}, ours.get(), something().get()));
  ours.reset();
  if (how == How::given_up)
    for (int agents = 0; agents < 10; ++agents) REQUIRE(line.tokens(store) == Line::Tokens{1});
  if (how == How::unheard) REQUIRE(::send(line.socket, "?", 1, 0) == 1);
  store.hear(line.ours.get());
  std::atomic<std::size_t> sent = 0;
  bool saw_end = false;
  std::thread sends([&] {
    const std::vector<char> bytes(1u << 20);
    for (ssize_t now = 1; now > 0 && sent < 8u << 20; sent += static_cast<std::size_t>(std::max<ssize_t>(now, 0)))
      now = ::send(kernel.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char byte;
    saw_end = ::recv(kernel.get(), &byte, 1, 0) == 0;
    ::shutdown(kernel.get(), SHUT_RDWR);
  });
  pollfd room{kernel.get(), POLLOUT, 0};
  CHECK(eventually([&] { return ::poll(&room, 1, 0) == 0; }));
  if (how == How::let_go)
    store.let_go();
  else
    CHECK(line.tokens(store).empty());
  CHECK(store.stored().links.empty());
  sends.join();
  CHECK(sent >= 8u << 20);
  CHECK(saw_end);
}

TEST_CASE("a link that an agent gave away does not end, even after a truncated message to the keeper") {
  Line line;
  keeper::Store store;
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  const Fd given(sockets[0]), kernel(sockets[1]);
  REQUIRE(line.client->hold({1, 7, "volume", 0}, given.get(), something().get()));
  store.hear(line.ours.get());
  REQUIRE(::send(line.socket, "?", 1, 0) == 1);
  REQUIRE(line.client->drop(1));
  store.hear(line.ours.get());
  store.let_go();
  char byte;
  CHECK(::recv(kernel.get(), &byte, 1, MSG_DONTWAIT) == -1);
}

TEST_CASE("a link whose kernel side does not end in time is cut", "[failure:158]") {
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  const Fd ours(sockets[0]), kernel(sockets[1]);
  const int all[] = {ours.get()};
  device::end_links(all, 20ms);
  CHECK(::send(kernel.get(), "?", 1, MSG_NOSIGNAL) == -1);
}

TEST_CASE(
    "the next agent learns how many died before it, when and how the last one died, and how long the restart paused") {
  Line line;
  keeper::Store store;
  const time_point last{123456789ns};
  store.note_death(SIGSEGV, time_point{1ns}, 0s);
  store.note_death(SIGKILL, last, 2s);
  Line next;
  store.give_all(next.ours.get());
  REQUIRE(next.client->take());
  CHECK(next.client->deaths().count == 2);
  CHECK(next.client->deaths().signal == SIGKILL);
  CHECK(next.client->deaths().last == last);
  CHECK(next.client->deaths().pause == 2s);
}

TEST_CASE("an agent on its first start knows of no death") {
  Line line;
  keeper::Store store;
  line.hold(1);
  store.hear(line.ours.get());
  store.note_death(SIGKILL, time_point{1ns}, 0s);
  store.begin_anew();
  Line next;
  store.give_all(next.ours.get());
  const auto all = next.client->take();
  REQUIRE(all);
  CHECK(all->links.empty());
  CHECK(next.client->deaths().count == 0);
}

TEST_CASE("an agent notices that its keeper does not listen") {
  Line line;
  CHECK_FALSE(line.client->deaf());
  line.ours.reset();
  CHECK_FALSE(line.client->hold_memory(1, something().get()));
  CHECK(line.client->deaf());
}

TEST_CASE("an agent gives no link away if its keeper does not listen, because the keeper may still hold it",
          "[failure:153]") {
  Line line;
  line.hold(1);
  line.ours.reset();
  CHECK_FALSE(line.client->drop(1));
}

TEST_CASE("dropping a link fails if the keeper does not read") {
  Line line;
  const int small = 1;
  REQUIRE(::setsockopt(line.ours.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  result<> told;
  for (int tries = 0; told && tries < 1'000'000; ++tries) told = line.client->drop(1);
  CHECK_FALSE(told);
}

TEST_CASE("taking the kept links fails if their list never ends") {
  Line line;
  line.ours.reset();
  CHECK_FALSE(line.client->take());
}

TEST_CASE("a number that is not an open descriptor is not taken for the keeper's socket") {
  REQUIRE(::setenv("CORBD_KEEPER_SOCKET", "987", 1) == 0);
  CHECK_FALSE(keeper::socket_of_keeper());
  CHECK(::getenv("CORBD_KEEPER_SOCKET") == nullptr);
}

}  // namespace corbd::test
