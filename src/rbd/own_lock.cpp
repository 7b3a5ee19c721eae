#include "own_lock.hpp"

#include <algorithm>

#include "address.hpp"
#include "failure.hpp"
#include "locks.hpp"
#include "mirror.hpp"
#include "modified.hpp"
#include "open_image.hpp"
#include "writer_mark.hpp"

namespace corbd::rbd {
namespace {

struct Seen {
  Lockers lockers;
  std::vector<Watcher> watchers;
  std::string writer = {};
  bool writer_signed = false;
  Traces traces = {};
};

result<Seen> see(const ImageHandle& opened) {
  auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  auto watchers = list_watchers(opened);
  if (!watchers) return watchers.error();
  return Seen{std::move(*lockers), std::move(*watchers)};
}

/// Leaves out rbd-mirror's clients, which use no volume's image.
result<Seen> see_users(const ImageHandle& opened, bool with_writer, bool with_modified) {
  auto seen = see(opened);
  // A client that came between the two reads would show its mark and no watch.
  constexpr int kTries = 8;
  for (int tries = 1; seen && with_writer; ++tries) {
    auto mark = read_mark(opened);
    if (!mark) return mark.error();
    seen->writer = std::move(mark->writer);
    seen->writer_signed = mark->is_signed;
    if (seen->writer.empty() || mark->version == seen->lockers.version) break;
    if (tries == kTries)
      return Error{errc::unavailable, "the header of image " + opened.text() + " changes all the time"};
    seen = see(opened);
  }
  // Read this after the lock: everybody who has written by then is seen.
  if (seen) {
    const auto traces = read_traces(opened, with_modified);
    if (!traces) return traces.error();
    seen->traces = *traces;
  }
  // An image that is open for reading has no watch of its own.
  if (!seen || seen->watchers.size() <= (opened.read_only ? 0 : 1)) return seen;
  const auto daemons = mirror_daemons(opened);
  if (!daemons) return daemons.error();
  std::erase_if(seen->watchers, [&](const Watcher& watcher) { return daemons->contains(watcher.client); });
  return seen;
}

struct Taken {
  std::string cookie;
  duration took{};  ///< since the look before
};

/// `proven`: the version of the header when it was seen whose the image is; 0: nobody looked.
result<Taken> take_lock(const ImageHandle& opened, std::uint64_t proven, const Clock& clock) {
  const std::string doing = "taking the lock of image " + opened.text();
  // The steady clock of a suspended machine stands still.
  const auto began = clock.now();
  const auto began_wall = clock.wall();
  const auto seen = see(opened);
  if (!seen) return seen.error();
  if (auto refused = locked_by_hand(seen->lockers.all, opened.text())) return *refused;
  if (proven != 0 && seen->lockers.version != proven)
    return Error{errc::unproven, doing + ": another client changed its header meanwhile"};
  // librbd would break the lock of such an owner, and have it cut off for an hour. A node may be away for longer, and
  // its writes under way would then still arrive.
  if (const auto silent = silent_owners(seen->lockers.all, seen->watchers, opened.connection.addresses);
      !silent.empty())
    return Error{errc::in_use, doing + ": the client at " + silent.front() + ", which is dead or away, still holds it"};
  const int r = opened.connection.observe_result(rbd_lock_acquire(opened.image, RBD_LOCK_MODE_EXCLUSIVE));
  if (r == -EROFS || r == -EBUSY || r == -EAGAIN)
    return Error{errc::in_use, doing + ": another client holds it and does not give it up"};
  if (r < 0) return failure(doing, r);
  const auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  if (lockers->all.size() != 1)
    return Error{errc::in_use, doing + ": it is locked by " + std::to_string(lockers->all.size()) + " clients"};
  return Taken{lockers->all.front().cookie, std::max<duration>(clock.now() - began, clock.wall() - began_wall)};
}

result<> give_lock_back(const ImageHandle& opened) {
  const int r = opened.connection.observe_result(rbd_lock_release(opened.image));
  if (r < 0) return failure("releasing the lock of image " + opened.text(), r);
  return {};
}

}  // namespace

OwnLock::OwnLock(OpenImage& opened)
    : opened_(opened),
      handle_(opened.handle()),
      connections_(opened.connections()),
      watch_ended_(connections_.control(), connections_.clock()) {}

task<result<image::Ownership>> OwnLock::ownership(Until until) {
  const auto keeps = opened_.shared_from_this();
  const Connection& client = handle_.connection;
  auto job = [&own = opened_.checked().stamps_writes](const ImageHandle& handle) {
    return see_users(handle, !handle.exclusive_lock(), !own);
  };
  auto seen = co_await opened_.call(std::move(job), until, "asking who uses image " + handle_.text());
  if (!seen) co_return seen.error();
  if (auto refused = locked_by_hand(seen->lockers.all, handle_.text())) co_return *refused;
  const Incarnations& known = connections_.incarnations();
  auto found = classify(seen->lockers.all, seen->watchers, handle_.key, client.uuid, known);
  if (!found) co_return found;
  found->version = seen_version_ = seen->lockers.version;
  found->self = client.addresses.front();
  found->modified = seen->traces.modified;
  found->features = seen->traces.features;
  const auto* ours = known.find(handle_.key.fsid, seen->writer);
  if (ours != nullptr && ours->uuid != client.uuid && ours->has(handle_.key.text()))
    co_return Error{errc::unavailable, "image " + handle_.text() +
                                           " is still being closed on another connection of this agent (" +
                                           seen->writer + ")"};
  found->marked = ours != nullptr && ours->uuid == client.uuid;
  found->handed_over = ours != nullptr && (ours->state == Incarnation::State::yields || ours->handed_over ||
                                           ours->has_left(handle_.key.text()));
  if (ours == nullptr) {
    found->writer = std::move(seen->writer);
    found->writer_signed = seen->writer_signed;
  }
  co_return found;
}

task<result<>> OwnLock::break_dead(std::string owner, std::int64_t break_time, Until until) {
  const auto keeps = opened_.shared_from_this();
  const std::string doing = "breaking the lock of " + owner + " on image " + handle_.text();
  const auto* known = connections_.incarnations().find(handle_.key.fsid, owner);
  using State = Incarnation::State;
  const bool own = known != nullptr && known->uuid == handle_.connection.uuid;
  if (own && known->open.count(handle_.key.text()) > 1)
    co_return Error{errc::unavailable, doing + ": this client has not closed it yet"};
  if (known != nullptr && !own && known->state != State::fenced && known->state != State::yields &&
      !known->has_left(handle_.key.text()))
    co_return Error{errc::failed_precondition, doing + ": that client is not one that this agent has fenced"};
  // A living client of ours has left its lock, or may have taken another one since that librbd holds.
  const Locks which = known != nullptr && known->state == State::live ? Locks::kept : Locks::all;
  auto job = [address = bare_address(owner), break_time, foreign = known == nullptr, which,
              doing](const ImageHandle& handle) -> result<std::uint64_t> {
    const auto fenced = foreign ? has_own_entry(handle.connection.cluster, address) : result<bool>(true);
    if (!fenced) return fenced.error();
    if (!*fenced) return Error{errc::failed_precondition, doing + ": that client has no entry in the blocklist"};
    return break_lock_of(handle, address, which, break_time);
  };
  const auto version = co_await opened_.call(std::move(job), until, doing);
  if (!version) co_return version.error();
  seen_version_ = *version;
  co_return result<>();
}

task<result<>> OwnLock::acquire(Until until) {
  const auto keeps = opened_.shared_from_this();
  connections_.incarnations().note_taken(handle_.connection.uuid, handle_.key.text());
  if (!handle_.exclusive_lock()) {
    // Set this before the write: a close then removes the mark, even if nobody learns how this call ends.
    if (mark_.empty()) mark_ = new_mark(handle_);
    auto job = [mark = mark_, seen = seen_version_](const ImageHandle& handle) {
      return write_mark(handle, mark, seen);
    };
    co_return co_await opened_.call(std::move(job), until, "marking image " + handle_.text());
  }
  auto job = [proven = seen_version_, &clock = std::as_const(connections_.clock())](const ImageHandle& handle) {
    return take_lock(handle, proven, clock);
  };
  auto taken = co_await opened_.call(std::move(job), until, "taking the lock of image " + handle_.text());
  if (!taken) co_return taken.error();
  seen_version_ = 0;
  took_ = taken->took;
  note_held(std::move(taken->cookie));
  static_cast<void>(connections_.gate().spawn(end_earlier_watches(keeps)));
  co_return result<>();
}

/// Ends the watches of kept locks that nobody took over. Such a watch acknowledges no request to the lock's owner, and
/// would delay other clients' requests to us.
task<> OwnLock::end_earlier_watches([[maybe_unused]] std::shared_ptr<OpenImage> keeps) {
  for (const auto& watch : std::vector(handle_.connection.lock_watches))
    if (watch != watch_ && watch->image == handle_.key.text())
      co_await end_watch(connections_.control(), connections_.clock(), handle_, watch);
}

task<result<>> OwnLock::keep(Until until) {
  const auto keeps = opened_.shared_from_this();
  held_.reset();
  left_ = true;
  handle_.connection.keeps_locks = true;
  // The mark of an image without exclusive-lock stays by itself.
  mark_.clear();
  if (!handle_.exclusive_lock()) co_return result<>();
  if (!watch_) {
    watch_ = handle_.connection.lock_watches.emplace_back(std::make_shared<LockWatch>());
    watch_lease_ = Lease(connections_, opened_.lease().connection());
  }
  auto job = [watch = watch_](const ImageHandle& handle) { return keep_lock_of(handle, *watch); };
  co_return co_await opened_.call(std::move(job), until, "keeping the lock of image " + handle_.text());
}

task<> OwnLock::taken_over(Until until) {
  const auto keeps = opened_.shared_from_this();
  if (!watch_ || !connections_.gate().spawn(end_watch_if_taken(keeps))) co_return;
  static_cast<void>(co_await watch_ended_.wait(until));
}

/// A free lock was not taken: the next agent broke the kept one, and its proof is a header that has not changed since.
/// The agent that got the image may have failed to take its lock. An error of the cluster counts as not taken.
task<> OwnLock::end_watch_if_taken([[maybe_unused]] std::shared_ptr<OpenImage> keeps) {
  auto look = [&handle = handle_] { return list_lockers(handle); };
  BlockingCalls& calls = watch_lease_->threads->images;
  const auto lockers = co_await calls.call_to_end(connections_.gate(), std::move(look),
                                                  "asking who locks image " + handle_.text(), false);
  const auto& mine = handle_.connection.addresses;
  const auto is_mine = [&](const Locker& locker) { return std::ranges::find(mine, locker.address) != mine.end(); };
  if (lockers && !lockers->all.empty() && std::ranges::none_of(lockers->all, is_mine)) {
    co_await end_watch(connections_.control(), connections_.clock(), handle_, watch_);
    watch_.reset();
    watch_lease_ = Lease();
  }
  watch_ended_.set();
}

task<result<>> OwnLock::release(Until until) {
  if (!handle_.exclusive_lock()) co_return result<>();
  held_.reset();
  co_return co_await opened_.call(&give_lock_back, until, "releasing the lock of image " + handle_.text());
}

std::optional<std::string> OwnLock::check(const Lockers& now) {
  const Clock& clock = connections_.clock();
  const auto absent = std::max<duration>(clock.now() - held_->seen, clock.wall() - held_->seen_wall);
  if (still_held(held_->cookie, absent, now.all, handle_.connection.addresses)) {
    note_held(now.all.front().cookie);
    return std::nullopt;
  }
  const Locker locker = now.all.empty() ? Locker{"", "", "nobody"} : now.all.front();
  return "its lock was lost, or lost and taken again: the cookie was '" + held_->cookie + "' and is '" + locker.cookie +
         "' of " + locker.address;
}

task<result<>> OwnLock::remove_mark() {
  if (mark_.empty()) co_return result<>();
  co_return co_await persist(
      connections_.control(), connections_.clock(),
      [this] { return rbd::remove_mark(connections_.control(), connections_.clock(), handle_, mark_); },
      [this] { return handle_.connection.blocklisted.load() || connections_.is_leaving(); });
}

void OwnLock::note_held(std::string cookie) {
  held_ = Held{std::move(cookie), connections_.clock().now(), connections_.clock().wall()};
}

}  // namespace corbd::rbd
