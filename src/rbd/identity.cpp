#include "identity.hpp"

#include <array>
#include <cerrno>
#include <memory>

#include "failure.hpp"
#include "features.hpp"
#include "header.hpp"
#include "image_handle.hpp"

namespace corbd::rbd {
namespace {

constexpr std::uint64_t kNames = 16;  // limit of names; ceph-csi writes seven

Error unreadable(const image::Name& name, const char* what) {
  return {errc::internal, "image " + name.text() + ": its " + what + " cannot be read: it may come from a newer Ceph"};
}

Error cannot_read(const image::Name& name, int r) {
  if (r == -ENOENT)
    return {errc::not_found,
            "image " + name.text() + " does not exist: it was deleted, or the name, pool or namespace is wrong"};
  if (r == -EPERM || r == -EACCES)
    return failure("reading image " + name.text(), r,
                   "the user needs the OSD caps 'profile rbd' for this pool and namespace");
  return failure("reading image " + name.text(), r);
}

/// The header of an image of format 1 is named after the image.
bool is_old(Connection& connection, const Target& target) {
  return connection.observe_result(
             rados_stat(target.pool.io.get(), (target.name.image + ".rbd").c_str(), nullptr, nullptr)) == 0;
}

result<std::string> read_id(Connection& connection, const Target& target) {
  std::array<char, 1024> bytes{};
  const int r = connection.observe_result(
      rados_read(target.pool.io.get(), ("rbd_id." + target.name.image).c_str(), bytes.data(), bytes.size(), 0));
  if (r == -ENOENT && is_old(connection, target))
    return Error{
        errc::failed_precondition,
        "image " + target.name.text() + " has format 1, which is not supported: migrate it (rbd migration prepare)"};
  if (r < 0) return cannot_read(target.name, r);
  auto id = decode_text({bytes.data(), static_cast<std::size_t>(r)});
  if (!id || id->empty()) return unreadable(target.name, "id");
  return std::move(*id);
}

}  // namespace

std::optional<std::string> decode_text(std::string_view bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const std::uint64_t length = little_endian(bytes.substr(0, 4));
  if (bytes.size() - 4 < length) return std::nullopt;
  return std::string(bytes.substr(4, length));
}

std::map<std::string, std::string> decode_texts(std::string_view bytes) {
  std::map<std::string, std::string> all;
  if (bytes.size() < 4) return all;
  std::uint64_t left = little_endian(bytes.substr(0, 4));
  bytes.remove_prefix(4);
  for (; left > 0; --left) {
    auto name = decode_text(bytes);
    if (!name) return all;
    bytes.remove_prefix(4 + name->size());
    auto value = decode_text(bytes);
    if (!value) return all;
    bytes.remove_prefix(4 + value->size());
    all[std::move(*name)] = std::move(*value);
  }
  return all;
}

result<image::Resolved> read_identity(Connection& connection, const Target& target) {
  auto id = read_id(connection, target);
  if (!id) return id.error();
  image::Resolved found;
  found.key = {connection.fsid, target.pool_id, target.name.ns, std::move(*id), 0};
  found.cluster_id = connection.group->access.cluster_id;
  found.name = target.name;
  const std::unique_ptr<void, void (*)(rados_read_op_t)> operation(rados_create_read_op(), &rados_release_read_op);
  HeaderAnswer size, names;
  size.ask(operation.get(), "get_size", encode_head());
  const FeatureQuestion features(operation.get());
  // Names for people. Nothing depends on them, so they may fail. metadata_list takes the name to start after, and a
  // limit.
  std::string behind = encode_text(std::string(image::kProvisionedFor));
  for (int i = 0; i < 8; ++i) behind += static_cast<char>(kNames >> (8 * i));
  names.try_asking(operation.get(), "metadata_list", behind);
  const int r = connection.observe_result(rados_read_op_operate(
      operation.get(), target.pool.io.get(), header_of(found.key).c_str(), LIBRADOS_OPERATION_NOFLAG));
  for (const int failed : {r, size.error, features.error()})
    if (failed < 0) return cannot_read(target.name, failed);
  const auto bits = features.read();
  // get_size answers with u8 order, u64 bytes.
  if (size.text().size() < 9 || !bits) return unreadable(target.name, "size or features");
  found.size = little_endian(size.text().substr(1, 8));
  found.features = *bits;
  found.exclusive_lock = (bits->bits & image::kExclusiveLock) != 0;
  if (names.error >= 0)
    for (auto& [name, value] : decode_texts(names.text()))
      if (name.starts_with(image::kProvisionedFor)) found.provisioned_for[name] = std::move(value);
  return found;
}

}  // namespace corbd::rbd
