// An open image: the librbd handle, the objects that keep it alive, and how to open and close it.
#pragma once

#include <atomic>
#include <mutex>

#include "deaf.hpp"
#include "image_handle.hpp"
#include "own_lock.hpp"
#include "quiesce.hpp"

namespace corbd::rbd {

/// Results of the last check of an open image. Any thread.
struct Checked {
  std::atomic<std::uint64_t> size{0};
  std::atomic<bool> journaled{true};  ///< it has the feature `journaling`: a flush is an event of its journal
  std::atomic<bool> caches_before_flush{false};  ///< image::Image::caches_before_flush()
  std::atomic<image::ReadPolicy> read_policy{};  ///< image::Image::read_policy()
  std::atomic<bool> stamps_writes{true};         ///< our own writes change the image's modify timestamp
  /// Returns whether the size is another one.
  bool store(const Details& details);
};

/// Passed to librbd's update watch. It must only signal (reading the size inside its callback deadlocks, ceph tracker
/// 50593). librbd may raise it after the image and the control executor have gone.
class UpdateSignal {
 public:
  UpdateSignal(executor control, std::function<void()> on_raised)
      : control_(std::move(control)), on_raised_(std::move(on_raised)) {}
  /// `signal`: an UpdateSignal. Posts its function, unless it is ended. librbd's thread.
  static void raise(void* signal);
  /// Any later raise() does nothing.
  void end();

 private:
  std::mutex mutex_;
  const executor control_;
  std::function<void()> on_raised_;  ///< null: ended. Guarded by mutex_
};

/// Measures how long the present job has run. There is one job at a time.
class JobTimer {
 public:
  /// The job runs while this lives. Any thread.
  class Running {
   public:
    explicit Running(JobTimer& of) : of_(of) { ++of_.changes_; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { ++of_.changes_; }

   private:
    JobTimer& of_;
  };
  /// Counts from the first call that finds the job. Control thread.
  duration lasted(time_point now) {
    const std::uint64_t changes = changes_;
    if (changes % 2 == 0) return {};
    if (std::exchange(found_, changes) != changes) since_ = now;
    return now - since_;
  }

 private:
  std::atomic<std::uint64_t> changes_{0};  ///< odd while a job is under way
  std::uint64_t found_ = 0;
  time_point since_{};
};

/// Control thread, except where noted. The last shared pointer to it must go on the control thread.
class OpenImage : public std::enable_shared_from_this<OpenImage> {
 public:
  using Look = std::function<result<Details>(const ImageHandle& opened, Purpose purpose, bool with_lockers)>;
  /// `look`: how the checks read the image; pool thread.
  OpenImage(Connections& all, Lease from, image::Key key, image::OpenOptions options, Look look = &look_at);
  ~OpenImage();

  /// Opens the image by ID and checks the configuration. It runs to the end. If the waiter leaves, the image is closed.
  static task<result<std::shared_ptr<OpenImage>>> open(Connections& connections, Lease lease, image::Key key,
                                                       image::OpenOptions options);
  /// Closes in the background once everything under way has ended. False: the agent is leaving, and it stays open.
  bool close_in_background();
  task<Waited> wait_closed(Until until) { return closed_.wait(until); }

  Connections& connections() const { return connections_; }
  const Lease& lease() const { return lease_; }
  /// Any thread.
  const ImageHandle& handle() const { return handle_; }
  /// Any thread.
  const Checked& checked() const { return checked_; }
  /// Implements image::Image::refused_again().
  const std::string& refused_again() const { return refused_again_; }
  OwnLock& lock() { return lock_; }

  /// An operation on the data begins or ends. The end of the last one lets a close continue. Any thread.
  void enter() { in_use_.fetch_add(1, std::memory_order_relaxed); }
  void leave() {
    if (in_use_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const auto last = idle_;  // setting it may end this object
    last.set(true);
  }
  /// Makes a blocking call on the image, which keeps the handle open for it. One call at a time: an image that does not
  /// answer takes only one thread of its cluster, however often it is asked.
  template <class Job, class R = std::invoke_result_t<Job, const ImageHandle&>>
  task<R> call(Job job, Until until, std::string doing) {
    return call_untimed(
        [&timer = call_timer_, job = std::move(job)](const ImageHandle& handle) {
          const JobTimer::Running running(timer);
          return job(handle);
        },
        until, std::move(doing));
  }
  /// The same, of a job that may take minutes while the cluster answers: unanswered() does not count it.
  template <class Job, class R = std::invoke_result_t<Job, const ImageHandle&>>
  task<R> call_untimed(Job job, Until until, std::string doing) {
    const auto self = shared_from_this();
    auto on_handle = [&handle = handle_, job = std::move(job)] { return job(handle); };
    co_return co_await threads().images.call(calls_, std::move(on_handle), until, std::move(doing), &turn_);
  }
  /// Implements image::Image::unanswered().
  duration unanswered() const;
  /// Implements image::Image::hearing.
  task<result<image::Hearing>> hearing(image::Range range, Until until);
  /// Implements image::Image::watch_quiesce().
  task<result<>> watch_quiesce(image::QuiesceHandlers handlers, Until until);
  /// Implements image::Image::used_bytes().
  task<result<std::optional<std::uint64_t>>> used_bytes(Until until);
  /// Reads it now, and notes what it finds.
  task<result<>> refresh(Until until);
  /// Reads the size, and checks the configuration and the lock again, every Config::looks_every, until the image
  /// closes.
  void keep_looking();
  /// Makes any earlier proof for the image void, and tells its owner, once.
  void mark_access_lost(const std::string& why);

 private:
  /// Questions of its client that had no answer when a new client's had one.
  struct Unheard {
    std::shared_ptr<Questions> asked;
    image::Range range;
    time_point since{};
  };
  ClusterThreads& threads() const { return *handle_.connection.threads; }
  task<> hear(std::shared_ptr<OpenImage> self, Lease keeps, image::Range range, Promise<image::Hearing> told);
  task<int> submit_open();
  result<> finish_open();
  task<> close(std::shared_ptr<OpenImage> self);
  task<> unwatch();
  task<> end_quiesce();
  task<> answer_quiesce(QuiesceWatch::Request request, int r);
  void refresh_twice();
  void refresh_soon();
  task<> refresh_until_current(std::shared_ptr<OpenImage> self);
  void note(const Details& details);
  void note_refused(const std::string& why);

  Connections& connections_;
  Lease lease_;
  const std::shared_ptr<Connection> connection_;  ///< for the handle, once the lease is over
  ImageHandle handle_;
  const Purpose purpose_;
  image::OpenOptions options_;
  const Look look_;
  Checked checked_;
  OwnLock lock_;
  std::string refused_again_;
  std::unique_ptr<UpdateSignal> signal_;
  std::optional<std::uint64_t> watch_;
  std::unique_ptr<QuiesceWatch> quiesce_;
  std::optional<Unheard> unheard_;
  bool refreshing_ = false, refresh_again_ = false;
  mutable JobTimer call_timer_;  ///< times the job of call(), while it has a thread
  mutable JobTimer look_timer_;  ///< times the look at the image, while it has one
  std::atomic<bool> stop_count_{false};
  /// Blocking calls under way. They use this object by reference and never by a shared pointer, because the last shared
  /// pointer must go on the control thread.
  Gate calls_;
  Slots turn_;
  std::atomic<std::int64_t> in_use_{1};  ///< operations under way, and one for being open
  Promise<bool> idle_;
  Event closed_;
  bool closing_ = false;
};

}  // namespace corbd::rbd
