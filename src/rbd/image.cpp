#include "image.hpp"

#include <algorithm>

#include "address.hpp"
#include "connect.hpp"
#include "emptiness.hpp"
#include "failure.hpp"
#include "lock_watch.hpp"
#include "locks.hpp"
#include "metadata.hpp"
#include "mirror.hpp"
#include "modified.hpp"
#include "writer_mark.hpp"

namespace corbd::rbd {
namespace {

/// Makes a blocking call on the image; `calls` keeps the handle open for it. One call at a time: an image that does not
/// answer takes only one thread of its cluster, however often it is asked.
template <class Job, class R = std::invoke_result_t<Job>>
task<R> call(std::shared_ptr<OpenImage> opened, Job job, Until until, std::string doing) {
  co_return co_await opened->blocking().call(opened->calls, std::move(job), until, std::move(doing), &opened->turn);
}

struct Seen {
  Lockers lockers;
  std::vector<Watcher> watchers;
  std::string writer = {};
  bool writer_signed = false;
  Traces traces = {};
};

result<Seen> see(OpenImage& opened) {
  auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  auto watchers = list_watchers(opened);
  if (!watchers) return watchers.error();
  return Seen{std::move(*lockers), std::move(*watchers)};
}

/// Leaves out rbd-mirror's clients, which use no volume's image.
result<Seen> see_users(OpenImage& opened, bool with_writer) {
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
    const auto traces = read_traces(opened, !opened.stamps_writes);
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
result<Taken> take_lock(OpenImage& opened, std::uint64_t proven) {
  const std::string doing = "taking the lock of image " + opened.text();
  const Clock& clock = opened.connections.clock();
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

result<> give_lock_back(OpenImage& opened) {
  const int r = opened.connection.observe_result(rbd_lock_release(opened.image));
  if (r < 0) return failure("releasing the lock of image " + opened.text(), r);
  return {};
}

}  // namespace

RbdImage::~RbdImage() {
  // This is refused while we leave. The connection then stays as it is, and the next start fences it.
  if (!opened_->closing) opened_->connections.gate().spawn(close_image(opened_));
}

task<result<>> RbdImage::refresh(Until until) {
  const auto opened = opened_;
  auto details = co_await call(
      opened, [&image = *opened] { return look_at(image, false); }, until, "reading image " + opened->text());
  if (!details) co_return details.error();
  note_look(*opened, *details);
  co_return result<>();
}

task<result<image::Ownership>> RbdImage::ownership(Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, marks = !exclusive_lock()] { return see_users(image, marks); };
  auto seen = co_await call(opened, std::move(job), until, "asking who uses image " + opened->text());
  if (!seen) co_return seen.error();
  if (auto refused = locked_by_hand(seen->lockers.all, opened->text())) co_return *refused;
  auto found = classify(seen->lockers.all, seen->watchers, opened->key.fsid, opened->connection.uuid,
                        opened->connections.incarnations());
  if (found) {
    found->version = opened->seen_version = seen->lockers.version;
    found->self = opened->connection.addresses.front();
    found->modified = seen->traces.modified;
    found->features = seen->traces.features;
    const auto* ours = opened->connections.incarnations().find(opened->key.fsid, seen->writer);
    if (ours != nullptr && ours->state == Incarnation::State::live && ours->uuid != opened->connection.uuid)
      co_return Error{errc::unavailable, "image " + opened->text() +
                                             " is still being closed on another connection of this agent (" +
                                             seen->writer + ")"};
    found->marked = ours != nullptr && ours->uuid == opened->connection.uuid;
    found->handed_over = ours != nullptr && (ours->state == Incarnation::State::yields || ours->handed_over);
    if (ours == nullptr) {
      found->writer = std::move(seen->writer);
      found->writer_signed = seen->writer_signed;
    }
  }
  co_return found;
}

task<result<>> RbdImage::break_dead_lock(std::string owner, std::int64_t break_time, Until until) {
  const auto opened = opened_;
  const std::string doing = "breaking the lock of " + owner + " on image " + opened->text();
  const auto* known = opened->connections.incarnations().find(opened->key.fsid, owner);
  using State = Incarnation::State;
  if (known != nullptr && known->state != State::fenced && known->state != State::yields)
    co_return Error{errc::failed_precondition, doing + ": that client is not one that this agent has fenced"};
  auto job = [&image = *opened, address = bare_address(owner), break_time, foreign = known == nullptr,
              doing]() -> result<std::uint64_t> {
    const auto fenced = foreign ? has_own_entry(image.connection.cluster, address) : result<bool>(true);
    if (!fenced) return fenced.error();
    if (!*fenced) return Error{errc::failed_precondition, doing + ": that client has no entry in the blocklist"};
    return break_lock_of(image, address, break_time);
  };
  const auto version = co_await call(opened, std::move(job), until, doing);
  if (!version) co_return version.error();
  opened->seen_version = *version;
  co_return result<>();
}

task<result<>> RbdImage::acquire_lock(Until until) {
  const auto opened = opened_;
  if (!exclusive_lock()) {
    // Set this before the write: close() then removes the mark, even if nobody learns how this call ends.
    if (opened->mark.empty()) opened->mark = new_mark(*opened);
    auto job = [&image = *opened, mark = opened->mark, seen = opened->seen_version] {
      return write_mark(image, mark, seen);
    };
    co_return co_await call(opened, std::move(job), until, "marking image " + opened->text());
  }
  auto job = [&image = *opened, proven = opened->seen_version] { return take_lock(image, proven); };
  auto taken = co_await call(opened, std::move(job), until, "taking the lock of image " + opened->text());
  if (!taken) co_return taken.error();
  opened->seen_version = 0;
  opened->lock_took = taken->took;
  note_held(*opened, std::move(taken->cookie));
  co_return result<>();
}

task<result<std::optional<std::uint64_t>>> RbdImage::stamp(Until until) {
  const auto opened = opened_;
  if (opened->stamps_writes) co_return std::optional<std::uint64_t>();
  co_return co_await call(
      opened, [&image = *opened] { return stamp_modified(image); }, until, "stamping image " + opened->text());
}

task<result<>> RbdImage::keep_lock(Until until) {
  const auto opened = opened_;
  opened->held.reset();
  opened->connection.keeps_locks = true;
  // The mark of an image without exclusive-lock stays by itself.
  opened->mark.clear();
  if (!exclusive_lock()) co_return result<>();
  if (!opened->lock_watch) {
    opened->lock_watch = opened->connection.lock_watches.emplace_back(std::make_shared<LockWatch>());
    opened->lock_watch_lease = Lease(opened->connections, opened->lease.connection());
  }
  auto job = [&image = *opened, watch = opened->lock_watch] { return keep_lock_of(image, *watch); };
  co_return co_await call(opened, std::move(job), until, "keeping the lock of image " + opened->text());
}

task<> RbdImage::lock_taken_over(Until until) {
  const auto opened = opened_;
  if (!opened->lock_watch || !opened->connections.gate().spawn(end_watch(opened))) co_return;
  static_cast<void>(co_await opened->lock_watch_ended.wait(until));
}

task<result<>> RbdImage::release_lock(Until until) {
  const auto opened = opened_;
  if (!exclusive_lock()) co_return result<>();
  opened->held.reset();
  co_return co_await call(
      opened, [&image = *opened] { return give_lock_back(image); }, until,
      "releasing the lock of image " + opened->text());
}

task<result<bool>> RbdImage::has_data(Until until) {
  const auto opened = opened_;
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  auto job = [&image = *opened, stop] { return rbd::has_data(image, *stop); };
  auto found = co_await call(opened, std::move(job), until, "looking for data in image " + opened->text());
  stop->store(true);
  co_return found;
}

task<result<std::optional<std::string>>> RbdImage::metadata(std::string name, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name] { return get_metadata(image, name); };
  co_return co_await call(opened, std::move(job), until, "reading metadata of image " + opened->text());
}

task<result<std::map<std::string, std::string>>> RbdImage::metadata_below(std::string prefix, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, prefix] { return list_metadata(image, prefix); };
  co_return co_await call(opened, std::move(job), until, "listing metadata of image " + opened->text());
}

// librbd refuses this to a reader. It would also take a lock that is not held.
task<result<>> RbdImage::set_metadata(std::string name, std::string value, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name, value, locked = opened->held.has_value()] {
    return write_metadata(image, name, value, locked);
  };
  co_return co_await call(opened, std::move(job), until, "writing metadata of image " + opened->text());
}

task<result<>> RbdImage::remove_metadata(std::string name, Until until) {
  const auto opened = opened_;
  auto job = [&image = *opened, name, locked = opened->held.has_value()] {
    return write_metadata(image, name, std::nullopt, locked);
  };
  co_return co_await call(opened, std::move(job), until, "removing metadata of image " + opened->text());
}

task<result<>> RbdImage::close(Until until) {
  const auto opened = opened_;
  if (!opened->closing && !opened->connections.gate().spawn(close_image(opened)))
    co_return Error{errc::cancelled, "closing image " + opened->text() + ": the agent is leaving"};
  const Waited how = co_await opened->closed.wait(until);
  if (how != Waited::ready) co_return wait_error(how, "image " + opened->text() + " to close");
  co_return result<>();
}

}  // namespace corbd::rbd
