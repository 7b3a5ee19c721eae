#include "header.hpp"

#include <array>
#include <cerrno>
#include <cstdint>

#include "failure.hpp"

namespace corbd::rbd {
namespace {

std::string encode_number(std::uint32_t number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

}  // namespace

std::string encode_text(const std::string& text) {
  return encode_number(static_cast<std::uint32_t>(text.size())) + text;
}

result<> write_header_metadata(OpenImage& opened, const std::string& name, const std::optional<std::string>& value) {
  const std::string request = value ? encode_number(1) + encode_text(name) + encode_text(*value) : encode_text(name);
  std::array<char, 64> reply{};
  const int r = opened.connection.note(rados_exec(opened.pool.io.get(), opened.header().c_str(), "rbd",
                                                  value ? "metadata_set" : "metadata_remove", request.data(),
                                                  request.size(), reply.data(), reply.size()));
  if (r >= 0 || (r == -ENOENT && !value)) return {};
  return failure("writing metadata " + name + " of image " + opened.text(), r);
}

}  // namespace corbd::rbd
