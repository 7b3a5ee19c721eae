// Two agents' sides on a real socket.
#include "corbd/handover/handover.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <future>
#include <thread>

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

const Side kThis{"1", 1, "2:3"};

std::pair<Fd, Fd> pair() {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  return {Fd(fds[0]), Fd(fds[1])};
}

/// An agent that serves, on its control thread.
struct Serving {
  explicit Serving(Side own = kThis)
      : clock(make_real_clock(control.get_executor())),
        files(control.get_executor(), *clock, 1),
        gate(control.get_executor(), *clock),
        giver(control.get_executor(), *clock, files, folder.path(), std::move(own)) {
    REQUIRE(giver.start([this] { asked = true; }));
    gate.spawn(giver.run());
  }
  ~Serving() {
    giver.stop();
    eventually(control, [&] { return gate.count() == 0; });
  }
  std::future<result<std::optional<Estate>>> asks(Side next = kThis) const {
    return std::async(std::launch::async, [path = folder.path(), next] { return ask(path, next); });
  }
  Folder folder;
  asio::io_context control;
  std::unique_ptr<Clock> clock;
  BlockingPool files;
  Gate gate;
  Giver giver;
  bool asked = false;
};

bool ready(const std::future<result<std::optional<Estate>>>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

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

TEST_CASE("the next agent gets every link and the lock, and the one before has none of them any more") {
  Serving serving;
  auto asking = serving.asks();
  REQUIRE(eventually(serving.control, [&] { return serving.asked; }));
  CHECK(serving.giver.has_next());
  Estate estate;
  std::vector<Fd> kernel;
  // More than one message takes.
  for (std::uint32_t i = 0; i < 100; ++i) {
    auto [ours, theirs] = pair();
    estate.links.push_back({"volume-" + std::to_string(i), i, std::move(ours)});
    kernel.push_back(std::move(theirs));
  }
  const std::string path = serving.folder.path() + "/lock";
  estate.lock = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(estate.lock.get(), LOCK_EX | LOCK_NB) == 0);
  REQUIRE(Started<result<>>(serving.control, serving.giver.give(std::move(estate))).get());
  serving.giver.leave();
  auto got = asking.get();
  REQUIRE(got);
  REQUIRE(*got);
  REQUIRE((*got)->links.size() == kernel.size());
  for (std::uint32_t i = 0; i < kernel.size(); ++i) {
    CHECK((*got)->links[i].volume_id == "volume-" + std::to_string(i));
    CHECK((*got)->links[i].device == i);
    CHECK((::fcntl((*got)->links[i].socket.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  const Fd another(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK(::flock(another.get(), LOCK_EX | LOCK_NB) != 0);
  (*got)->links.front().socket.reset();
  char byte;
  CHECK(::recv(kernel.front().get(), &byte, 1, MSG_DONTWAIT) == 0);
  (*got)->lock.reset();
  CHECK(::flock(another.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("a next agent that still waits answers, and one that has gone is given up, so that another can ask") {
  Serving serving;
  auto asking = serving.asks();
  REQUIRE(eventually(serving.control, [&] { return serving.asked; }));
  const auto answers = [&] { return Started<bool>(serving.control, serving.giver.next_answers()).get(); };
  CHECK(answers());
  CHECK(answers());
  serving.giver.leave();
  CHECK(asking.get());
  serving.asked = false;
  serving.gate.spawn(serving.giver.run());
  {
    const Fd gone(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path(serving.folder.path()).copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(gone.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(send(gone.get(), pack(Hello{kProtocol, kThis})));
    REQUIRE(eventually(serving.control, [&] { return serving.asked; }));
  }
  CHECK_FALSE(answers());
  CHECK_FALSE(serving.giver.has_next());
}

TEST_CASE("a folder is the same by any of its paths, and no other") {
  const Folder one, other;
  CHECK(identity(one.path()) == identity(one.path() + "/."));
  CHECK(identity(one.path()) != identity(other.path()));
}

TEST_CASE("without an agent that serves there is nothing to take over") {
  const Folder folder;
  const auto got = ask(folder.path(), kThis);
  REQUIRE(got);
  CHECK_FALSE(*got);
}

TEST_CASE("an agent that may not have the links is told why, and the one that serves goes on and hears the next") {
  Serving serving(Side{"2", 2, "2:3"});
  auto refused = serving.asks();
  REQUIRE(eventually(serving.control, [&] { return ready(refused); }));
  const auto why = refused.get();
  REQUIRE_FALSE(why);
  CHECK(why.error().code == errc::failed_precondition);
  CHECK_FALSE(serving.asked);
  auto asking = serving.asks(Side{"2", 2, "2:3"});
  CHECK(eventually(serving.control, [&] { return serving.asked; }));
  serving.giver.leave();
  CHECK(asking.get());
}

TEST_CASE("a caller that says garbage or nothing does not end the agent that serves") {
  Serving serving;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path(serving.folder.path()).copy(address.sun_path, sizeof address.sun_path - 1);
  for (const std::string text : {"garbage", ""}) {
    const Fd caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    if (!text.empty()) REQUIRE(send(caller.get(), text));
  }
  auto asking = serving.asks();
  CHECK(eventually(serving.control, [&] { return serving.asked; }));
  serving.giver.leave();
  CHECK(asking.get());
}

TEST_CASE("an agent that ends before it gave its lock gave nothing") {
  const Folder folder;
  const Scripted before(folder);
  auto asking = std::async(std::launch::async, [&] { return ask(folder.path(), kThis); });
  auto [link, kernel] = pair();
  {
    const Fd met = before.accept();
    REQUIRE(send(met.get(), pack_answer(std::nullopt)));
    const int sockets[] = {link.get()};
    REQUIRE(send(met.get(), pack(Part{{{"a", 0}}, false}), sockets));
  }
  link.reset();
  const auto got = asking.get();
  REQUIRE(got);
  CHECK_FALSE(*got);
  char byte;
  CHECK(::recv(kernel.get(), &byte, 1, MSG_DONTWAIT) == 0);
}

TEST_CASE("links that come without as many sockets are no links") {
  const Folder folder;
  const Scripted before(folder);
  auto asking = std::async(std::launch::async, [&] { return ask(folder.path(), kThis); });
  const Fd met = before.accept();
  REQUIRE(send(met.get(), pack_answer(std::nullopt)));
  REQUIRE(send(met.get(), pack(Part{{{"a", 0}, {"b", 1}}, false})));
  const auto got = asking.get();
  REQUIRE(got);
  CHECK_FALSE(*got);
}

}  // namespace corbd::test
