#include "ground.hpp"

#include <cerrno>

namespace corbd::test {
namespace {

using Io = MemoryImage::Io;
using Ends = MemoryImage::Ends;
using State = device::Link::State;

}  // namespace

TEST_CASE("what was written is read back, byte by byte on the wire") {
  Ground ground;
  ground.send(request(Command::write, 7, 4096, 1000) + pattern(1000), 1);
  CHECK(ground.reply().cookie == 7);
  ground.send(request(Command::read, 8, 4096, 1000), 1);
  CHECK(ground.reply().cookie == 8);
  CHECK(ground.receive(1000) == pattern(1000));
}

TEST_CASE("a batch of requests is answered whole, whichever thread ends them") {
  for (const Ends ends : {Ends::at_once, Ends::elsewhere}) {
    Ground ground(ends);
    Bytes batch;
    for (unsigned i = 0; i < 100; ++i) batch = batch + request(Command::write, i, 4096 * i, 4096) + pattern(4096, i);
    ground.send(batch);
    std::vector<bool> answered(100);
    for (unsigned i = 0; i < 100; ++i) {
      const GotReply got = ground.reply();
      CHECK(got.error == 0);
      answered.at(got.cookie) = true;
    }
    CHECK(std::count(answered.begin(), answered.end(), true) == 100);
    const Bytes content = ground.image.content();
    for (unsigned i = 0; i < 100; ++i)
      CHECK(std::equal(content.begin() + 4096 * i, content.begin() + 4096 * (i + 1), pattern(4096, i).begin()));
  }
}

TEST_CASE("a flush asks the image only if the image needs flushes", "[rule:1a]") {
  Ground ground;
  CHECK(ground.ask(request(Command::flush, 1), 1) == 0);
  CHECK(ground.image.calls() == std::vector<MemoryImage::Call>{{Io::flush, 0, 0}});
  ground.image.set_needs_flush(false);
  CHECK(ground.ask(request(Command::flush, 2), 2) == 0);
  CHECK(ground.image.calls().size() == 1);
}

TEST_CASE("a flush that asks no image is answered while an earlier write is under way", "[rule:1a]") {
  Ground ground(Ends::when_told);
  ground.image.set_needs_flush(false);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512) + request(Command::flush, 2));
  CHECK(ground.reply().cookie == 2);
  ground.image.release();
  CHECK(ground.reply().cookie == 1);
}

TEST_CASE("a write longer than the socket takes at once arrives whole") {
  Ground ground(Ends::at_once, 64u << 20, 1u << 20);
  ground.send(request(Command::write, 1, 0, 1u << 20) + pattern(1u << 20));
  CHECK(ground.reply().error == 0);
  CHECK(ground.image.content() == pattern(1u << 20));
}

TEST_CASE("replies larger than the send buffer wait for the reader of the socket") {
  Ground ground(Ends::elsewhere);
  Bytes batch;
  for (unsigned i = 0; i < 24; ++i) batch = batch + request(Command::read, i, 0, 1u << 20);
  ground.send(batch);
  for (unsigned i = 0; i < 24; ++i) {
    CHECK(ground.reply().cookie == i);
    CHECK(ground.receive(1u << 20).size() == 1u << 20);
  }
}

TEST_CASE("an oversized write is refused, and the request after it answered", "[failure:51]") {
  Ground ground;
  CHECK(ground.ask(request(Command::write, 1, 0, (1u << 20) + 1) + pattern((1u << 20) + 1), 1) == nbd::wire_einval);
  CHECK(ground.ask(request(Command::flush, 2), 2) == 0);
  CHECK(ground.image.calls() == std::vector<MemoryImage::Call>{{Io::flush, 0, 0}});
}

TEST_CASE("a write outside the image is refused, and the request after it answered") {
  Ground ground;
  CHECK(ground.ask(request(Command::write, 1, 1u << 20, 512) + pattern(512), 1) == nbd::wire_einval);
  CHECK(ground.ask(request(Command::write, 2, 0, 512) + pattern(512), 2) == 0);
}

TEST_CASE("a read past the end is refused without data") {
  Ground ground;
  CHECK(ground.ask(request(Command::read, 1, (1u << 20) - 512, 1024), 1) == nbd::wire_einval);
  CHECK(ground.ask(request(Command::flush, 2), 2) == 0);
}

TEST_CASE("an unknown command is refused, and the request after it answered") {
  Ground ground;
  CHECK(ground.ask(request(static_cast<Command>(9), 1, 0, 512), 1) == nbd::wire_einval);
  CHECK(ground.ask(request(Command::flush, 2), 2) == 0);
  CHECK(ground.counters.of(device::Count::refused) == 1);
}

TEST_CASE("more refusals than there is room for are all sent") {
  Ground ground;
  Bytes batch;
  for (unsigned i = 0; i < 1000; ++i) batch = batch + request(static_cast<Command>(9), i);
  ground.send(batch);
  for (unsigned i = 0; i < 1000; ++i) REQUIRE(ground.reply().cookie == i);
}

TEST_CASE("a grown image is served to its new end") {
  Ground ground;
  ground.image.resize(2u << 20);
  CHECK(ground.ask(request(Command::write, 1, 1u << 20, 512) + pattern(512), 1) == 0);
}

TEST_CASE("a read-only device refuses a write and skips its payload") {
  Ground ground(Ends::at_once, 64u << 20, 1u << 20, true);
  CHECK(ground.ask(request(Command::write, 1, 0, 512) + pattern(512), 1) == nbd::wire_eperm);
  ground.send(request(Command::read, 2, 0, 512));
  CHECK(ground.reply().error == 0);
  CHECK(ground.receive(512) == Bytes(512));
}

