#include "locks.hpp"

#include <algorithm>

#include "address.hpp"
#include "failure.hpp"

namespace corbd::rbd {
namespace {

constexpr const char* kLock = "rbd_lock";

// librados packs lists as texts one after another, each ended by a zero byte.
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

result<Lockers> list_lockers(Opened& opened) {
  // An I/O context of its own: it remembers the version of its last operation.
  const auto pool = open_pool(opened.connection.cluster, opened.key.pool_id, opened.key.ns);
  if (!pool) return pool.error();
  Packed tag(256), clients(1024), cookies(1024), addresses(2048);
  ssize_t count = -ERANGE;
  for (int attempt = 0; attempt < 8 && count == -ERANGE; ++attempt) {
    int exclusive = 0;
    tag.length = tag.text.size(), clients.length = clients.text.size();
    cookies.length = cookies.text.size(), addresses.length = addresses.text.size();
    count = rados_list_lockers(pool->io.get(), opened.header().c_str(), kLock, &exclusive, tag.text.data(), &tag.length,
                               clients.text.data(), &clients.length, cookies.text.data(), &cookies.length, addresses.text.data(),
                               &addresses.length);
    if (count == -ERANGE) tag.grow(), clients.grow(), cookies.grow(), addresses.grow();
  }
  if (count == -ENOENT) return Error{errc::not_found, "image " + opened.text() + " does not exist any more"};
  if (opened.connection.note(static_cast<int>(count)) < 0)
    return failure("asking who locks image " + opened.text(), static_cast<int>(count));
  const auto n = static_cast<std::size_t>(count);
  const auto client = unpack(clients.text, n), cookie = unpack(cookies.text, n), address = unpack(addresses.text, n);
  Lockers lockers;
  lockers.version = rados_get_last_version(pool->io.get());
  for (std::size_t i = 0; i < n; ++i) lockers.all.push_back({client[i], cookie[i], bare_address(address[i])});
  return lockers;
}

result<std::vector<std::string>> list_watchers(Opened& opened) {
  std::vector<rbd_image_watcher_t> raw(16);
  std::size_t count = raw.size();
  int r = -ERANGE;
  for (int attempt = 0; attempt < 8 && r == -ERANGE; ++attempt) {
    raw.resize(std::max(raw.size(), count));
    count = raw.size();
    r = opened.connection.note(rbd_watchers_list(opened.image, raw.data(), &count));
  }
  if (r < 0) return failure("asking who has image " + opened.text() + " open", r);
  std::vector<std::string> watchers;
  for (std::size_t i = 0; i < count; ++i)
    if (auto address = bare_address(raw[i].addr); std::find(watchers.begin(), watchers.end(), address) == watchers.end())
      watchers.push_back(std::move(address));
  rbd_watchers_list_cleanup(raw.data(), count);
  return watchers;
}

result<> break_lock_of(Opened& opened, const std::string& address) {
  const auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  for (const auto& locker : lockers->all) {
    if (locker.address != address) continue;
    const int r = opened.connection.note(rados_break_lock(opened.pool.io.get(), opened.header().c_str(), kLock, locker.client.c_str(),
                                                          locker.cookie.c_str()));
    if (r < 0 && r != -ENOENT) return failure("breaking the lock of " + address + " on image " + opened.text(), r);
  }
  return {};
}

result<image::Ownership> classify(const std::vector<Locker>& lockers, const std::vector<std::string>& watchers, const std::string& fsid,
                                  const std::string& mine, const Incarnations& known) {
  using Lock = image::Ownership::Lock;
  image::Ownership found;
  for (const auto& locker : lockers) {
    const auto* ours = known.find(fsid, locker.address);
    if (ours != nullptr && ours->state == Incarnation::State::live && ours->uuid != mine)
      return Error{errc::unavailable, "the image is still being closed on another connection of this agent (" + locker.address + ")"};
    const Lock lock = ours == nullptr ? Lock::other : ours->uuid == mine ? Lock::mine : Lock::our_dead;
    // Of several, a foreign one counts.
    if (found.lock != Lock::none && lock != Lock::other) continue;
    found.lock = lock;
    found.owner = locker.address;
  }
  for (const auto& watcher : watchers)
    if (known.find(fsid, watcher) == nullptr) found.foreign_watchers.push_back(watcher);
  return found;
}

}  // namespace corbd::rbd
