// [failure:51]
// The NBD stream, cut at any place: every event is one of the protocol's, and a payload never runs over its buffer.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "framer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::nbd;
  const Limits limits{1 << 20, false, 1 << 16};
  Framer framer;
  std::vector<std::byte> payload(1 << 16);
  while (size > 0) {
    for (;;) {
      const auto event = framer.next(limits);
      if (event.kind == Framer::Kind::broken || event.kind == Framer::Kind::disconnect) return 0;
      if (event.kind == Framer::Kind::starved) break;
      if (event.kind != Framer::Kind::request) continue;
      if (event.request.has_data() && event.request.length > limits.max_request) std::abort();
      if (event.request.has_payload()) framer.payload_into(payload.data());
    }
    iovec into[2];
    const auto parts = framer.room(into, (data[0] & 1) != 0);
    std::size_t moved = 0;
    for (std::size_t i = 0; i < parts && size > 0; ++i) {
      const auto bytes = std::min(into[i].iov_len, std::min<std::size_t>(size, 1 + data[0]));
      std::memcpy(into[i].iov_base, data, bytes);
      data += bytes;
      size -= bytes;
      moved += bytes;
      if (bytes < into[i].iov_len) break;
    }
    framer.arrived(moved);
  }
  return 0;
}
