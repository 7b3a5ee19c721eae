#include "header.hpp"

#include <cerrno>
#include <memory>

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

int change_metadata(const ImageHandle& opened, const std::string& name, const std::optional<std::string>& value,
                    std::optional<std::uint64_t> version) {
  const std::string request = value ? encode_number(1) + encode_text(name) + encode_text(*value) : encode_text(name);
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  if (version) rados_write_op_assert_version(operation.get(), *version);
  rados_write_op_exec(operation.get(), "rbd", value ? "metadata_set" : "metadata_remove", request.data(),
                      request.size(), nullptr);
  return opened.connection.observe_result(
      rados_write_op_operate(operation.get(), opened.pool.io.get(), opened.header().c_str(), nullptr, 0));
}

result<> try_header_write(Connection& connection, const image::Key& key) {
  const auto pool = open_pool(connection.cluster, key.pool_id, key.ns);
  if (!pool) return pool.error();
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  // An OSD checks the rights for all of them first. One of the first two always fails, so nothing is ever written.
  rados_write_op_assert_exists(operation.get());
  rados_write_op_create(operation.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
  rados_write_op_exec(operation.get(), "rbd", "metadata_set", nullptr, 0, nullptr);
  // A full pool proves nothing about rights.
  const int r = connection.observe_result(rados_write_op_operate2(
      operation.get(), pool->io.get(), header_of(key).c_str(), nullptr, LIBRADOS_OPERATION_FULL_TRY));
  if (r == -EEXIST) return {};
  return failure("asking whether the user may write to image " + key.text(), r);
}

result<> write_header_metadata(const ImageHandle& opened, const std::string& name,
                               const std::optional<std::string>& value) {
  const int r = change_metadata(opened, name, value);
  if (r >= 0 || (r == -ENOENT && !value)) return {};
  return failure("writing metadata " + name + " of image " + opened.text(), r);
}

}  // namespace corbd::rbd
