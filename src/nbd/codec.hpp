// The NBD transmission phase with simple replies (doc/proto.md of the NBD project), as pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace corbd::nbd {

inline constexpr std::size_t request_bytes = 28;
inline constexpr std::size_t reply_bytes = 16;

enum class Command : std::uint16_t { read = 0, write = 1, disconnect = 2, flush = 3, trim = 4, write_zeroes = 6 };

/// NBD_CMD_FLAG_*. NO_HOLE only asks that space stays reserved. Our images are thin and reserve none.
inline constexpr std::uint16_t flag_fua = 1 << 0, flag_no_hole = 1 << 1;

/// Error numbers on the wire. They are Linux's, and the kernel turns each of them into EIO.
inline constexpr std::uint32_t wire_eperm = 1, wire_eio = 5, wire_einval = 22, wire_enotsup = 95;

struct Request {
  std::uint16_t flags = 0;
  Command command = Command::read;  ///< as received: any number
  std::uint64_t cookie = 0;         ///< not converted, because it is only sent back
  std::uint64_t offset = 0;         ///< bytes
  std::uint32_t length = 0;         ///< bytes

  /// Whether `length` bytes follow the header.
  bool has_payload() const { return command == Command::write; }
  /// Whether it may be longer than one operation of the image should be.
  bool in_pieces() const { return command == Command::trim || command == Command::write_zeroes; }
  /// Whether it needs `length` bytes of memory.
  bool has_data() const { return command == Command::write || command == Command::read; }
};

/// Returns nothing if the magic is wrong: then nobody can tell where the next request begins.
std::optional<Request> parse_request(std::span<const std::byte, request_bytes> from);
std::array<std::byte, reply_bytes> make_reply(std::uint64_t cookie, std::uint32_t error);

struct Limits {
  std::uint64_t size = 0;  ///< size of the image, bytes
  bool read_only = false;
  std::uint32_t max_request =
      0;  ///< longest read or write, bytes. TRIM and WRITE_ZEROES go up to 4 GiB: the kernel sends such
};

/// Returns 0 if the request may go to the image, otherwise the error to reply. An empty range inside the image is fine.
std::uint32_t check(const Request& request, const Limits& limits);

/// Treatment of a request whose image operation ended with `result` (0 or -errno).
struct ErrorClass {
  bool hold =
      false;  ///< never reply: shut the link, so that the kernel keeps the request and repeats it on the next one
  bool doubtful = false;  ///< held, but nothing says that the client is cut off: its image stays open, and with it the
                          ///< lock that is our proof
  std::uint32_t error = 0;  ///< error of the reply
};
ErrorClass judge(int result);

}  // namespace corbd::nbd
