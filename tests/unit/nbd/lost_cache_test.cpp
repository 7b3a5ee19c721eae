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
    link->shut();
    link = std::make_unique<nbd::NbdLink>(control.get_executor(), *clock, loop, image, std::move(options),
                                          std::move(pair->first), Fd(), std::function<void()>(), counters);
    peer = std::move(pair->second);
  }
};

}  // namespace

TEST_CASE("flushes and FUA writes fail over a lost cache until the loss is accepted; writes and reads never do",
          "[failure:155]") {
  nbd::LostCache lost(true);
  CHECK(lost.concerns(kFlush));
  CHECK(lost.concerns(kFuaWrite));
  CHECK_FALSE(lost.concerns(kWrite));
  CHECK_FALSE(lost.concerns(kRead));
  lost.accept();
  CHECK_FALSE(lost.concerns(kFlush));
  CHECK_FALSE(nbd::LostCache(false).concerns(kFlush));
}

TEST_CASE("a flush over a lost cache reaches the image and is answered with EIO, whichever thread completes it",
          "[failure:155][failure:167]") {
  for (const auto ends : {MemoryImage::Ends::at_once, MemoryImage::Ends::elsewhere}) {
    LossyGround ground(ends);
    CHECK(ground.ask(request(Command::write, 1, 0, 4096) + pattern(4096), 1) == 0);
    CHECK(ground.ask(request(Command::flush, 2), 2) == nbd::wire_eio);
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

TEST_CASE("a link answers flushes as the image does once the loss is accepted", "[failure:155]") {
  LossyGround ground;
  CHECK(ground.ask(request(Command::flush, 1), 1) == nbd::wire_eio);
  CHECK(ground.ask(request(Command::flush, 2), 2) == nbd::wire_eio);
  CHECK(ground.link->fails_flushes());
  ground.link->accept_loss();
  CHECK_FALSE(ground.link->fails_flushes());
  CHECK(ground.ask(request(Command::flush, 3), 3) == 0);
}

}  // namespace corbd::test
