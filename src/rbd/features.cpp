#include "features.hpp"

namespace corbd::rbd {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

void HeaderAnswer::ask(rados_read_op_t operation, const char* method, std::string_view input) {
  rados_read_op_exec(operation, "rbd", method, input.data(), input.size(), &bytes, &length, &error);
}

void HeaderAnswer::try_asking(rados_read_op_t operation, const char* method, std::string_view input) {
  ask(operation, method, input);
  rados_read_op_set_flags(operation, LIBRADOS_OP_FLAG_FAILOK);
}

std::string encode_head() {
  constexpr std::uint64_t head = static_cast<std::uint64_t>(-2);  // CEPH_NOSNAP
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(head >> (8 * i));
  return bytes;
}

FeatureQuestion::FeatureQuestion(rados_read_op_t operation) {
  features_.ask(operation, "get_features", encode_head() + '\1');  // asks as a reader
  operations_.try_asking(operation, "op_features_get");
}

std::optional<image::Features> FeatureQuestion::read() const {
  // get_features answers with u64 all, and u64 those without which it cannot be used.
  if (features_.text().size() < 16) return std::nullopt;
  image::Features found;
  found.bits = little_endian(features_.text().substr(0, 8));
  if (operations_.error >= 0 && operations_.length >= 8)
    found.operations = little_endian(operations_.text().substr(0, 8));
  return found;
}

}  // namespace corbd::rbd
