#include "locks.hpp"

#include <algorithm>
#include <charconv>
#include <memory>

#include "address.hpp"
#include "failure.hpp"
#include "features.hpp"

namespace corbd::rbd {
namespace {

constexpr const char* kLock = "rbd_lock";

// Unpacks a list of librados: texts one after another, each with a zero byte at its end.
std::vector<std::string> unpack(const std::string& packed, std::size_t count) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  while (texts.size() < count && at < packed.size()) {
    texts.emplace_back(packed.c_str() + at);
    at += texts.back().size() + 1;
  }
  texts.resize(count);
  return texts;
}

struct Packed {
  std::string text;
  std::size_t length;
  explicit Packed(std::size_t room) : text(room, '\0'), length(room) {}
  bool grow() {
    if (length <= text.size()) return false;
    text.assign(length, '\0');
    return true;
  }
};

}  // namespace

result<Lockers> list_lockers(const ImageHandle& opened) {
  // This needs an I/O context of its own, which remembers the version of its last operation.
  const auto pool = open_pool(opened.connection.cluster, opened.key.pool_id, opened.key.ns);
  if (!pool) return pool.error();
  Packed tag(256), clients(1024), cookies(1024), addresses(2048);
  ssize_t count = -ERANGE;
  for (int attempt = 0; attempt < 8 && count == -ERANGE; ++attempt) {
    int exclusive = 0;
    tag.length = tag.text.size(), clients.length = clients.text.size();
    cookies.length = cookies.text.size(), addresses.length = addresses.text.size();
    count = rados_list_lockers(pool->io.get(), opened.header().c_str(), kLock, &exclusive, tag.text.data(), &tag.length,
                               clients.text.data(), &clients.length, cookies.text.data(), &cookies.length,
                               addresses.text.data(), &addresses.length);
    if (count == -ERANGE) tag.grow(), clients.grow(), cookies.grow(), addresses.grow();
  }
  if (count == -ENOENT) return Error{errc::not_found, "image " + opened.text() + " does not exist any more"};
  if (opened.connection.observe_result(static_cast<int>(count)) < 0)
    return failure("asking who locks image " + opened.text(), static_cast<int>(count));
  const auto n = static_cast<std::size_t>(count);
  const auto client = unpack(clients.text, n), cookie = unpack(cookies.text, n), address = unpack(addresses.text, n);
  Lockers lockers;
  lockers.version = rados_get_last_version(pool->io.get());
  for (std::size_t i = 0; i < n; ++i)
    lockers.all.push_back({client[i], cookie[i], bare_address(address[i]),
                           is_by_hand(cookie[i], tag.text.c_str(), opened.exclusive_lock())});
  return lockers;
}

result<std::vector<Watcher>> list_watchers(const ImageHandle& opened) {
  std::vector<rbd_image_watcher_t> raw(16);
  std::size_t count = raw.size();
  int r = -ERANGE;
  for (int attempt = 0; attempt < 8 && r == -ERANGE; ++attempt) {
    raw.resize(std::max(raw.size(), count));
    count = raw.size();
    r = opened.connection.observe_result(rbd_watchers_list(opened.image, raw.data(), &count));
  }
  if (r < 0) return failure("asking who has image " + opened.text() + " open", r);
  std::vector<Watcher> watchers;
  for (std::size_t i = 0; i < count; ++i) {
    Watcher watcher{bare_address(raw[i].addr), "client." + std::to_string(raw[i].id), raw[i].cookie};
    if (std::find(watchers.begin(), watchers.end(), watcher) == watchers.end()) watchers.push_back(std::move(watcher));
  }
  rbd_watchers_list_cleanup(raw.data(), count);
  return watchers;
}

/// Encodes as Ceph's ENCODE_START(1, 1): little-endian numbers, and texts after their lengths.
class Encoded {
 public:
  Encoded& number(auto value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      body_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
    return *this;
  }
  Encoded& text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    body_ += text;
    return *this;
  }
  /// Adds the version, and the oldest version that can read it.
  std::string whole() const {
    Encoded head;
    head.number(static_cast<std::uint32_t>(body_.size()));
    return std::string{1, 1} + head.body_ + body_;
  }

 private:
  std::string body_;
};

