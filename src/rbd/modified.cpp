#include "modified.hpp"

#include <cerrno>
#include <memory>

#include "failure.hpp"
#include "features.hpp"

namespace corbd::rbd {
namespace {

/// An old cluster answers with these.
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

result<Traces> read_traces(const ImageHandle& opened, bool with_modified) {
  const std::string doing = "reading features and modify timestamp of image " + opened.text();
  const std::unique_ptr<void, void (*)(rados_read_op_t)> operation(rados_create_read_op(), &rados_release_read_op);
  const FeatureQuestion features(operation.get());
  HeaderAnswer modified;
  if (with_modified) modified.try_asking(operation.get(), "get_modify_timestamp");
  const int r = opened.connection.observe_result(
      rados_read_op_operate(operation.get(), opened.pool.io.get(), opened.header().c_str(), LIBRADOS_OPERATION_NOFLAG));
  for (const int failed : {r, features.error()})
    if (failed < 0) return failure(doing, failed);
  const auto bits = features.read();
  if (!bits) return Error{errc::internal, doing + ": the answer is not understood: it may come from a newer Ceph"};
  Traces found{*bits, std::nullopt};
  if (!with_modified || knows_no_such_method(modified.error)) return found;
  if (modified.error < 0) return failure(doing, modified.error);
  found.modified = decode_modified(modified.text());
  return found;
}

result<std::optional<std::uint64_t>> stamp_modified(const ImageHandle& opened) {
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  rados_write_op_exec(operation.get(), "rbd", "set_modify_timestamp", nullptr, 0, nullptr);
  const int r = opened.connection.observe_result(
      rados_write_op_operate(operation.get(), opened.pool.io.get(), opened.header().c_str(), nullptr, 0));
  if (knows_no_such_method(r)) return std::optional<std::uint64_t>();
  if (r < 0) return failure("setting the modify timestamp of image " + opened.text(), r);
  auto traces = read_traces(opened, true);
  if (!traces) return traces.error();
  return traces->modified;
}

}  // namespace corbd::rbd
