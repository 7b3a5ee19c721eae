#include "netlink.hpp"

#include <linux/nbd.h>

#include "support/catch.hpp"

namespace corbd::test {
namespace {

constexpr std::uint64_t kWriteZeroes = 1 << 6;

std::uint64_t flags_of(bool write_zeroes, bool trim, bool read_only) {
  device::ConnectArgs args;
  args.trim = trim;
  args.read_only = read_only;
  return nbd::server_flags(args, write_zeroes);
}

}  // namespace

TEST_CASE("a device offers WRITE_ZEROES only where no rbd-nbd can get its number", "[rule:21]") {
  CHECK((flags_of(true, true, false) & kWriteZeroes) != 0);
  CHECK((flags_of(false, true, false) & kWriteZeroes) == 0);
}

TEST_CASE("a device that offers no discards, or takes no writes, offers no WRITE_ZEROES") {
  CHECK((flags_of(true, false, false) & kWriteZeroes) == 0);
  CHECK((flags_of(true, true, true) & kWriteZeroes) == 0);
}

TEST_CASE("WRITE_ZEROES changes no other flag of a device") {
  const std::uint64_t plain = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM;
  CHECK(flags_of(false, true, false) == plain);
  CHECK(flags_of(true, true, false) == (plain | kWriteZeroes));
}

}  // namespace corbd::test
