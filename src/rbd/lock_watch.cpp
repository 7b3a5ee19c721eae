#include "lock_watch.hpp"

#include <algorithm>

#include "async.hpp"
#include "corbd/core/log.hpp"
#include "failure.hpp"

namespace corbd::rbd {
namespace {

void acknowledge(void* argument, std::uint64_t notification, std::uint64_t handle, std::uint64_t, void* data,
                 std::size_t size) {
  auto& watch = *static_cast<LockWatch*>(argument);
  if (asks_owner({static_cast<const char*>(data), size})) return;
  const std::lock_guard sole(watch.answering);
  if (watch.pool.io.get() != nullptr)
    rados_notify_ack(watch.pool.io.get(), watch.header.c_str(), notification, handle, nullptr, 0);
}

/// Other clients then see a lock without a watcher, as if we had died.
void watch_lost(void*, std::uint64_t, int) {}

}  // namespace

// NotifyMessage of Ceph's src/librbd/WatchNotifyTypes.h: two bytes of version, four of length, and the operation as
// four bytes, little-endian.
bool asks_owner(std::string_view notification) {
  constexpr std::size_t kAt = 6;
  if (notification.size() < kAt + 4) return false;
  std::uint32_t operation = 0;
  for (std::size_t i = 0; i < 4; ++i)
    operation |= static_cast<std::uint32_t>(static_cast<unsigned char>(notification[kAt + i])) << (8 * i);
  // REQUEST_LOCK; FLATTEN to SPARSIFY, all of which change the image; METADATA_UPDATE.
  return operation == 2 || (operation >= 6 && operation <= 17) || operation == 20;
}

result<> set_watch(const ImageHandle& opened, LockWatch& watch) {
  if (watch.handle != 0) return {};
  if (watch.pool.io.get() == nullptr) {
    auto pool = open_pool(opened.connection.cluster, opened.key.pool_id, opened.key.ns);
    if (!pool) return pool.error();
    watch.pool = std::move(*pool);
    watch.header = opened.header();
    watch.image = opened.key.text();
  }
  std::uint64_t handle = 0;
  const int r = opened.connection.observe_result(
      rados_watch2(watch.pool.io.get(), watch.header.c_str(), &handle, &acknowledge, &watch_lost, &watch));
  if (r < 0) return failure("watching the header of image " + opened.text(), r);
  watch.handle = handle;
  return {};
}

task<> end_watch(executor control, Clock& clock, const ImageHandle& opened, std::shared_ptr<LockWatch> watch) {
  Connection& connection = opened.connection;
  const auto run = [&](auto submit) { return completed<Librados>(control, clock, std::move(submit)); };
  if (watch->handle != 0) {
    const int r = connection.observe_result(co_await run([&](rados_completion_t completion) {
      return rados_aio_unwatch(watch->pool.io.get(), watch->handle, completion);
    }));
    if (r < 0) log::warning("lock.watch_not_ended", {{"image", opened.text()}, {"error", reason(r)}});
    // A call of acknowledge() may be under way.
    static_cast<void>(co_await run(
        [&](rados_completion_t completion) { return rados_aio_watch_flush(connection.cluster, completion); }));
  }
  watch->silence();
  std::erase(connection.lock_watches, watch);
}

}  // namespace corbd::rbd
