#include "codec.hpp"

#include <endian.h>

#include <cerrno>
#include <cstring>

namespace corbd::nbd {
namespace {

constexpr std::uint32_t kRequestMagic = 0x25609513;
constexpr std::uint32_t kReplyMagic = 0x67446698;

template <class Number>
Number load(const std::byte* from) {
  Number value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct Row {
  int error;
  ErrorClass found;
};

constexpr ErrorClass kHold{true}, kDoubt{true, true};
constexpr ErrorClass reply(std::uint32_t error) { return {false, false, error}; }

// We hold an error that says something about the connection or this machine. We reply with an error that says something
// about the image. We hold a doubtful error: an application that waits can go on later, but one that got EIO cannot. An
// error in no row is doubtful. The volume then stalls and says why, until the error passes or a person gives the volume
// up (`corbd fail`).
constexpr Row kVerdicts[] = {
    {ESHUTDOWN, kHold},   // blocklisted: this client is dead for good
    {EROFS, kHold},       // the exclusive lock is no longer ours
    {ETIMEDOUT, kDoubt},  // rados_osd_op_timeout, or a lock that did not come in time
    {ENOTCONN, kHold},    // the client was shut down
    {ECANCELED, kDoubt},  // librados or librbd gave the operation up while it was being torn down
    {ENXIO, kDoubt},      // an OSD that is not responsible for the object: routing
    {EPERM, kDoubt},      // the rights of the cluster user, which an operator can give back
    {EACCES, kDoubt},
    {ENOMEM, kDoubt},              // lack of memory in this process
    {ENOSPC, kDoubt},              // a full cluster makes clients wait, but a Crimson OSD refuses the write
    {EDQUOT, kDoubt},              // the pool's quota, which an operator can raise
    {EIO, reply(wire_eio)},        // an OSD cannot read its stored data
    {ENOENT, reply(wire_eio)},     // the pool is gone, by the newest map: a missing object reads as zeros
    {EINVAL, reply(wire_einval)},  // never masked as success: that would drop data
    {EOPNOTSUPP, reply(wire_enotsup)},
};

}  // namespace

std::optional<Request> parse_request(std::span<const std::byte, request_bytes> from) {
  if (be32toh(load<std::uint32_t>(from.data())) != kRequestMagic) return std::nullopt;
  Request request;
  request.flags = be16toh(load<std::uint16_t>(from.data() + 4));
  request.command = static_cast<Command>(be16toh(load<std::uint16_t>(from.data() + 6)));
  request.cookie = load<std::uint64_t>(from.data() + 8);
  request.offset = be64toh(load<std::uint64_t>(from.data() + 16));
  request.length = be32toh(load<std::uint32_t>(from.data() + 24));
  return request;
}

std::array<std::byte, reply_bytes> make_reply(std::uint64_t cookie, std::uint32_t error) {
  std::array<std::byte, reply_bytes> reply;
  const std::uint32_t magic = htobe32(kReplyMagic), wire_error = htobe32(error);
  std::memcpy(reply.data(), &magic, 4);
  std::memcpy(reply.data() + 4, &wire_error, 4);
  std::memcpy(reply.data() + 8, &cookie, 8);
  return reply;
}

std::uint32_t check(const Request& request, const Limits& limits) {
  bool writes = true;
  switch (request.command) {
    case Command::flush:
      return 0;
    case Command::read:
      writes = false;
      [[fallthrough]];
    case Command::write:
      if (request.length > limits.max_request) return wire_einval;
      break;
    case Command::trim:
    case Command::write_zeroes:
      break;
    default:
      return wire_einval;
  }
  if ((request.flags & ~(flag_fua | flag_no_hole)) != 0) return wire_einval;
  if (request.offset > limits.size || request.length > limits.size - request.offset) return wire_einval;
  return writes && limits.read_only ? wire_eperm : 0;
}

ErrorClass judge(int result) {
  if (result >= 0) return {};
  for (const Row& row : kVerdicts)
    if (row.error == -result) return row.found;
  return kDoubt;
}

}  // namespace corbd::nbd
