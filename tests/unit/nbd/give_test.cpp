// A link that goes from one server to the next while its client goes on.
#include <boost/asio/detached.hpp>

#include "corbd/nbd/devices.hpp"
#include "ground.hpp"

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;

result<Fd> give(Ground& ground) {
  return ground.run(ground.link->hand_over({ground.clock->now() + kPatience, nullptr}));
}

/// The server after that one.
struct Next {
  Next(Ground& before, Fd socket) : ground(before), image(1u << 20), loop(64u << 20, 1u << 20, 1u << 20) {
    link = nbd::serve_socket(ground.control.get_executor(), *ground.clock, loop, image, std::move(socket),
                             ground.counters);
  }
  ~Next() {
    link->shut();
    ground.peer.reset();
    ground.eventually([&] { return link->in_flight() == 0 && link->state() == device::Link::State::closed; });
    ground.run(link->idle({ground.clock->now() + kPatience, nullptr}));
    link.reset();
    std::promise<void> done;
    asio::post(loop.io(), [&] { done.set_value(); });
    done.get_future().wait();
  }
  Ground& ground;
  MemoryImage image;
  nbd::IoLoop loop;
  std::unique_ptr<nbd::NbdLink> link;
};

}  // namespace

TEST_CASE("a client whose link is given to another server gets every answer once, and sees no end of its stream") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::write, 1, 0, 4096) + pattern(4096) + request(Command::read, 2, 0, 4096));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 2; }));
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  // For the next server: this one reads no more.
  ground.send(request(Command::flush, 3) + request(Command::write, 4, 8192, 4096) + pattern(4096, 2));
  ground.image.release();
  REQUIRE(ground.drain() == Waited::ready);
  auto socket = give(ground);
  REQUIRE(socket);
  CHECK(ground.idle() == Waited::ready);
  ground.link.reset();
  ground.flush_posts();
  Next next(ground, std::move(*socket));
  CHECK(ground.reply().cookie == 1);
  CHECK(ground.reply().cookie == 2);
  CHECK(ground.receive(4096).size() == 4096);
  CHECK(ground.reply().cookie == 3);
  CHECK(ground.reply().cookie == 4);
  const auto content = next.image.content();
  CHECK(Bytes(content.begin() + 8192, content.begin() + 8192 + 4096) == pattern(4096, 2));
  CHECK(ground.ask(request(Command::flush, 5), 5) == 0);
}

TEST_CASE("a link with an unanswered request is not given away") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::read, 1, 0, 4096));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  CHECK(give(ground).error().code == errc::unavailable);
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
}

TEST_CASE("a link whose drain is undone answers the requests that came meanwhile, and can be given away later") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::read, 1, 0, 4096));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  ground.send(request(Command::flush, 2));
  ground.flush_posts();
  CHECK(ground.image.waiting() == 1);
  ground.link->undrain();
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 2; }));
  CHECK(ground.run(ground.link->drain({ground.clock->now(), nullptr})) == Waited::deadline);
  ground.image.release();
  CHECK(ground.drain() == Waited::ready);
  CHECK(ground.reply().cookie == 1);
  CHECK(ground.receive(4096).size() == 4096);
  CHECK(ground.reply().cookie == 2);
  CHECK(give(ground));
}

TEST_CASE("a link that was not told to drain is not given away") {
  Ground ground;
  CHECK(give(ground).error().code == errc::unavailable);
  CHECK(ground.ask(request(Command::flush, 1), 1) == 0);
}

TEST_CASE("a link that was given away ends without its client noticing") {
  Ground ground;
  REQUIRE(ground.drain() == Waited::ready);
  const auto socket = give(ground);
  REQUIRE(socket);
  CHECK(ground.idle() == Waited::ready);
  CHECK(ground.link->state() == device::Link::State::closed);
  ground.link.reset();
  ground.flush_posts();
  CHECK(ground.silent());
  char byte;
  CHECK(::recv(ground.peer.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0);
}

namespace {

/// An agent to which a link is given.
struct Taker {
  Taker() {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    ours = std::move(pair->first);
    kernel = std::move(pair->second);
  }
  asio::io_context control;
  std::unique_ptr<Clock> clock = make_real_clock(control.get_executor());
  MemoryImage image{1u << 20};
  Fd ours, kernel;
  std::unique_ptr<device::Devices> devices = nbd::make_devices(control.get_executor(), *clock, {});
};

}  // namespace

// Where the kernel has no nbd driver, any command to it fails.
TEST_CASE("a given link waits until a session of its own volume resumes it") {
  Taker taker;
  const auto& devices = taker.devices;
  CHECK_FALSE(devices->has_inherited("volume"));
  devices->take(7, "volume", std::move(taker.ours));
  CHECK(devices->has_inherited("volume"));
  CHECK_FALSE(devices->has_inherited("another"));
  auto link = devices->resume(7, "volume", taker.image, false, {});
  REQUIRE(link);
  CHECK_FALSE(devices->has_inherited("volume"));
  link->shut();
  taker.kernel.reset();
  while (link->state() != device::Link::State::closed) taker.control.run_one_for(std::chrono::milliseconds(5));
}

TEST_CASE("a link that was given to this agent serves its device without a command to the kernel") {
  Taker taker;
  const auto& devices = taker.devices;
  devices->take(7, "volume", std::move(taker.ours));
  auto link = devices->resume(7, "volume", taker.image, false, {});
  REQUIRE(link);
  device::ReconnectArgs args;
  args.index = 7;
  args.backend = "volume";
  std::optional<result<>> done;
  const auto reconnect = [](device::Devices& on, device::Link& with, device::ReconnectArgs what,
                            std::optional<result<>>& into) -> task<> {
    into = co_await on.reconnect(with, std::move(what), {});
    with.shut();
    static_cast<void>(co_await with.idle({}));
  };
  asio::co_spawn(taker.control, reconnect(*devices, *link, args, done), asio::detached);
  while (!done || link->state() != device::Link::State::closed) taker.control.run_one_for(std::chrono::milliseconds(5));
  CHECK(done->has_value());
  taker.kernel.reset();
  link.reset();
}

}  // namespace corbd::test
