// A watch's body is whatever a server sends, in whatever pieces: the same lines come of it, and each is a change, a
// failure or nothing. The first byte is the size of the pieces.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "wire.hpp"

namespace {

constexpr std::size_t kLimit = 4096;

/// Its last one may say that a line was too long.
std::vector<std::string> lines(std::string_view body, std::size_t piece) {
  corbd::kube::Lines reader(kLimit);
  std::vector<std::string> all;
  const auto take = [&](std::string_view line) {
    all.emplace_back(line);
    return true;
  };
  for (; !body.empty(); body.remove_prefix(std::min(piece, body.size())))
    if (!reader.feed(body.substr(0, piece), take)) {
      all.emplace_back("too long\n");
      break;
    }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto whole = lines(body, size);
  if (lines(body, 1 + data[0]) != whole) std::abort();
  for (const auto& line : whole) {
    const auto read = kube::read_line(line, {"watch", "things"}, "/things");
    if (read.change && read.failure) std::abort();
    if (read.change && read.change->kind == kube::Change::Kind::bookmark && !read.change->object.empty()) std::abort();
    if (read.failure && (read.failure->error.text.empty() || read.failure->error.code == errc::ok)) std::abort();
  }
  return 0;
}
