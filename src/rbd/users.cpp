#include "users.hpp"

#include <rbd/librbd.h>

#include <array>
#include <chrono>

#include "address.hpp"
#include "failure.hpp"

namespace corbd::rbd {
namespace {

// A pool may have many thousand images, and the caller waits.
constexpr std::chrono::seconds kAtMost{20};

result<std::vector<std::string>> list_images(Connection& connection, rados_ioctx_t io, const std::string& pool) {
  std::vector<rbd_image_spec_t> specs(256);
  std::size_t count = specs.size();
  int r = -ERANGE;
  for (int attempt = 0; attempt < 4 && r == -ERANGE; ++attempt) {
    specs.resize(std::max(specs.size(), count));
    count = specs.size();
    r = connection.observe_result(rbd_list2(io, specs.data(), &count));
  }
  if (r < 0) return failure("listing the images of pool " + pool, r);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.emplace_back(specs[i].name);
  rbd_image_spec_list_cleanup(specs.data(), count);
  return names;
}

result<> add_users(Connection& connection, rados_ioctx_t io, const std::string& name, const std::string& text,
                   std::vector<image::ImageUser>& into) {
  rbd_image_t image = nullptr;
  int r = connection.observe_result(rbd_open_read_only(io, name.c_str(), &image, nullptr));
  if (r == -ENOENT) return {};
  if (r < 0) return failure("opening image " + text, r);
  std::array<rbd_image_watcher_t, 64> watchers{};
  std::size_t count = watchers.size();
  r = connection.observe_result(rbd_watchers_list(image, watchers.data(), &count));
  if (r >= 0) {
    for (std::size_t i = 0; i < count; ++i)
      into.push_back({text, bare_address(watchers[i].addr), "client." + std::to_string(watchers[i].id)});
    rbd_watchers_list_cleanup(watchers.data(), count);
  }
  rbd_close(image);
  if (r < 0) return failure("asking who has image " + text + " open", r);
  return {};
}

}  // namespace

result<image::ImageUsers> list_users(Connection& connection, std::int64_t pool_id, const std::string& ns) {
  const auto pool = open_pool(connection.cluster, pool_id, ns);
  if (!pool) return pool.error();
  const auto names = list_images(connection, pool->io.get(), pool->text);
  if (!names) return names.error();
  image::ImageUsers found;
  const auto end = std::chrono::steady_clock::now() + kAtMost;
  for (std::size_t i = 0; i < names->size(); ++i) {
    if (std::chrono::steady_clock::now() >= end) {
      found.incomplete = "only " + std::to_string(i) + " of " + std::to_string(names->size()) +
                         " images were looked at, because it took too long";
      break;
    }
    auto added = add_users(connection, pool->io.get(), (*names)[i], pool->text + "/" + (*names)[i], found.users);
    if (!added) found.incomplete = added.error().text;
  }
  return found;
}

}  // namespace corbd::rbd
