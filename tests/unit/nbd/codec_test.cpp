#include "codec.hpp"

#include <cerrno>
#include <set>

#include "ground.hpp"

namespace corbd::test {
namespace {

std::optional<nbd::Request> parse(const Bytes& bytes) {
  return nbd::parse_request(std::span<const std::byte, nbd::request_bytes>(bytes.data(), nbd::request_bytes));
}

nbd::Request of(Command command, std::uint64_t offset, std::uint32_t length, std::uint16_t flags = 0) {
  return {flags, command, 0, offset, length};
}

constexpr nbd::Limits kLimits{1 << 20, false, 65536};
constexpr nbd::Limits kReadOnly{1 << 20, true, 65536};

}  // namespace

TEST_CASE("a request is read in network byte order") {
  const auto parsed = parse(request(Command::write, 0x0102030405060708, 0x1122334455667788, 0x99aabbcc, 1));
  REQUIRE(parsed);
  CHECK(parsed->command == Command::write);
  CHECK(parsed->flags == nbd::flag_fua);
  CHECK(parsed->offset == 0x1122334455667788);
  CHECK(parsed->length == 0x99aabbcc);
}

TEST_CASE("a wrong magic is no request") {
  Bytes bytes = request(Command::read, 1);
  bytes[3] ^= std::byte{1};
  CHECK_FALSE(parse(bytes));
}

TEST_CASE("a reply carries the cookie back as it came") {
  const auto parsed = parse(request(Command::read, 0x0102030405060708));
  const auto reply = nbd::make_reply(parsed->cookie, nbd::wire_einval);
  const std::array<unsigned char, 16> expected{0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(std::memcmp(reply.data(), expected.data(), expected.size()) == 0);
}

TEST_CASE("a request up to the last byte of the image is fine") {
  CHECK(nbd::check(of(Command::read, (1 << 20) - 512, 512), kLimits) == 0);
  CHECK(nbd::check(of(Command::write, (1 << 20) - 512, 512), kLimits) == 0);
}

TEST_CASE("a range past the end is EINVAL even when its end wraps around") {
  CHECK(nbd::check(of(Command::read, (1 << 20) - 511, 512), kLimits) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::trim, UINT64_MAX - 1, 512), kLimits) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::read, (1 << 20) + 1, 0), kLimits) == nbd::wire_einval);
}

TEST_CASE("only reads and writes have a longest length") {
  const nbd::Limits large{8ull << 30, false, 65536};
  CHECK(nbd::check(of(Command::read, 0, 65537), large) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::write, 0, 65537), large) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::trim, 0, 4294963200), large) == 0);
  CHECK(nbd::check(of(Command::write_zeroes, 0, 4294963200), large) == 0);
}

TEST_CASE("an unknown command or flag is EINVAL") {
  CHECK(nbd::check(of(static_cast<Command>(5), 0, 512), kLimits) == nbd::wire_einval);
  CHECK(nbd::check(of(static_cast<Command>(7), 0, 512), kLimits) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::read, 0, 512, 4), kLimits) == nbd::wire_einval);
  CHECK(nbd::check(of(Command::write, 0, 512, nbd::flag_fua), kLimits) == 0);
  CHECK(nbd::check(of(Command::write_zeroes, 0, 512, nbd::flag_no_hole), kLimits) == 0);
}

TEST_CASE("a read-only device refuses whatever changes it with EPERM") {
  CHECK(nbd::check(of(Command::write, 0, 512), kReadOnly) == nbd::wire_eperm);
  CHECK(nbd::check(of(Command::trim, 0, 512), kReadOnly) == nbd::wire_eperm);
  CHECK(nbd::check(of(Command::write_zeroes, 0, 512), kReadOnly) == nbd::wire_eperm);
  CHECK(nbd::check(of(Command::read, 0, 512), kReadOnly) == 0);
  CHECK(nbd::check(of(Command::flush, 0, 0), kReadOnly) == 0);
}

TEST_CASE("no connection error is replied, and every one is doubtful unless it says that the client is cut off") {
  for (const int error : {ESHUTDOWN, EROFS, ETIMEDOUT, ENOTCONN, ECANCELED, ENXIO, EPERM, EACCES, ENOMEM}) {
    INFO(error);
    CHECK(nbd::judge(-error).hold);
    CHECK(nbd::judge(-error).doubtful != (error == ESHUTDOWN || error == EROFS || error == ENOTCONN));
  }
}

TEST_CASE("every error is held except the few that the image reports about itself", "[rule:9]") {
  const std::set<int> of_image{EIO, ENOENT, EINVAL, EOPNOTSUPP};
  for (int error = 1; error < 4096; ++error) {
    INFO(error);
    CHECK(nbd::judge(-error).hold != of_image.contains(error));
  }
  for (const int error : {EAGAIN, EBUSY, EBADE, ESTALE, EILSEQ, 1234}) CHECK(nbd::judge(-error).doubtful);
}

TEST_CASE("a full cluster and a reached quota are held back, because the kernel would make EIO of them",
          "[failure:131]") {
  for (const int error : {ENOSPC, EDQUOT}) {
    INFO(error);
    CHECK(nbd::judge(-error).hold);
    CHECK(nbd::judge(-error).doubtful);
  }
}

TEST_CASE("an error that the image reports about itself is replied") {
  CHECK_FALSE(nbd::judge(0).hold);
  CHECK(nbd::judge(0).error == 0);
  CHECK(nbd::judge(-EIO).error == nbd::wire_eio);
  CHECK(nbd::judge(-ENOENT).error == nbd::wire_eio);
  CHECK(nbd::judge(-EINVAL).error == nbd::wire_einval);
  for (const int error : {EIO, ENOENT, EINVAL, EOPNOTSUPP}) CHECK_FALSE(nbd::judge(-error).hold);
}

}  // namespace corbd::test
