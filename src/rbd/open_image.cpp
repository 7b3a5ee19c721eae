#include "open_image.hpp"

#include <array>
#include <boost/asio/post.hpp>
#include <vector>

#include "async.hpp"
#include "corbd/core/log.hpp"
#include "failure.hpp"
#include "locks.hpp"
#include "mirror.hpp"
#include "writer_mark.hpp"

namespace corbd::rbd {

constexpr std::chrono::seconds kSettled{5};

struct UpdateSignal {
  executor control;
  std::weak_ptr<OpenImage> opened;

  static void raise(void* argument) {
    const auto* signal = static_cast<UpdateSignal*>(argument);
    asio::post(signal->control, [weak = signal->opened] {
      const auto alive = weak.lock();
      if (!alive) return;
      want_refresh(alive);
      // After a watch is set again, it signals before the lock has its new cookie.
      if (alive->held)
        alive->connections.clock().schedule(alive->connections.clock().now() + kSettled, [weak] {
          if (const auto still = weak.lock()) want_refresh(still);
        });
    });
  }
};

OpenImage::OpenImage(Connections& all, Lease from, image::Key which, bool only_reads)
    : connections(all),
      lease(std::move(from)),
      connection(*lease.connection()),
      key(std::move(which)),
      read_only(only_reads),
      lock_watch_ended(all.control(), all.clock()),
      calls(all.control(), all.clock()),
      turn(all.control(), all.clock(), "the call under way on this image", 1),
      idle(all.control(), all.clock()),
      closed(all.control(), all.clock()) {}

OpenImage::~OpenImage() = default;

namespace {

std::string read_name(rbd_image_t image) {
  std::string name(256, '\0');
  std::size_t length = name.size();
  int r = rbd_get_name(image, name.data(), &length);
  if (r == -ERANGE) {
    name.resize(length);
    r = rbd_get_name(image, name.data(), &length);
  }
  return r < 0 ? std::string("?") : std::string(name.c_str());
}

result<std::vector<Option>> read_options(rbd_image_t image) {
  std::vector<rbd_config_option_t> raw(256);
  int count = static_cast<int>(raw.size());
  int r = rbd_config_image_list(image, raw.data(), &count);
  if (r == -ERANGE) {
    raw.resize(static_cast<std::size_t>(count));
    r = rbd_config_image_list(image, raw.data(), &count);
  }
  if (r < 0) return failure("reading the effective configuration", r);
  std::vector<Option> options;
  for (int i = 0; i < count; ++i) {
    const auto& one = raw[static_cast<std::size_t>(i)];
    const auto source = one.source == RBD_CONFIG_SOURCE_IMAGE  ? Option::Source::image
                        : one.source == RBD_CONFIG_SOURCE_POOL ? Option::Source::pool
                                                               : Option::Source::client;
    options.push_back({source, one.name, one.value});
  }
  rbd_config_image_list_cleanup(raw.data(), count);
  return options;
}

Error cannot_open(const image::Key& key, const std::string& pool, int r) {
  const std::string which = "image with id " + key.image_id + " in " + pool;
  if (r == -ENOENT) return {errc::not_found, which + " does not exist any more"};
  if (r == -EPERM || r == -EACCES)
    return failure(
        "opening the " + which, r,
        "the user needs the OSD caps 'profile rbd' for this pool, and for the pool of the parent of a clone");
  return failure("opening the " + which, r);
}

/// The features may change while the image is open. An existing device keeps its flags.
void note_features(OpenImage& opened, std::uint64_t features) {
  opened.journaled.store((features & RBD_FEATURE_JOURNALING) != 0, std::memory_order_relaxed);
}

Purpose purpose_of(const OpenImage& opened) {
  return {!opened.read_only || opened.refuse_as_writer, opened.despite_dirty_cache};
}

/// Does the work that is left after librbd has opened the image; pool thread.
result<> finish_open(OpenImage& opened) {
  if (opened.key.snap_id != 0)
    if (const int r = opened.connection.observe_result(rbd_snap_set_by_id(opened.image, opened.key.snap_id)); r < 0) {
      const std::string which = "snapshot " + std::to_string(opened.key.snap_id) + " of image " + opened.key.image_id;
      if (r == -ENOENT) return Error{errc::not_found, which + " does not exist any more"};
      return failure("going to " + which, r);
    }
  auto details = read_details(opened);
  if (!details) return details.error();
  opened.name = details->name;
  opened.features = details->features.bits;
  opened.size = details->size;
  note_features(opened, details->features.bits);
  const auto secondary = is_secondary(opened);
  if (!secondary) return secondary.error();
  details->secondary = *secondary;
  if (auto why = why_refused(*details, purpose_of(opened), opened.text())) return *std::move(why);
  if (details->decides_cache && opened.refuse_cache_metadata) return *details->decides_cache;
  std::uint64_t handle = 0;
  if (const int r = rbd_update_watch(opened.image, &handle, &UpdateSignal::raise, opened.signal.get()); r < 0)
    return failure("watching image " + opened.text(), r);
  opened.watch = handle;
  return {};
}

task<int> submit_open(OpenImage& opened, bool read_only) {
  auto submit = [&opened, read_only](rbd_completion_t completion) {
    const auto open = read_only ? &rbd_aio_open_by_id_read_only : &rbd_aio_open_by_id;
    return open(opened.pool.io.get(), opened.key.image_id.c_str(), &opened.image, nullptr, completion);
  };
  return completed<Librbd>(opened.connections.control(), opened.connections.clock(), submit);
}

// This waits for a callback under way, so do not call it on the control thread. Without this call librbd keeps the
// callback for ever.
task<> unwatch(OpenImage& opened) {
  auto job = [image = opened.image, watch = *opened.watch]() -> result<> {
    if (const int r = rbd_update_unwatch(image, watch); r < 0) return failure("ending the watch", r);
    return {};
  };
  BlockingCalls& calls = opened.lease->group->threads->cluster;
  const auto ended =
      co_await calls.call_to_end(opened.connections.gate(), std::move(job), "closing image " + opened.text(), false);
  if (!ended) log::warning("image.watch_not_ended", {{"image", opened.text()}, {"error", ended.error().text}});
}

void check_lock(OpenImage& opened, const Lockers& now) {
  const Clock& clock = opened.connections.clock();
  const OpenImage::Held was = *opened.held;
  const auto absent = std::max<duration>(clock.now() - was.seen, clock.wall() - was.seen_wall);
  if (still_held(was.cookie, absent, now.all, opened.connection.addresses))
    return note_held(opened, now.all.front().cookie);
  const Locker locker = now.all.empty() ? Locker{"", "", "nobody"} : now.all.front();
  mark_access_lost(opened, "its lock was lost, or lost and taken again: the cookie was '" + was.cookie + "' and is '" +
                               locker.cookie + "' of " + locker.address);
}

/// Logs it once, because every check finds it again.
void note_refused(OpenImage& opened, const std::string& why) {
  if (why == opened.refused_again) return;
  opened.refused_again = why;
  if (why.empty())
    log::info("image.next_open_allowed", {{"image", opened.text()}});
  else
    log::error("image.next_open_refused", {{"image", opened.text()},
                                           {"error", why},
                                           {"effect", "it is served on, and the next start or handover refuses it"}});
}

task<> refresh(std::shared_ptr<OpenImage> opened) {
  do {
    opened->refresh_again = false;
    auto job = [&image = *opened, locked = opened->held.has_value()] { return image.look(image, locked); };
    auto details = co_await opened->lease->group->threads->looks.call_to_end(opened->calls, std::move(job),
                                                                             "reading image " + opened->text());
    if (!details) {
      // There was no thread. The others hang in such reads, and their volumes are reported as stuck.
      const bool no_turn = details.error().code == errc::timed_out;
      if (!opened->closing)
        log::write(no_turn ? log::Level::debug : log::Level::warning, "image.not_refreshed",
                   {{"image", opened->text()}, {"error", details.error().text}});
    } else {
      note_look(*opened, *details);
    }
  } while (opened->refresh_again && !opened->closing);
  opened->refreshing = false;
}

}  // namespace

result<Details> read_details(OpenImage& opened, bool with_lockers) {
  Details details;
  if (const int r = opened.connection.observe_result(rbd_get_size(opened.image, &details.size)); r < 0)
    return failure("reading the image's size", r);
  if (const int r = opened.connection.observe_result(rbd_get_features(opened.image, &details.features.bits)); r < 0)
    return failure("reading the image's features", r);
  if (const int r = opened.connection.observe_result(rbd_get_op_features(opened.image, &details.features.operations));
      r < 0)
    return failure("reading the features of the image's operations", r);
  details.name = read_name(opened.image);
  auto options = read_options(opened.image);
  if (!options) return options.error();
  const bool exclusive_lock = (details.features.bits & RBD_FEATURE_EXCLUSIVE_LOCK) != 0;
  details.unsafe = unsafe(*options, exclusive_lock, opened.pool.text, details.name);
  details.decides_cache = decides_cache(*options, opened.pool.text, details.name);
  opened.stamps_writes = stamps_writes(*options);
  opened.caches_before_flush = caches_before_flush(*options);
  opened.read_policy = read_policy(*options);
  if (!with_lockers) return details;
  auto lockers = list_lockers(opened);
  if (!lockers) return lockers.error();
  details.lockers = std::move(*lockers);
  return details;
}

std::optional<Error> why_refused(const Details& details, Purpose purpose, const std::string& name) {
  if (purpose.writes && details.unsafe) return details.unsafe;
  if (details.secondary)
    return Error{errc::failed_precondition,
                 "image " + name + " mirrors another cluster's image: the agent serves it once it is primary here (" +
                     "rbd mirror image promote " + name + ")"};
  auto features = details.features;
  if (purpose.despite_dirty_cache) features.bits &= ~image::kDirtyCache;
  return image::refuse(features, purpose.writes, "image " + name);
}

result<Details> look_at(OpenImage& opened, bool with_lockers) {
  auto details = read_details(opened, with_lockers);
  if (!details) return details;
  // Nobody tells a reader's handle that the header has changed.
  if (opened.read_only) {
    const auto header = look_at_header(opened.connection, opened.key);
    if (!header) return header.error();
    details->features = header->features;
  }
  const auto secondary = is_secondary(opened);
  if (!secondary) return details;
  details->secondary = *secondary;
  const auto why = why_refused(*details, purpose_of(opened), opened.text());
  details->refused = why ? why->text : "";
  return details;
}

void note_look(OpenImage& opened, const Details& details) {
  note_size(opened, details.size);
  note_features(opened, details.features.bits);
  // librbd makes its caches when it opens an image. This one has none, and we refuse the next open.
  if (details.lockers && opened.held && !opened.closing) check_lock(opened, *details.lockers);
  if (details.refused) note_refused(opened, *details.refused);
}

task<result<std::shared_ptr<OpenImage>>> open_image(Connections& connections, Lease lease, image::Key key,
                                                    image::OpenOptions options) {
  const bool read_only = options.read_only || key.snap_id != 0;
  const auto opened = std::make_shared<OpenImage>(connections, std::move(lease), std::move(key), read_only);
  opened->refuse_as_writer = options.refuse_as_writer;
  opened->refuse_cache_metadata = options.refuse_cache_metadata;
  opened->despite_dirty_cache = options.despite_dirty_cache;
  opened->on_resized = std::move(options.on_resized);
  opened->on_lost = std::move(options.on_lost);
  auto find = [&image = *opened] { return open_pool(image.connection.cluster, image.key.pool_id, image.key.ns); };
  BlockingCalls& short_calls = opened->lease->group->threads->cluster;
  auto pool = co_await short_calls.call_to_end(opened->calls, std::move(find),
                                               "opening pool " + std::to_string(opened->key.pool_id));
  if (!pool) co_return pool.error();
  opened->pool = std::move(*pool);
  if (const int r = opened->connection.observe_result(co_await submit_open(*opened, read_only)); r < 0)
    co_return cannot_open(opened->key, opened->pool.text, r);
  opened->connection.images.insert(opened.get());
  opened->signal = std::make_unique<UpdateSignal>(UpdateSignal{connections.control(), opened});
  auto rest = [&image = *opened] { return finish_open(image); };
  auto finished =
      co_await opened->blocking().call_to_end(opened->calls, std::move(rest), "reading image " + opened->key.text());
  if (finished) {
    keep_looking(opened);
    co_return opened;
  }
  co_await close_image(opened);
  co_return finished.error();
}

task<> close_image(std::shared_ptr<OpenImage> opened) {
  if (opened->closing) co_return;
  opened->closing = true;
  opened->connection.images.erase(opened.get());
  // The write of the mark may still be under way, too.
  co_await opened->calls.close({});
  opened->leave();
  co_await opened->idle.future().get({}, "the last operation");
  // Nothing of this client can reach the image any more. The mark goes before the watch: alone it would say that the
  // client is dead.
  if (!opened->mark.empty()) {
    Connections& all = opened->connections;
    const auto removed = co_await persist(
        all.control(), all.clock(), [&image = *opened] { return remove_mark(image); },
        [&image = *opened] { return image.connection.blocklisted.load() || image.connections.is_leaving(); });
    if (!removed) {
      opened->connection.clean = false;
      log::warning("image.mark_left", {{"image", opened->text()}, {"error", removed.error().text}});
    }
  }
  if (opened->watch) co_await unwatch(*opened);
  auto submit = [raw = opened->image](rbd_completion_t completion) { return rbd_aio_close(raw, completion); };
  const int r = opened->connection.observe_result(
      co_await completed<Librbd>(opened->connections.control(), opened->connections.clock(), submit));
  // The handle is gone even after an error.
  if (r < 0) {
    opened->connection.clean = false;
    log::warning("image.closed_badly", {{"image", opened->text()}, {"error", reason(r)}});
  }
  opened->pool.io = IoCtx();
  opened->lease = Lease();
  opened->closed.set();
}

void note_size(OpenImage& opened, std::uint64_t bytes) {
  if (opened.size.exchange(bytes) == bytes) return;
  log::info("image.resized", {{"image", opened.text()}, {"bytes", bytes}});
  if (opened.on_resized && !opened.closing) opened.on_resized();
}

void note_held(OpenImage& opened, std::string cookie) {
  opened.held = OpenImage::Held{std::move(cookie), opened.connections.clock().now(), opened.connections.clock().wall()};
}

void mark_access_lost(OpenImage& opened, const std::string& why) {
  opened.held.reset();
  const auto told = std::exchange(opened.on_lost, nullptr);
  if (!told || opened.closing) return;
  log::warning("image.cut_off", {{"image", opened.text()}, {"cause", why}});
  told(why);
}

void keep_looking(const std::shared_ptr<OpenImage>& opened) {
  Connections& all = opened->connections;
  all.clock().schedule(all.clock().now() + all.config().looks_every, [weak = std::weak_ptr(opened)] {
    const auto still = weak.lock();
    if (!still || still->closing) return;
    want_refresh(still);
    keep_looking(still);
  });
}

void want_refresh(const std::shared_ptr<OpenImage>& opened) {
  opened->refresh_again = true;
  if (opened->refreshing || opened->closing) return;
  opened->refreshing = opened->calls.spawn(refresh(opened));
}

}  // namespace corbd::rbd
