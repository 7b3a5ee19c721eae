// A volume's state, as it follows from its record and the last look at the kernel.
#include "support/catch.hpp"
#include "support/loop.hpp"
#include "volume.hpp"

using namespace corbd;
using namespace corbd::volume;

namespace {

struct Known {
  test::Loop loop;
  Volume live{"image-1", loop.control(), loop.clock};
  explicit Known(device::Kind kind) {
    live.record.emplace();
    live.record->device.kind = kind;
    live.record->device.index = 3;
    live.record->stagings.push_back({"/staging", {}, true});
  }
};

}  // namespace

TEST_CASE("a volume of the kernel client counts as served without a link, and an nbd volume does not") {
  CHECK(health_of(Known(device::Kind::krbd).live) == Health::staged);
  CHECK(health_of(Known(device::Kind::nbd).live) == Health::reconnecting);
}

TEST_CASE("a volume whose device is gone is absent, both with an nbd device and with the kernel client",
          "[failure:113]") {
  Known volume(GENERATE(device::Kind::krbd, device::Kind::nbd));
  volume.live.device.gone = true;
  CHECK(health_of(volume.live) == Health::absent);
  volume.live.history.last_error = Error{errc::unproven, "what was tried before it went"};
  CHECK(health_of(volume.live) == Health::absent);
}

TEST_CASE("a volume that has no device yet is staging, not absent") {
  Known volume(device::Kind::nbd);
  volume.live.device.gone = true;
  volume.live.record->device.index.reset();
  volume.live.record->stagings.front().complete = false;
  CHECK(health_of(volume.live) == Health::staging);
}

TEST_CASE("a failed or unstaging volume keeps its state when its device is gone") {
  Known volume(device::Kind::nbd);
  volume.live.device.gone = true;
  volume.live.record->failed = true;
  CHECK(health_of(volume.live) == Health::failed);
  volume.live.record->failed = false;
  volume.live.record->stagings.clear();
  CHECK(health_of(volume.live) == Health::unstaging);
}
