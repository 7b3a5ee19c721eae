#include "open_image.hpp"

#include <boost/asio/post.hpp>

#include "async.hpp"
#include "corbd/core/log.hpp"
#include "deaf.hpp"
#include "failure.hpp"
#include "mirror.hpp"
#include "used.hpp"

namespace corbd::rbd {
namespace {

constexpr std::chrono::seconds kSettled{5};
/// Age of unanswered questions from which a client is deaf, if new ones are answered.
constexpr std::chrono::seconds kDeafAfter{20};

Error cannot_open(const image::Key& key, const std::string& pool, int r) {
  const std::string which = "image with id " + key.image_id + " in " + pool;
  if (r == -ENOENT) return {errc::not_found, which + " does not exist any more"};
  if (r == -EPERM || r == -EACCES)
    return failure(
        "opening the " + which, r,
        "the user needs the OSD caps 'profile rbd' for this pool, and for the pool of the parent of a clone");
  return failure("opening the " + which, r);
}

}  // namespace

bool Checked::store(const Details& details) {
  // The features may change while the image is open. An existing device keeps its flags.
  journaled.store((details.features.bits & RBD_FEATURE_JOURNALING) != 0, std::memory_order_relaxed);
  caches_before_flush = details.caches_before_flush;
  read_policy = details.read_policy;
  stamps_writes = details.stamps_writes;
  return size.exchange(details.size) != details.size;
}

void UpdateSignal::raise(void* signal) {
  auto& self = *static_cast<UpdateSignal*>(signal);
  const std::lock_guard sole(self.mutex_);
  if (self.on_raised_) asio::post(self.control_, self.on_raised_);
}

void UpdateSignal::end() {
  const std::lock_guard sole(mutex_);
  on_raised_ = nullptr;
}

OpenImage::OpenImage(Connections& all, Lease from, image::Key key, image::OpenOptions options, Look look)
    : connections_(all),
      lease_(std::move(from)),
      connection_(lease_.connection()),
      handle_{*connection_, options.read_only || key.snap_id != 0, std::move(key)},
      purpose_{!handle_.read_only || options.refuse_as_writer, options.despite_dirty_cache},
      options_(std::move(options)),
      look_(std::move(look)),
      lock_(*this),
      calls_(all.control(), all.clock()),
      turn_(all.control(), all.clock(), "the call under way on this image", 1),
      idle_(all.control(), all.clock()),
      closed_(all.control(), all.clock()) {}

OpenImage::~OpenImage() {
  if (quiesce_) {
    quiesce_->forget();
    static_cast<void>(quiesce_.release());  // librbd still calls it
  }
  if (!signal_) return;
  signal_->end();
  // librbd still raises it, so it stays allocated.
  if (watch_) static_cast<void>(signal_.release());
}

task<int> OpenImage::submit_open() {
  const UnderWay call(handle_.connection);
  auto submit = [this](rbd_completion_t completion) {
    const auto open = handle_.read_only ? &rbd_aio_open_by_id_read_only : &rbd_aio_open_by_id;
    return open(handle_.pool.io.get(), handle_.key.image_id.c_str(), &handle_.image, nullptr, completion);
  };
  return completed<Librbd>(connections_.control(), connections_.clock(), submit);
}

/// Does the work that is left after librbd has opened the image; pool thread.
result<> OpenImage::finish_open() {
  const image::Key& key = handle_.key;
  if (key.snap_id != 0)
    if (const int r = handle_.connection.observe_result(rbd_snap_set_by_id(handle_.image, key.snap_id)); r < 0) {
      const std::string which = "snapshot " + std::to_string(key.snap_id) + " of image " + key.image_id;
      if (r == -ENOENT) return Error{errc::not_found, which + " does not exist any more"};
      return failure("going to " + which, r);
    }
  auto layout = read_layout(handle_.image);
  if (!layout) return layout.error();
  handle_.layout = std::move(*layout);
  auto details = read_details(handle_);
  if (!details) return details.error();
  handle_.name = details->name;
  handle_.features = details->features.bits;
  checked_.store(*details);
  const auto secondary = is_secondary(handle_);
  if (!secondary) return secondary.error();
  details->secondary = *secondary;
  if (auto why = why_refused(*details, purpose_, handle_.text())) return *std::move(why);
  if (details->decides_cache && options_.refuse_cache_metadata) return *details->decides_cache;
  std::uint64_t watch = 0;
  if (const int r = rbd_update_watch(handle_.image, &watch, &UpdateSignal::raise, signal_.get()); r < 0)
    return failure("watching image " + handle_.text(), r);
  watch_ = watch;
  return {};
}

task<result<std::shared_ptr<OpenImage>>> OpenImage::open(Connections& connections, Lease lease, image::Key key,
                                                         image::OpenOptions options) {
  const auto opened = std::make_shared<OpenImage>(connections, std::move(lease), std::move(key), std::move(options));
  ImageHandle& handle = opened->handle_;
  auto find = [&handle] { return open_pool(handle.connection.cluster, handle.key.pool_id, handle.key.ns); };
  BlockingCalls& short_calls = opened->threads().cluster;
  auto pool = co_await short_calls.call_to_end(opened->calls_, std::move(find),
                                               "opening pool " + std::to_string(handle.key.pool_id));
  if (!pool) co_return pool.error();
  handle.pool = std::move(*pool);
  const int r = co_await opened->submit_open();
  if (handle.connection.observe_result(r) < 0) co_return cannot_open(handle.key, handle.pool.text, r);
  handle.connection.images.insert(opened.get());
  connections.incarnations().note_opened(handle.connection.uuid, handle.key.text());
  opened->signal_ = std::make_unique<UpdateSignal>(connections.control(), [weak = std::weak_ptr(opened)] {
    if (const auto alive = weak.lock()) alive->refresh_twice();
  });
  auto rest = [&image = *opened] { return image.finish_open(); };
  auto finished = co_await opened->threads().images.call_to_end(opened->calls_, std::move(rest),
                                                                "reading image " + handle.key.text());
  if (finished) {
    opened->keep_looking();
    co_return opened;
  }
  co_await opened->close(opened);
  co_return finished.error();
}

bool OpenImage::close_in_background() { return closing_ || connections_.gate().spawn(close(shared_from_this())); }

task<> OpenImage::close([[maybe_unused]] std::shared_ptr<OpenImage> self) {
  if (closing_) co_return;
  closing_ = true;
  stop_count_ = true;
  Connection& connection = handle_.connection;
  connection.images.erase(this);
  // The write of the mark may still be under way, too.
  co_await calls_.close({});
  leave();
  co_await idle_.future().get({}, "the last operation");
  // Nothing of this client can reach the image any more. The mark goes before the watch: alone it would say that the
  // client is dead.
  const auto removed = co_await lock_.remove_mark();
  if (!removed) {
    connection.clean = false;
    log::warning("image.mark_left", {{"image", handle_.text()}, {"error", removed.error().text}});
  }
  if (quiesce_) co_await end_quiesce();
  if (watch_) co_await unwatch();
  auto submit = [raw = handle_.image](rbd_completion_t completion) { return rbd_aio_close(raw, completion); };
  const int r =
      connection.observe_result(co_await completed<Librbd>(connections_.control(), connections_.clock(), submit));
  // The handle is gone even after an error.
  if (r < 0) {
    connection.clean = false;
    log::warning("image.closed_badly", {{"image", handle_.text()}, {"error", reason(r)}});
  }
  connections_.incarnations().note_closed(connection.uuid, handle_.key.text(), lock_.left());
  handle_.pool.io = IoCtx();
  unheard_.reset();
  lease_ = Lease();
  closed_.set();
}

// This waits for a callback under way, so do not call it on the control thread. Without this call librbd keeps the
// callback for ever.
task<> OpenImage::unwatch() {
  auto job = [image = handle_.image, watch = *watch_]() -> result<> {
    if (const int r = rbd_update_unwatch(image, watch); r < 0) return failure("ending the watch", r);
    return {};
  };
  const auto ended = co_await threads().cluster.call_to_end(connections_.gate(), std::move(job),
                                                            "closing image " + handle_.text(), false);
  if (ended)
    watch_.reset();
  else
    log::warning("image.watch_not_ended", {{"image", handle_.text()}, {"error", ended.error().text}});
}

task<result<>> OpenImage::watch_quiesce(image::QuiesceHandlers handlers, Until until) {
  const auto send = [weak = weak_from_this()](QuiesceWatch::Request request, int r) {
    const auto alive = weak.lock();
    // A close that has begun answers by itself.
    if (alive) static_cast<void>(alive->calls_.spawn(alive->answer_quiesce(request, r)));
  };
  auto watch = std::make_unique<QuiesceWatch>(connections_.control(), std::move(handlers), send);
  // The job keeps it: a caller that leaves early must not end a watch that begins.
  if (quiesce_ || closing_)
    co_return Error{errc::internal, "the snapshots of image " + handle_.text() + " are watched"};
  quiesce_ = std::move(watch);
  const auto begin = [watch = quiesce_.get()](const ImageHandle& handle) {
    return watch->begin(handle.image, handle.text());
  };
  co_return co_await call(begin, until, "watching the snapshots of image " + handle_.text());
}

task<> OpenImage::answer_quiesce(QuiesceWatch::Request request, int r) {
  auto job = [watch = quiesce_.get(), request, r]() -> result<> {
    watch->complete(request, r);
    return {};
  };
  const auto done = co_await threads().cluster.call_to_end(calls_, std::move(job),
                                                           "answering a snapshot of image " + handle_.text(), false);
  if (!done) log::warning("image.quiesce_not_answered", {{"image", handle_.text()}, {"error", done.error().text}});
}

task<> OpenImage::end_quiesce() {
  quiesce_->forget();
  auto job = [watch = quiesce_.get()]() -> result<> { return watch->end(); };
  const auto ended = co_await threads().cluster.call_to_end(connections_.gate(), std::move(job),
                                                            "closing image " + handle_.text(), false);
  if (ended)
    quiesce_.reset();
  else
    log::warning("image.watch_not_ended", {{"image", handle_.text()}, {"error", ended.error().text}});
}

/// It has a thread of its own and waits for no turn, so that it delays no other call on the image.
task<result<std::optional<std::uint64_t>>> OpenImage::used_bytes(Until until) {
  const auto self = shared_from_this();
  if (closing_ || !threads().counts.idle())
    co_return Error{errc::busy, "counting what image " + handle_.text() + " uses: an earlier count has not ended"};
  stop_count_ = false;
  auto job = [this] { return rbd::used_bytes(handle_, stop_count_); };
  auto counted =
      co_await threads().counts.call(calls_, std::move(job), until, "counting what image " + handle_.text() + " uses");
  stop_count_ = true;
  co_return counted;
}

task<result<>> OpenImage::refresh(Until until) {
  const auto self = shared_from_this();
  auto look = [this](const ImageHandle& handle) { return look_(handle, purpose_, false); };
  auto details = co_await call(std::move(look), until, "reading image " + handle_.text());
  if (!details) co_return details.error();
  note(*details);
  co_return result<>();
}

task<result<image::Hearing>> OpenImage::hearing(image::Range range, Until until) {
  Promise<image::Hearing> told(connections_.control(), connections_.clock());
  const auto future = told.future();
  if (!lease_.connection()) co_return image::Hearing::as_others;
  if (!connections_.gate().spawn(hear(shared_from_this(), Lease(connections_, lease_.connection()), range, told)))
    co_return Error{errc::cancelled, "the agent is leaving"};
  co_return co_await future.get(until, "the comparison of the client of image " + handle_.text() + " with a new one");
}

/// It works also while the image closes, because the close may wait for the same cluster.
task<> OpenImage::hear([[maybe_unused]] std::shared_ptr<OpenImage> self, Lease keeps, image::Range range,
                       Promise<image::Hearing> told) {
  const Unheard before = unheard_ ? *unheard_ : Unheard{nullptr, range, connections_.clock().now()};
  auto job = [connection = keeps.connection(), asked = before.asked, range = before.range,
              objects = ImageObjects{handle_.key, handle_.features, handle_.layout},
              ask_anew = connections_.asks_anew(keeps->group->access, handle_.key)]() mutable -> result<Comparison> {
    // Nothing of the questions may stay with this job, which may go after the client.
    Comparison done{std::move(asked)};
    auto answered = ask_anew([&](Connection& anew) -> result<> {
      if (!done.asked) {
        auto first = ask_about(objects, connection->cluster, range);
        if (!first) return first.error();
        done.asked = std::move(*first);
      }
      const auto asked_anew = ask_about(objects, anew.cluster, range);
      if (!asked_anew) return asked_anew.error();
      done.compared = compare(*done.asked, **asked_anew);
      (*asked_anew)->cancel();
      return {};
    });
    if (!answered) return answered.error();
    return done;
  };
  const auto done = co_await keeps->threads->comparisons.call_to_end(
      connections_.gate(), std::move(job), "comparing the client of image " + handle_.text() + " with a new one");
  unheard_.reset();
  if (!done) co_return told.set(done.error());
  if (done->compared != Compared::only_new) co_return told.set(image::Hearing::as_others);
  if (!closed_.is_set()) unheard_ = Unheard{done->asked, before.range, before.since};
  if (connections_.clock().now() - before.since < kDeafAfter) co_return told.set(image::Hearing::unsure);
  connections_.leave_deaf(keeps.connection());
  told.set(image::Hearing::deaf);
}

void OpenImage::keep_looking() {
  Clock& clock = connections_.clock();
  clock.schedule(clock.now() + connections_.config().looks_every, [weak = weak_from_this()] {
    const auto still = weak.lock();
    if (!still || still->closing_) return;
    still->refresh_soon();
    still->keep_looking();
  });
}

/// After a watch is set again, it signals before the lock has its new cookie.
void OpenImage::refresh_twice() {
  refresh_soon();
  if (!lock_.held()) return;
  Clock& clock = connections_.clock();
  clock.schedule(clock.now() + kSettled, [weak = weak_from_this()] {
    if (const auto still = weak.lock()) still->refresh_soon();
  });
}

void OpenImage::refresh_soon() {
  refresh_again_ = true;
  if (refreshing_ || closing_) return;
  refreshing_ = calls_.spawn(refresh_until_current(shared_from_this()));
}

duration OpenImage::unanswered() const {
  const time_point now = connections_.clock().now();
  return std::max(call_timer_.lasted(now), look_timer_.lasted(now));
}

task<> OpenImage::refresh_until_current([[maybe_unused]] std::shared_ptr<OpenImage> self) {
  do {
    refresh_again_ = false;
    auto job = [this, locked = lock_.held()] {
      const JobTimer::Running running(look_timer_);
      return look_(handle_, purpose_, locked);
    };
    auto details = co_await threads().looks.call_to_end(calls_, std::move(job), "reading image " + handle_.text());
    if (!details) {
      // There was no thread. The others hang in such reads, and their volumes are reported as stuck.
      const bool no_turn = details.error().code == errc::timed_out;
      if (!closing_)
        log::write(no_turn ? log::Level::debug : log::Level::warning, "image.not_refreshed",
                   {{"image", handle_.text()}, {"error", details.error().text}});
    } else {
      note(*details);
    }
  } while (refresh_again_ && !closing_);
  refreshing_ = false;
}

void OpenImage::note(const Details& details) {
  if (checked_.store(details)) {
    log::info("image.resized", {{"image", handle_.text()}, {"bytes", details.size}});
    if (options_.on_resized && !closing_) options_.on_resized();
  }
  // librbd makes its caches when it opens an image. This one has none, and we refuse the next open.
  if (details.lockers && lock_.held() && !closing_)
    if (const auto lost = lock_.check(*details.lockers)) mark_access_lost(*lost);
  if (details.refused) note_refused(*details.refused);
}

/// Logs it once, because every check finds it again.
void OpenImage::note_refused(const std::string& why) {
  if (why == refused_again_) return;
  refused_again_ = why;
  if (why.empty())
    log::info("image.next_open_allowed", {{"image", handle_.text()}});
  else
    log::error("image.next_open_refused", {{"image", handle_.text()},
                                           {"error", why},
                                           {"effect", "it is served on, and the next start or handover refuses it"}});
}

void OpenImage::mark_access_lost(const std::string& why) {
  lock_.mark_lost();
  const auto told = std::exchange(options_.on_lost, nullptr);
  if (!told || closing_) return;
  log::warning("image.cut_off", {{"image", handle_.text()}, {"cause", why}});
  told(why);
}

}  // namespace corbd::rbd