// Encodes cls_lock_break_op (src/cls/lock/cls_lock_ops.h of Ceph): name, locker as entity_name_t, cookie.
result<std::string> encode_break(const Locker& locker) {
  constexpr std::string_view prefix = "client.";
  constexpr unsigned char client_type = 8;  // CEPH_ENTITY_TYPE_CLIENT
  std::int64_t number = 0;
  const char* end = locker.client.data() + locker.client.size();
  const bool known = locker.client.starts_with(prefix);
  if (!known || std::from_chars(locker.client.data() + prefix.size(), end, number).ptr != end)
    return Error{errc::internal, "the lock's owner " + locker.client + " is not a client"};
  return Encoded().text(kLock).number(client_type).number(number).text(locker.cookie).whole();
}

// Encodes cls_lock_set_cookie_op: name, type, cookie, tag, new cookie. The tag is librbd's.
std::string encode_cookie(const Locker& locker, std::string_view cookie) {
  constexpr unsigned char exclusive = 1;  // ClsLockType::EXCLUSIVE
  return Encoded().text(kLock).number(exclusive).text(locker.cookie).text("internal").text(cookie).whole();
}

result<std::uint64_t> break_lock_of(const ImageHandle& opened, const std::string& address, Locks which,
                                    std::int64_t break_time) {
  const auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  // This needs an I/O context of its own, which remembers the version of its last operation.
  const auto pool = open_pool(opened.connection.cluster, opened.key.pool_id, opened.key.ns);
  if (!pool) return pool.error();
  bool broken = false;
  for (const auto& locker : lockers->all) {
    if (locker.address != address || locker.by_hand) continue;
    if (which == Locks::kept && !is_kept_cookie(locker.cookie)) continue;
    const auto request = encode_break(locker);
    if (!request) return request.error();
    const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
    rados_write_op_exec(operation.get(), "lock", "break_lock", request->data(), request->size(), nullptr);
    timespec time{break_time, 0};
    const int r = opened.connection.observe_result(
        rados_write_op_operate2(operation.get(), pool->io.get(), opened.header().c_str(),
                                break_time == 0 ? nullptr : &time, LIBRADOS_OPERATION_NOFLAG));
    if (r < 0 && r != -ENOENT) return failure("breaking the lock of " + address + " on image " + opened.text(), r);
    broken |= r >= 0;
  }
  if (broken) return rados_get_last_version(pool->io.get());
  // Another client may have had the image since that lock was seen.
  return Error{errc::unproven, "the client at " + address + " does not hold the lock of image " + opened.text() +
                                   " any more: the agent looks at the image again"};
}

// If librbd takes the lock anew meanwhile, it does not break this one, because it may not blocklist itself
// (connect.cpp's settings).
result<> keep_lock_of(const ImageHandle& opened, LockWatch& watch) {
  const std::string doing = "keeping the lock of image " + opened.text();
  const auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  const auto& mine = opened.connection.addresses;
  const auto ours = std::ranges::find_if(
      lockers->all, [&](const Locker& locker) { return std::ranges::find(mine, locker.address) != mine.end(); });
  if (ours == lockers->all.end()) return Error{errc::failed_precondition, doing + ": this client does not hold it"};
  if (auto watches = set_watch(opened, watch); !watches) return with_context(doing, watches.error());
  const std::string cookie = kept_cookie(watch.handle);
  if (ours->cookie == cookie) return {};
  const std::string request = encode_cookie(*ours, cookie);
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  rados_write_op_exec(operation.get(), "lock", "set_cookie", request.data(), request.size(), nullptr);
  const int r = opened.connection.observe_result(rados_write_op_operate2(
      operation.get(), opened.pool.io.get(), opened.header().c_str(), nullptr, LIBRADOS_OPERATION_NOFLAG));
  if (r < 0) return failure(doing, r);
  return {};
}