TEST_CASE("an empty range succeeds without the image") {
  Ground ground;
  CHECK(ground.ask(request(Command::read, 1, 0, 0), 1) == 0);
  CHECK(ground.ask(request(Command::write, 2, 0, 0), 2) == 0);
  CHECK(ground.ask(request(Command::trim, 3, 0, 0), 3) == 0);
  CHECK(ground.ask(request(Command::write_zeroes, 4, 1u << 20, 0), 4) == 0);
  CHECK(ground.image.calls().empty());
}

TEST_CASE("flush, FUA writes, trim and zeroes reach the image") {
  Ground ground;
  CHECK(ground.ask(request(Command::write, 1, 0, 8192, nbd::flag_fua) + pattern(8192), 1) == 0);
  CHECK(ground.ask(request(Command::flush, 2), 2) == 0);
  CHECK(ground.ask(request(Command::trim, 3, 0, 4096), 3) == 0);
  CHECK(ground.ask(request(Command::write_zeroes, 4, 4096, 2048, nbd::flag_no_hole), 4) == 0);
  CHECK(ground.image.calls() ==
        std::vector<MemoryImage::Call>{
            {Io::write, 0, 8192}, {Io::flush, 0, 0}, {Io::discard, 0, 4096}, {Io::write_zeroes, 4096, 2048}});
}

TEST_CASE("a discard of gigabytes goes to the image piece after piece and is answered once") {
  constexpr std::uint32_t kPiece = 256u << 20, kLength = 2 * kPiece + 4096;
  Ground ground(Ends::when_told);
  ground.image.resize(600u << 20);
  ground.send(request(Command::trim, 1, 512, kLength));
  for (int piece = 0; piece < 3; ++piece) {
    REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
    CHECK(ground.silent());
    ground.image.release();
  }
  CHECK(ground.reply().error == 0);
  const std::vector<MemoryImage::Call> pieces{
      {Io::discard, 512, kPiece}, {Io::discard, 512 + kPiece, kPiece}, {Io::discard, 512 + 2 * kPiece, 4096}};
  CHECK(ground.image.calls() == pieces);
}

TEST_CASE("zeroes of gigabytes go to the image piece after piece and are answered once") {
  constexpr std::uint32_t kPiece = 256u << 20, kLength = 2 * kPiece - 512;
  Ground ground(Ends::when_told);
  ground.image.resize(600u << 20);
  ground.send(request(Command::write_zeroes, 1, 512, kLength, nbd::flag_no_hole | nbd::flag_fua));
  for (int piece = 0; piece < 2; ++piece) {
    REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
    CHECK(ground.silent());
    ground.image.release();
  }
  CHECK(ground.reply().error == 0);
  const std::vector<MemoryImage::Call> pieces{{Io::write_zeroes, 512, kPiece},
                                              {Io::write_zeroes, 512 + kPiece, kPiece - 512}};
  CHECK(ground.image.calls() == pieces);
}

TEST_CASE("zeroes whose link ended between two pieces are not answered, and send no other piece", "[rule:9]") {
  constexpr std::uint32_t kPiece = 256u << 20;
  Ground ground(Ends::when_told);
  ground.image.resize(600u << 20);
  ground.send(request(Command::write_zeroes, 1, 0, 2 * kPiece));
  REQUIRE(ground.eventually([&] { return ground.image.waiting() == 1; }));
  ground.link->hold();
  ground.image.release();
  CHECK(ground.idle() == Waited::ready);
  CHECK(ground.ends());
  CHECK(ground.image.calls() == std::vector<MemoryImage::Call>{{Io::write_zeroes, 0, kPiece}});
}

TEST_CASE("an error of the image is replied, and the link lives on") {
  Ground ground;
  ground.image.fail(Io::write, EIO);
  CHECK(ground.ask(request(Command::write, 1, 0, 512) + pattern(512), 1) == nbd::wire_eio);
  CHECK(ground.ask(request(Command::write, 2, 0, 512) + pattern(512), 2) == 0);
  CHECK(ground.link->state() == State::serving);
}

TEST_CASE("an error of the connection ends the stream without a reply at any time", "[rule:9]") {
  for (const int error : {ESHUTDOWN, EROFS, ENOTCONN}) {
    Ground ground(Ends::when_told);
    ground.send(request(Command::read, 1, 0, 4096) + request(Command::flush, 2));
    REQUIRE(ground.eventually([&] { return ground.image.waiting() == 2; }));
    ground.image.fail(Io::write, error);
    ground.image.set_ends(Ends::at_once);
    ground.send(request(Command::write, 3, 0, 512) + pattern(512));
    CHECK(ground.ends());
    CHECK(ground.link->state() == State::held);
    CHECK(ground.link->error() == error);
    ground.image.release();
    CHECK(ground.idle() == Waited::ready);
    CHECK(ground.ends());
    CHECK(ground.eventually([&] { return ground.stopped == 1; }));
    CHECK(ground.counters.of(device::Count::links_held) == 1);
  }
}

TEST_CASE("an unknown error ends the stream without a reply, and leaves the image's connection as it is",
          "[failure:131]") {
  Ground ground;
  ground.image.fail(Io::write, EBADE);
  ground.send(request(Command::write, 3, 0, 512) + pattern(512));
  CHECK(ground.ends());
  CHECK(ground.link->state() == State::closed);
  CHECK(ground.link->error() == EBADE);
  CHECK(ground.idle() == Waited::ready);
}

TEST_CASE("replies that did not leave yet are dropped with a held link") {
  Ground ground;
  ground.image.fail(Io::flush, ESHUTDOWN);
  ground.send(request(Command::write, 1, 0, 512) + pattern(512) + request(Command::flush, 2) +
              request(Command::read, 3, 0, 512));
  CHECK(ground.ends());
  CHECK(ground.link->state() == State::held);
}

}  // namespace corbd::test
