// A volume's state, as it follows from its record and the last look at the kernel.
#include <functional>

#include "support/catch.hpp"
#include "support/loop.hpp"
#include "volume.hpp"

using namespace corbd;
using namespace corbd::volume;

namespace {

struct Known {
  test::Loop loop;
  RecordIndex records;
  Volume live{"image-1", loop.control(), loop.clock, records};
  explicit Known(device::Kind kind) {
    Record record;
    record.device.kind = kind;
    record.device.index = 3;
    record.stagings.push_back({"/staging", {}, true});
    live.record = std::move(record);
  }
  void change(const std::function<void(Record&)>& how) {
    Record record = *live.record;
    how(record);
    live.record = std::move(record);
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
  volume.change([](Record& record) {
    record.device.index.reset();
    record.stagings.front().complete = false;
  });
  CHECK(health_of(volume.live) == Health::staging);
}

TEST_CASE("a failed or unstaging volume keeps its state when its device is gone") {
  Known volume(device::Kind::nbd);
  volume.live.device.gone = true;
  volume.change([](Record& record) { record.failed = true; });
  CHECK(health_of(volume.live) == Health::failed);
  volume.change([](Record& record) {
    record.failed = false;
    record.stagings.clear();
  });
  CHECK(health_of(volume.live) == Health::unstaging);
}