result<image::Header> look_at_header(Connection& connection, const image::Key& key) {
  const auto pool = open_pool(connection.cluster, key.pool_id, key.ns);
  if (!pool) return pool.error();
  image::Header found;
  std::uint64_t bytes = 0;
  time_t changed = 0;
  int stat_failed = 0;
  const std::unique_ptr<void, void (*)(rados_read_op_t)> operation(rados_create_read_op(), &rados_release_read_op);
  rados_read_op_stat(operation.get(), &bytes, &changed, &stat_failed);
  const FeatureQuestion features(operation.get());
  int r = connection.observe_result(
      rados_read_op_operate(operation.get(), pool->io.get(), header_of(key).c_str(), LIBRADOS_OPERATION_NOFLAG));
  for (const int failed : {stat_failed, features.error()})
    if (r >= 0 && failed < 0) r = failed;
  if (r == -ENOENT)
    return Error{errc::not_found, "image with id " + key.image_id + " in " + pool->text + " does not exist any more"};
  if (r < 0) return failure("looking at the header of image " + key.text(), r);
  found.version = rados_get_last_version(pool->io.get());
  found.break_time = changed;
  const auto bits = features.read();
  if (!bits)
    return Error{errc::internal,
                 "the features of image " + key.text() + " cannot be read: it may come from a newer Ceph"};
  found.features = *bits;
  return found;
}

namespace {

bool watches(const std::vector<Watcher>& watchers, const std::string& address) {
  return std::ranges::any_of(watchers, [&](const Watcher& watcher) { return watcher.address == address; });
}

/// Whether the watch only serves a lock that the predecessor keeps. That agent does not have the image open by it.
bool is_for_kept_lock(const Watcher& watcher, const std::vector<Locker>& lockers) {
  return std::ranges::any_of(lockers, [&](const Locker& locker) {
    return locker.address == watcher.address && locker.cookie == kept_cookie(watcher.handle);
  });
}

}  // namespace

std::vector<std::string> silent_owners(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                       const std::vector<std::string>& mine) {
  std::vector<std::string> silent;
  for (const auto& locker : lockers) {
    if (is_kept_cookie(locker.cookie)) silent.push_back(locker.address);
    if (is_kept_cookie(locker.cookie) || std::ranges::find(mine, locker.address) != mine.end()) continue;
    if (!watches(watchers, locker.address)) silent.push_back(locker.address);
  }
  return silent;
}

result<image::Ownership> classify(const std::vector<Locker>& lockers, const std::vector<Watcher>& watchers,
                                  const image::Key& image, const std::string& mine, const Incarnations& known) {
  using Lock = image::Ownership::Lock;
  image::Ownership found;
  for (const auto& locker : lockers) {
    const auto* ours = known.find(image.fsid, locker.address);
    if (ours != nullptr && ours->uuid != mine && ours->has(image.text()))
      return Error{errc::unavailable,
                   "the image is still being closed on another connection of this agent (" + locker.address + ")"};
    // librbd does not know a lock as its own that this client has kept and takes back. It would ask us for it.
    const bool held = ours != nullptr && ours->uuid == mine && !is_kept_cookie(locker.cookie);
    const Lock lock = ours == nullptr ? Lock::other : held ? Lock::mine : Lock::our_dead;
    // If there are several, a foreign one counts.
    if (found.lock != Lock::none && lock != Lock::other) continue;
    found.lock = lock;
    found.owner = locker.address;
    found.cookie = locker.cookie;
    found.clients[locker.address] = locker.client;
  }
  const auto known_foreign = [&](const Watcher& watcher) {
    return std::ranges::find(found.foreign_watchers, watcher.address) != found.foreign_watchers.end();
  };
  for (const auto& watcher : watchers) {
    const auto* ours = known.find(image.fsid, watcher.address);
    if (ours != nullptr && ours->state == Incarnation::State::yields && !is_for_kept_lock(watcher, lockers))
      return Error{errc::unavailable, "the predecessor still has the image open (" + watcher.address + ")"};
    if (ours != nullptr || known_foreign(watcher)) continue;
    found.foreign_watchers.push_back(watcher.address);
    found.clients[watcher.address] = watcher.client;
  }
  return found;
}

}  // namespace corbd::rbd
