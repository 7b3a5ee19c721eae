// Two agents' sides on a real socket.
#include "corbd/handover/handover.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <future>

#include "corbd/core/gate.hpp"
#include "messages.hpp"
#include "passing.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"

namespace corbd::test {
namespace {

using namespace handover;
using namespace std::chrono_literals;
using What = PeerMessage::What;

const Side kThis{"1", 1, "2:3"};

std::pair<Fd, Fd> pair() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

/// The other end sees that nobody has this one open any more.
bool hung_up(const Fd& other) {
  char byte;
  return ::recv(other.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

Fd file(const std::string& path) { return Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)); }

Fd connect_to(const Folder& folder) {
  Fd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path(folder.path()).copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return caller;
}

/// An agent that serves, on its control thread.
struct Serving {
  explicit Serving(Side own = kThis)
      : clock(make_real_clock(control.get_executor())),
        gate(control.get_executor(), *clock),
        giver(control.get_executor(), *clock, folder.path(), std::move(own)) {
    REQUIRE(giver.start([this] { asked = true; }));
    gate.spawn(giver.run());
  }
  ~Serving() {
    giver.stop();
    giver.leave();
    eventually(control, [&] { return gate.count() == 0 && giver.quiet(); });
  }
  std::future<result<Fd>> asks(Side next = kThis) const {
    return std::async(std::launch::async, [path = folder.path(), next] { return ask(path, next); });
  }
  /// The next agent's end, once it was heard.
  Fd heard() {
    auto asking = asks();
    REQUIRE(eventually(control, [&] { return asked; }));
    auto got = asking.get();
    REQUIRE(got);
    REQUIRE(*got);
    return std::move(*got);
  }
  Folder folder;
  asio::io_context control;
  std::unique_ptr<Clock> clock;
  Gate gate;
  Giver giver;
  bool asked = false;
};

/// The next agent, on the same control thread: answers, and takes what it is given.
struct Next {
  Next(Serving& serving, Fd before)
      : control(serving.control),
        predecessor(serving.control.get_executor(), *serving.clock, std::move(before)),
        ended(serving.control, run()) {}
  ~Next() {
    predecessor.end();
    eventually(control, [this] { return ended.done(); });
  }
  task<result<>> run() {
    for (;;) {
      auto said = co_await predecessor.next_message({});
      if (!said) co_return said.error();
      const PeerMessage& peer_message = said->message;
      if (peer_message.what == What::end) co_return result<>();
      if (peer_message.what == What::ready) static_cast<void>(predecessor.say({What::ready, {}, 0, {"unopened"}}));
      if (peer_message.what == What::lock) static_cast<void>(predecessor.say({What::loaded}));
      begun |= peer_message.what == What::begins;
      registered |= peer_message.registered;
      if (peer_message.what == What::lock) lock = std::move(said->descriptor);
      if (peer_message.what == What::listener) listeners.push_back(std::move(said->descriptor));
      if (peer_message.what == What::link)
        links.push_back({peer_message.volume_id, peer_message.device, std::move(said->descriptor)});
    }
  }
  void serves(const device::LinkSocket& link) { static_cast<void>(predecessor.say({What::served, {}, link.device})); }
  asio::io_context& control;
  bool begun = false, registered = false;
  Fd lock;
  std::vector<Fd> listeners;
  std::vector<device::LinkSocket> links;
  Conversation predecessor;
  Started<result<>> ended;
};

task<result<bool>> gives(Serving& serving, device::LinkSocket link) {
  co_return co_await serving.giver.hand_over(link);
}

bool ready(const std::future<result<Fd>>& future) { return future.wait_for(0s) == std::future_status::ready; }

/// Whoever listens there, and says what it is told to.
struct Scripted {
  explicit Scripted(const Folder& folder) : listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path(folder.path()).copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
  }
  Fd accept() const {
    Fd met(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(receive(met.get()));
    return met;
  }
  Fd listener;
};

}  // namespace

TEST_CASE("the next agent first shares the lock, then gets every link, and its predecessor keeps none") {
  Serving serving;
  Next next(serving, serving.heard());
  CHECK(serving.giver.has_next());
  const std::string path = serving.folder.path() + "/lock";
  Fd lock = file(path);
  REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  REQUIRE(Started<result<>>(serving.control, serving.giver.hand_over_lock(lock)).get());
  std::vector<Fd> kernel;
  for (std::uint32_t i = 0; i < 100; ++i) {
    auto [ours, theirs] = pair();
    kernel.push_back(std::move(theirs));
    Started<result<bool>> giving(serving.control, gives(serving, {"volume-" + std::to_string(i), i, std::move(ours)}));
    REQUIRE(eventually(serving.control, [&] { return next.links.size() == i + 1; }));
    next.serves(next.links.back());
    REQUIRE(giving.get());
  }
  REQUIRE(serving.giver.end());
  CHECK(next.ended.get());
  for (std::uint32_t i = 0; i < kernel.size(); ++i) {
    CHECK(next.links[i].volume_id == "volume-" + std::to_string(i));
    CHECK(next.links[i].device == i);
    CHECK((::fcntl(next.links[i].socket.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  next.links.front().socket.reset();
  CHECK(hung_up(kernel.front()));
  lock.reset();
  const Fd another = file(path);
  CHECK(::flock(another.get(), LOCK_EX | LOCK_NB) != 0);
  next.lock.reset();
  CHECK(::flock(another.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("the next agent takes over its predecessor's listening socket with the callers in its backlog") {
  Side listens = kThis;
  listens.listens = true;
  Serving serving;
  auto asked = std::async(std::launch::async, [&] { return ask(serving.folder.path(), listens); });
  REQUIRE(eventually(serving.control, [&] { return serving.giver.has_next(); }));
  CHECK(serving.giver.next_listens());
  auto before = asked.get();
  REQUIRE(before);
  Next next(serving, std::move(*before));
  const std::string path = serving.folder.path() + "/csi.sock";
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(serving.giver.hand_over_listener(std::move(listener), true));
  REQUIRE(::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(eventually(serving.control, [&] { return next.listeners.size() == 1; }));
  CHECK(next.registered);
  CHECK(Fd(::accept(next.listeners.front().get(), nullptr, nullptr)));
}

TEST_CASE("a link counts as given once the next agent serves its device; other links move meanwhile") {
  Serving serving;
  Next next(serving, serving.heard());
  Started<result<bool>> first(serving.control, gives(serving, {"a", 0, pair().first}));
  Started<result<bool>> second(serving.control, gives(serving, {"b", 1, pair().first}));
  REQUIRE(eventually(serving.control, [&] { return next.links.size() == 2; }));
  next.serves(next.links[1]);
  CHECK(second.get());
  CHECK_FALSE(first.done());
  next.serves(next.links[0]);
  CHECK(first.get());
}

TEST_CASE("a link that cannot be sent stays with the agent that serves it") {
  Serving serving;
  auto [ours, kernel] = pair();
  device::LinkSocket link{"a", 0, std::move(ours)};
  CHECK_FALSE(Started<result<bool>>(serving.control, serving.giver.hand_over(link)).get());
  CHECK(link.socket);
  CHECK_FALSE(hung_up(kernel));
}

TEST_CASE("an agent learns that the next agent ended before it served the link") {
  Serving serving;
  auto next = std::make_unique<Next>(serving, serving.heard());
  auto [ours, kernel] = pair();
  Started<result<bool>> giving(serving.control, gives(serving, {"a", 0, std::move(ours)}));
  REQUIRE(eventually(serving.control, [&] { return next->links.size() == 1; }));
  CHECK_FALSE(hung_up(kernel));
  next.reset();
  CHECK_FALSE(giving.get());
  CHECK(hung_up(kernel));
  CHECK_FALSE(serving.giver.has_next());
  CHECK_FALSE(Started<result<>>(serving.control, serving.giver.hand_over_lock(Fd())).get());
  CHECK_FALSE(serving.giver.end());
}

TEST_CASE("a waiting next agent answers, and one that has gone is dropped so that another can ask") {
  Serving serving;
  const auto answers = [&] { return Started<bool>(serving.control, serving.giver.next_answers(5s)).get(); };
  {
    const Next next(serving, serving.heard());
    CHECK(answers());
    CHECK(answers());
    CHECK(serving.giver.unopened_images() == std::vector<std::string>{"unopened"});
    serving.giver.leave();
  }
  serving.asked = false;
  serving.gate.spawn(serving.giver.run());
  serving.heard().reset();
  CHECK_FALSE(answers());
  CHECK_FALSE(serving.giver.has_next());
}

TEST_CASE("a next agent that is not ready in time is dropped") {
  Serving serving;
  const Fd silent = serving.heard();
  CHECK_FALSE(Started<bool>(serving.control, serving.giver.next_answers(50ms)).get());
  CHECK_FALSE(serving.giver.has_next());
}

TEST_CASE("a folder has the same identity by any of its paths, and shares it with no other") {
  const Folder one, other;
  CHECK(identity(one.path()) == identity(one.path() + "/."));
  CHECK(identity(one.path()) != identity(other.path()));
}

TEST_CASE("asking for a handover fails if no agent serves") {
  const Folder folder;
  const auto got = ask(folder.path(), kThis);
  REQUIRE(got);
  CHECK_FALSE(*got);
}

TEST_CASE("a refused agent learns why, and the serving agent goes on and answers the next one", "[failure:150]") {
  Serving serving(Side{"2", 2, "2:3"});
  auto refused = serving.asks();
  REQUIRE(eventually(serving.control, [&] { return ready(refused); }));
  const auto why = refused.get();
  REQUIRE_FALSE(why);
  CHECK(why.error().code == errc::failed_precondition);
  CHECK_FALSE(serving.asked);
  auto asking = serving.asks(Side{"2", 2, "2:3"});
  CHECK(eventually(serving.control, [&] { return serving.asked; }));
  CHECK(asking.get());
}

TEST_CASE("a caller that sends garbage or nothing does not end the serving agent") {
  Serving serving;
  for (const std::string text : {"garbage", ""}) {
    const Fd caller = connect_to(serving.folder);
    if (!text.empty()) REQUIRE(send(caller.get(), text));
  }
  auto asking = serving.asks();
  CHECK(eventually(serving.control, [&] { return serving.asked; }));
  CHECK(asking.get());
}

TEST_CASE("a next agent that sends garbage later is dropped") {
  Serving serving;
  const Fd next = serving.heard();
  REQUIRE(send(next.get(), "garbage"));
  CHECK(eventually(serving.control, [&] { return !serving.giver.has_next(); }));
}

TEST_CASE("links given before an agent ends stay given, and the next agent learns that it ended", "[failure:150]") {
  const Folder folder;
  const Scripted before(folder);
  auto asking = std::async(std::launch::async, [&] { return ask(folder.path(), kThis); });
  Fd met = before.accept();
  REQUIRE(send(met.get(), pack_answer(std::nullopt)));
  auto got = asking.get();
  REQUIRE(got);
  Serving control;
  Next next(control, std::move(*got));
  auto [link, kernel] = pair();
  REQUIRE(send(met.get(), pack(PeerMessage{What::link, "a", 0}), &link));
  link.reset();
  met.reset();
  const auto ended = next.ended.get();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code == errc::not_found);
  CHECK(next.links.size() == 1);
  CHECK_FALSE(hung_up(kernel));
}

TEST_CASE("links count as given even if the giving agent ends before it reads the confirmation") {
  const Folder folder;
  const Scripted before(folder);
  auto asking = std::async(std::launch::async, [&] { return ask(folder.path(), kThis); });
  Fd met = before.accept();
  REQUIRE(send(met.get(), pack_answer(std::nullopt)));
  auto got = asking.get();
  REQUIRE(got);
  REQUIRE(send(got->get(), pack(PeerMessage{What::served, {}, 7})));
  auto [link, kernel] = pair();
  REQUIRE(send(met.get(), pack(PeerMessage{What::link, "a", 0}), &link));
  REQUIRE(send(met.get(), pack(PeerMessage{What::end})));
  link.reset();
  met.reset();
  Serving control;
  Next next(control, std::move(*got));
  CHECK(next.ended.get());
  CHECK(next.links.size() == 1);
  CHECK_FALSE(hung_up(kernel));
}

TEST_CASE("a handover begins once the next agent confirms it, and never with one that has ended") {
  const bool ended = GENERATE(false, true);
  Serving serving;
  std::optional<Next> next;
  Fd asked = serving.heard();
  ended ? asked.reset() : static_cast<void>(next.emplace(serving, std::move(asked)));
  std::optional<bool> begins;
  const auto begin = [](Giver& giver, std::optional<bool>& into) -> task<> { into = co_await giver.ask_commit(10s); };
  serving.gate.spawn(begin(serving.giver, begins));
  REQUIRE(eventually(serving.control, [&] { return begins.has_value(); }));
  CHECK(*begins == !ended);
  if (next) CHECK(next->begun);
}

TEST_CASE("a next agent that has the lock counts as ended once its process has, and not when it sends garbage",
          "[failure:230]") {
  const bool ends = GENERATE(true, false);
  Serving serving;
  Fd asked = serving.heard();
  const Fd lock = file(serving.folder.path() + "/lock");
  std::optional<result<>> begun;
  const auto begin = [](Giver& giver, const Fd& held, std::optional<result<>>& into) -> task<> {
    into = co_await giver.hand_over_lock(held);
  };
  serving.gate.spawn(begin(serving.giver, lock, begun));
  if (ends)
    asked.reset();
  else
    REQUIRE(::send(asked.get(), "?", 1, MSG_NOSIGNAL) == 1);
  REQUIRE(eventually(serving.control, [&] { return begun.has_value(); }));
  REQUIRE_FALSE(*begun);
  CHECK(begun->error().code == (ends ? errc::not_found : errc::unavailable));
}

TEST_CASE("a link without its socket and a socket without a link end a handover") {
  const bool with_socket = GENERATE(false, true);
  const Folder folder;
  const Scripted before(folder);
  auto asking = std::async(std::launch::async, [&] { return ask(folder.path(), kThis); });
  const Fd met = before.accept();
  REQUIRE(send(met.get(), pack_answer(std::nullopt)));
  auto got = asking.get();
  REQUIRE(got);
  Serving control;
  Next next(control, std::move(*got));
  const auto [link, kernel] = pair();
  const PeerMessage peer_message{with_socket ? What::ready : What::link, "a", 0};
  REQUIRE(send(met.get(), pack(peer_message), with_socket ? &link : nullptr));
  const auto ended = next.ended.get();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().code == errc::internal);
  CHECK(next.links.empty());
}

}  // namespace corbd::test
