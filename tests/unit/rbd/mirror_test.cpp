#include "mirror.hpp"

#include "support/catch.hpp"

using namespace corbd;

namespace {

/// As an OSD of Ceph 16 keeps the report of client.4119.
const std::string kReport("\x01\x01\x30\x00\x00\x00\x08\x17\x10\x00\x00\x00\x00\x00\x00", 15);

}  // namespace

TEST_CASE("a mirror's report names its client by number") { CHECK(rbd::reporter(kReport + "rest") == 4119); }

TEST_CASE("a truncated mirror report, or one of no client, names nobody") {
  CHECK_FALSE(rbd::reporter(""));
  CHECK_FALSE(rbd::reporter(std::string_view(kReport).substr(0, 14)));
  auto other = kReport;
  other[6] = 4;  // an OSD
  CHECK_FALSE(rbd::reporter(other));
}
