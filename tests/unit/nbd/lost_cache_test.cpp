// A device whose last server died with writes in its cache: its next flush fails, and says so.
#include "lost_cache.hpp"

#include <atomic>

#include "ground.hpp"

namespace corbd::test {
namespace {

const nbd::Request kFlush{.command = Command::flush};
const nbd::Request kFuaWrite{.flags = nbd::flag_fua, .command = Command::write, .length = 512};
const nbd::Request kWrite{.command = Command::write, .length = 512};
const nbd::Request kRead{.command = Command::read, .length = 512};

/// A link whose device had such a server.
class LossyGround : public Ground {
 public:
  explicit LossyGround(MemoryImage::Ends ends = MemoryImage::Ends::at_once) : Ground(ends) {
    auto pair = nbd::make_socket_pair();
    REQUIRE(pair);
    device::ServeOptions options(false);
    options.cache_lost = true;
    options.on_loss_told = [this] { ++told; };
    link->shut();
    link = std::make_unique<nbd::NbdLink>(control.get_executor(), *clock, loop, image, std::move(options),
                                          std::move(pair->first), Fd(), std::function<void()>(), counters);
    peer = std::move(pair->second);
  }
  int told = 0;
};

}  // namespace

TEST_CASE(
    "flushes and FUA writes fail over a lost cache for a minute from the first such answer; writes and reads never "
    "do") {
  nbd::LostCache lost(true);
  CHECK(lost.concerns(kFlush, 5'000'000));
  CHECK(lost.concerns(kFuaWrite, 5'000'000));
  CHECK_FALSE(lost.concerns(kWrite, 5'000'000));
  CHECK_FALSE(lost.concerns(kRead, 5'000'000));
  CHECK(lost.told(6'000'000));
  CHECK_FALSE(lost.told(6'900'000));
  CHECK(lost.concerns(kFlush, 65'999'999));
  CHECK_FALSE(lost.is_over(65'999'999));
  CHECK_FALSE(lost.concerns(kFlush, 66'000'000));
  CHECK(lost.is_over(66'000'000));
  CHECK_FALSE(nbd::LostCache(false).concerns(kFlush, 1));
}

TEST_CASE("a flush over a lost cache reaches the image and is answered with EIO, whichever thread completes it") {
  for (const auto ends : {MemoryImage::Ends::at_once, MemoryImage::Ends::elsewhere}) {
    LossyGround ground(ends);
    CHECK(ground.ask(request(Command::write, 1, 0, 4096) + pattern(4096), 1) == 0);
    CHECK(ground.ask(request(Command::flush, 2), 2) == nbd::wire_eio);
    CHECK_FALSE(ground.link->loss_told());  // not before the minute is over
    CHECK(ground.eventually([&] { return ground.told == 1; }));
    CHECK(ground.image.calls().back() == MemoryImage::Call{MemoryImage::Io::flush, 0, 0});
    CHECK(ground.link->state() == device::Link::State::serving);
  }
}

TEST_CASE("a write with FUA over a lost cache is stored, and answered with EIO") {
  LossyGround ground;
  CHECK(ground.ask(request(Command::write, 1, 0, 4096, nbd::flag_fua) + pattern(4096), 1) == nbd::wire_eio);
  const Bytes content = ground.image.content();
  CHECK(std::equal(content.begin(), content.begin() + 4096, pattern(4096).begin()));
}

TEST_CASE("the owner of a link learns once that a flush failed over a lost cache") {
  LossyGround ground;
  ground.send(request(Command::flush, 1) + request(Command::flush, 2) + request(Command::read, 3, 0, 512));
  CHECK(ground.reply().error == nbd::wire_eio);
  CHECK(ground.reply().error == nbd::wire_eio);
  CHECK(ground.reply().error == 0);
  CHECK(ground.eventually([&] { return ground.told > 0; }));
  CHECK(ground.told == 1);
}

}  // namespace corbd::test
