#include "modified.hpp"

#include <array>
#include <cerrno>

#include "failure.hpp"

namespace corbd::rbd {
namespace {

/// Of an old cluster.
bool knows_no_such_method(int r) { return r == -EOPNOTSUPP || r == -EINVAL; }

}  // namespace

std::optional<std::uint64_t> decode_modified(std::string_view reply) {
  constexpr std::size_t kNumber = 4;
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  if (reply.size() < 2 * kNumber) return std::nullopt;
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = kNumber; i > 0; --i) value = value << 8 | static_cast<unsigned char>(reply[at + i - 1]);
    return value;
  };
  return number(0) * kNanoseconds + number(kNumber);
}

result<std::optional<std::uint64_t>> read_modified(OpenImage& opened) {
  std::array<char, 64> reply{};
  const int r = opened.connection.note(rados_exec(opened.pool.io.get(), opened.header().c_str(), "rbd",
                                                  "get_modify_timestamp", nullptr, 0, reply.data(), reply.size()));
  if (knows_no_such_method(r)) return std::optional<std::uint64_t>();
  if (r < 0) return failure("reading the modify timestamp of image " + opened.text(), r);
  return decode_modified({reply.data(), static_cast<std::size_t>(r)});
}

result<std::optional<std::uint64_t>> stamp_modified(OpenImage& opened) {
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  rados_write_op_exec(operation.get(), "rbd", "set_modify_timestamp", nullptr, 0, nullptr);
  const int r = opened.connection.note(
      rados_write_op_operate(operation.get(), opened.pool.io.get(), opened.header().c_str(), nullptr, 0));
  if (knows_no_such_method(r)) return std::optional<std::uint64_t>();
  if (r < 0) return failure("setting the modify timestamp of image " + opened.text(), r);
  return read_modified(opened);
}

}  // namespace corbd::rbd
