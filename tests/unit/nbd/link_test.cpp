// How a link ends: by its stream, its peer, a goodbye, a drain.
#include "ground.hpp"

#include <cerrno>

namespace corbd::test {
namespace {

using Ends = MemoryImage::Ends;
using State = device::Link::State;

}  // namespace

TEST_CASE("a wrong magic ends the link, for the stream is lost", "[failure:51]") {
  Ground ground;
  ground.send(pattern(28, 5));
  CHECK(ground.ends());
  CHECK(ground.link->state() == State::closed);
  CHECK(ground.link->error() == 0);
  CHECK(ground.counters.of(device::Count::links_broken) == 1);
}

TEST_CASE("a link closes when its peer ends while operations are under way") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::read, 1, 0, 512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.peer.reset();
  CHECK(ground.eventually([&] { return ground.link->state() == State::closed; }));
  CHECK(ground.link->in_flight() == 1);
  ground.image.release();
  CHECK(ground.idle() == Waited::ready);
}

TEST_CASE("a link closes after the goodbye once everything is answered") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1) + request(Command::disconnect, 2));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.flush_posts();
  CHECK(ground.link->state() == State::serving);
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
  CHECK(ground.ends());
  CHECK(ground.link->state() == State::closed);
}

TEST_CASE("a request long after the goodbye closes the link too, and is not served") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1) + request(Command::disconnect, 2));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.send(request(Command::flush, 3));
  CHECK(ground.ends());
  CHECK(ground.image.waiting() == 1);
}

TEST_CASE("a request after the goodbye closes the link at once") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1) + request(Command::disconnect, 2) + request(Command::flush, 3));
  CHECK(ground.ends());
  CHECK(ground.link->state() == State::closed);
}

TEST_CASE("the end of the stream after the goodbye closes the link, whatever is under way") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1) + request(Command::disconnect, 2));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.peer.reset();
  CHECK(ground.eventually([&] { return ground.link->state() == State::closed; }));
}

TEST_CASE("shutting a link down ends the stream, and the link is idle once its operations have ended") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link->shut();
  ground.link->shut();
  CHECK(ground.ends());
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->idle({soon, nullptr})) == Waited::deadline);
  ground.image.release();
  CHECK(ground.idle() == Waited::ready);
  CHECK(ground.link->in_flight() == 0);
}

TEST_CASE("a link that ends receives the rest of a request that its peer is in the middle of sending",
          "[failure:158][rule:4]") {
  Ground ground;
  REQUIRE(ground.drain() == Waited::ready);
  MidSend sending(ground.peer.get());
  ground.link->shut();
  CHECK(sending.sends_all());
  CHECK(ground.ends());
}

TEST_CASE("a link has ended only when its peer has ended its side, too", "[rule:4]") {
  Ground ground;
  ground.link->shut();
  CHECK(ground.ends());
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->ended({soon, nullptr})) == Waited::deadline);
  CHECK(ground.loop.ending == 1);
  ground.peer.reset();
  CHECK(ground.ended() == Waited::ready);
  CHECK(ground.loop.ending == 0);
}

TEST_CASE("a link that is destroyed while an operation is under way lets it end") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link.reset();
  CHECK(ground.ends());
  CHECK(ground.image.release() == 1);
  ground.flush_posts();
}

TEST_CASE("a drained link has answered what it read, and the socket is open for the next server") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  ground.send(request(Command::flush, 2));
  ground.image.release();
  CHECK(ground.drain() == Waited::ready);
  CHECK(ground.reply().cookie == 1);
  CHECK(ground.silent());
  CHECK(ground.image.waiting() == 0);
  CHECK(ground.link->state() == State::serving);
  CHECK(ground.link->connected());
}

TEST_CASE("a drain reads the rest of the message that has begun, and not a byte more") {
  Ground ground;
  const Bytes write = request(Command::write, 1, 0, 5000) + pattern(5000);
  ground.send(Bytes(write.begin(), write.begin() + 1000));
  ground.flush_posts();
  const auto soon = ground.clock->now() + std::chrono::milliseconds(5);
  CHECK(ground.run(ground.link->drain({soon, nullptr})) == Waited::deadline);
  ground.send(Bytes(write.begin() + 1000, write.end()) + request(Command::flush, 2));
  CHECK(ground.drain() == Waited::ready);
  CHECK(ground.reply().cookie == 1);
  CHECK(ground.silent());
}

TEST_CASE("the next server answers on the socket of a drained link") {
  Ground ground;
  REQUIRE(ground.drain() == Waited::ready);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512));
  ground.flush_posts();
  CHECK(ground.silent());
  Fd taken(::dup(ground.link->socket()));
  const auto next = nbd::serve_socket(ground.control.get_executor(), *ground.clock, ground.loop, ground.image,
                                      std::move(taken), ground.counters);
  CHECK(ground.reply().cookie == 1);
}

TEST_CASE(
    "a resize may go to the kernel only while the link serves, nothing waits, and the cluster answered a moment ago",
    "[failure:140][rule:3]") {
  Ground ground(Ends::when_told);
  const auto state = ground.link->link_state();
  CHECK(nbd::may_resize(*state, duration::zero()));
  CHECK(nbd::may_resize(*state, std::chrono::seconds(2)).error().code == errc::unavailable);
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  CHECK(nbd::may_resize(*state, duration::zero()));
  CHECK(ground.eventually([&] { return !nbd::may_resize(*state, duration::zero()); }));
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
  ground.flush_posts();
  CHECK(nbd::may_resize(*state, duration::zero()));
  ground.link->shut();
  ground.flush_posts();
  CHECK_FALSE(nbd::may_resize(*state, duration::zero()));
  // A command may look when the link is no more.
  ground.link.reset();
  CHECK_FALSE(nbd::may_resize(*state, duration::zero()));
}

TEST_CASE("draining a dead link ends with the link's operations") {
  Ground ground(Ends::when_told);
  ground.send(request(Command::flush, 1));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link->shut();
  ground.image.release();
  CHECK(ground.drain() == Waited::ready);
}

}  // namespace corbd::test
