#include "corbd/core/helper_pool.hpp"

#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "corbd/core/expect.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/secret.hpp"
#include "helper_wire.hpp"

namespace corbd {
namespace {

namespace json = boost::json;
using Descriptor = asio::posix::stream_descriptor;

struct Job {
  Job(HelperRequest asked, executor control, Clock& clock) : request(std::move(asked)), promise(control, clock) {}
  ~Job() { wipe(request.body); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  HelperRequest request;
  Promise<json::object> promise;
  bool abandoned = false;  ///< the caller left while the request waited in the queue
};

struct Helper {
  enum class State { idle, working, stuck, ending };
  Helper(executor control, helper_wire::Child child)
      : pid(child.pid), socket(control, child.socket.release()), pidfd(control, child.pidfd.release()) {}
  int pid;
  Descriptor socket;
  Descriptor pidfd;
  State state = State::idle;
  std::shared_ptr<Job> job;
  time_point since;
  Clock::TimerId timer = 0;
};

std::string how_it_ended(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "exit code " + std::to_string(info.si_status);
  return "signal " + std::to_string(info.si_status);
}

}  // namespace

class HelperPool::Impl {
 public:
  Impl(executor control, Clock& clock, Config config) : control_(control), clock_(clock), config_(std::move(config)) {}
  ~Impl();

  std::shared_ptr<Job> submit(HelperRequest request);
  std::vector<Stuck> stuck() const;

 private:
  using Id = std::uint64_t;

  void dispatch();
  std::size_t count(Helper::State state, const std::string& whose) const;
  std::optional<Error> overwhelmed(const std::string& whose) const;
  bool give(Helper& helper, Id id, const std::shared_ptr<Job>& job, const std::string& message);
  void start(const std::shared_ptr<Job>& job);
  void send_to_one(const std::shared_ptr<Job>& job, const std::string& message);
  result<Id> add();
  void watch_socket(Id id);
  void watch_exit(Id id);
  void on_socket(Id id);
  void on_reply(Helper& helper, Id id, const std::string& message);
  void on_closed(Helper& helper);
  void on_exit(Id id);
  void on_time(Id id, const std::shared_ptr<Job>& job);
  std::shared_ptr<Job> release(Helper& helper, Helper::State next);
  void rest(Helper& helper, Id id);
  void end(Helper& helper);
  Helper* find(Id id);

  executor control_;
  Clock& clock_;
  Config config_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::map<Id, Helper> helpers_;
  Id last_id_ = 0;
  /// Handlers that were already queued when the pool was destroyed check this first.
  std::shared_ptr<void> alive_ = std::make_shared<char>();
};

HelperPool::Impl::~Impl() {
  const Error gone{errc::cancelled, "the agent is stopping"};
  for (const auto& job : queue_) job->promise.set(gone);
  for (auto& [id, helper] : helpers_) {
    if (helper.timer != 0) clock_.cancel(helper.timer);
    if (helper.state == Helper::State::working) helper.job->promise.set(gone);
  }
}

std::shared_ptr<Job> HelperPool::Impl::submit(HelperRequest request) {
  auto job = std::make_shared<Job>(std::move(request), control_, clock_);
  queue_.push_back(job);
  dispatch();
  return job;
}

std::size_t HelperPool::Impl::count(Helper::State state, const std::string& whose) const {
  return static_cast<std::size_t>(std::ranges::count_if(helpers_, [&](const auto& entry) {
    return entry.second.state == state &&
           (entry.second.job == nullptr || entry.second.job->request.owner.whose == whose);
  }));
}

/// Nothing ends a stuck helper, so their number has a bound.
std::optional<Error> HelperPool::Impl::overwhelmed(const std::string& whose) const {
  const auto stuck = count(Helper::State::stuck, whose);
  if (stuck < config_.max_stuck) return std::nullopt;
  const auto first = std::ranges::find_if(helpers_, [&](const auto& entry) {
    return entry.second.state == Helper::State::stuck && entry.second.job->request.owner.whose == whose;
  });
  return Error{errc::unavailable, std::to_string(stuck) + " helpers hang for " + whose + ", the first in '" +
                                      first->second.job->request.what + "' (process " +
                                      std::to_string(first->second.pid) +
                                      "): the agent starts no more of them until one ends"};
}

/// Requests of one owner start in the order in which they came. No request waits for another owner's.
void HelperPool::Impl::dispatch() {
  for (auto place = queue_.begin(); place != queue_.end();) {
    const auto job = *place;
    const std::string& whose = job->request.owner.whose;
    const auto refused = overwhelmed(whose);
    if (!refused && !job->abandoned && count(Helper::State::working, whose) >= config_.max_helpers) {
      ++place;
      continue;
    }
    place = queue_.erase(place);
    if (job->abandoned) continue;
    if (refused)
      job->promise.set(with_context(job->request.what, *refused));
    else
      start(job);
  }
}

void HelperPool::Impl::start(const std::shared_ptr<Job>& job) {
  std::string message = helper_wire::pack_request(job->request);
  wipe(job->request.body);
  send_to_one(job, message);
  wipe(message);
}

void HelperPool::Impl::send_to_one(const std::shared_ptr<Job>& job, const std::string& message) {
  if (message.size() > helper_wire::kMaxMessage)
    return job->promise.set(
        Error{errc::invalid_argument, job->request.what + ": the request is longer than a message may be"});
  for (auto& [id, helper] : helpers_)
    if (helper.state == Helper::State::idle && give(helper, id, job, message)) return;
  const auto added = add();
  if (!added) return job->promise.set(with_context(job->request.what, added.error()));
  if (!give(helpers_.at(*added), *added, job, message))
    job->promise.set(Error{errc::unavailable, "a new helper died at once: " + job->request.what});
}

// Returns false if the helper is dead. Then nothing of the request has begun.
bool HelperPool::Impl::give(Helper& helper, Id id, const std::shared_ptr<Job>& job, const std::string& message) {
  const int refused = helper_wire::send(helper.socket.native_handle(), message);
  if (refused == EPIPE || refused == ECONNRESET) {
    end(helper);
    return false;
  }
  if (refused != 0) {
    job->promise.set(Error{errc::unavailable, job->request.what + ": asking the helper: " + std::strerror(refused)});
    return true;
  }
  release(helper, Helper::State::working);
  helper.job = job;
  helper.since = clock_.now();
  helper.timer =
      clock_.schedule(helper.since + job->request.report_after, [this, id, job, alive = std::weak_ptr<void>(alive_)] {
        if (!alive.expired()) on_time(id, job);
      });
  return true;
}

result<HelperPool::Impl::Id> HelperPool::Impl::add() {
  auto child = helper_wire::spawn(config_.program, config_.arguments);
  if (!child) return child.error();
  const Id id = ++last_id_;
  helpers_.try_emplace(id, control_, std::move(*child));
  watch_socket(id);
  watch_exit(id);
  return id;
}

void HelperPool::Impl::watch_socket(Id id) {
  helpers_.at(id).socket.async_wait(Descriptor::wait_read,
                                    [this, id, alive = std::weak_ptr<void>(alive_)](boost::system::error_code failed) {
                                      if (!failed && !alive.expired()) on_socket(id);
                                    });
}

void HelperPool::Impl::watch_exit(Id id) {
  helpers_.at(id).pidfd.async_wait(Descriptor::wait_read,
                                   [this, id, alive = std::weak_ptr<void>(alive_)](boost::system::error_code failed) {
                                     if (!failed && !alive.expired()) on_exit(id);
                                   });
}

void HelperPool::Impl::on_socket(Id id) {
  Helper* helper = find(id);
  if (helper == nullptr || !helper->socket.is_open()) return;
  std::string message;
  const auto got = helper_wire::receive(helper->socket.native_handle(), MSG_DONTWAIT, message);
  if (got == helper_wire::Got::message) on_reply(*helper, id, message);
  if (got == helper_wire::Got::closed) on_closed(*helper);
  if (helper->socket.is_open()) watch_socket(id);
  dispatch();
}

void HelperPool::Impl::on_reply(Helper& helper, Id id, const std::string& message) {
  if (helper.state == Helper::State::working) {
    release(helper, Helper::State::idle)->promise.set(helper_wire::unpack_reply(message));
    // After a burst of many owners, spare helpers end again.
    if (count(Helper::State::idle, "") > config_.max_helpers)
      end(helper);
    else
      rest(helper, id);
    return;
  }
  if (helper.state == Helper::State::stuck)
    log::warning("helper.late", {{"what", helper.job->request.what}, {"pid", helper.pid}});
  end(helper);
}

void HelperPool::Impl::on_closed(Helper& helper) {
  if (helper.state == Helper::State::working) {
    const auto job = release(helper, Helper::State::ending);
    job->promise.set(Error{errc::unavailable, "the helper died: " + job->request.what});
  }
  if (helper.state == Helper::State::stuck) {
    log::warning("helper.died_stuck", {{"what", helper.job->request.what}, {"pid", helper.pid}});
  }
  end(helper);
}

void HelperPool::Impl::on_exit(Id id) {
  on_socket(id);  // a reply may still be readable
  Helper* helper = find(id);
  if (helper == nullptr) return;
  if (helper->state == Helper::State::working) on_closed(*helper);
  siginfo_t info{};
  ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(helper->pidfd.native_handle()), &info, WEXITED | WNOHANG);
  log::info("helper.ended", {{"pid", helper->pid}, {"result", how_it_ended(info)}});
  helpers_.erase(id);
  dispatch();
}

void HelperPool::Impl::on_time(Id id, const std::shared_ptr<Job>& job) {
  Helper* helper = find(id);
  if (helper == nullptr || helper->state != Helper::State::working || helper->job != job) return;
  helper->timer = 0;
  helper->state = Helper::State::stuck;
  log::error("helper.stuck", {{"what", job->request.what},
                              {"pid", helper->pid},
                              {"after_s", static_cast<std::int64_t>(job->request.report_after.count())}});
  job->promise.set(Error{errc::unavailable, job->request.what + ": not done after " +
                                                std::to_string(job->request.report_after.count()) +
                                                " s, stuck in process " + std::to_string(helper->pid)});
  dispatch();
}

std::shared_ptr<Job> HelperPool::Impl::release(Helper& helper, Helper::State next) {
  if (helper.timer != 0) clock_.cancel(std::exchange(helper.timer, 0));
  helper.state = next;
  return std::exchange(helper.job, nullptr);
}

/// send_to_one() takes the first idle helper, so the others reach their end here.
void HelperPool::Impl::rest(Helper& helper, Id id) {
  helper.timer = clock_.schedule(clock_.now() + config_.spare, [this, id, alive = std::weak_ptr<void>(alive_)] {
    Helper* spare = alive.expired() ? nullptr : find(id);
    if (spare == nullptr || spare->state != Helper::State::idle) return;
    spare->timer = 0;
    if (count(Helper::State::idle, "") > 1) end(*spare);
  });
}

// The helper exits by itself when it sees its socket closed. on_exit forgets it.
void HelperPool::Impl::end(Helper& helper) {
  release(helper, Helper::State::ending);
  boost::system::error_code ignored;
  if (helper.socket.is_open()) helper.socket.close(ignored);
}

Helper* HelperPool::Impl::find(Id id) {
  const auto place = helpers_.find(id);
  return place == helpers_.end() ? nullptr : &place->second;
}

std::vector<HelperPool::Stuck> HelperPool::Impl::stuck() const {
  std::vector<Stuck> all;
  for (const auto& [id, helper] : helpers_)
    if (helper.state == Helper::State::stuck) all.push_back({helper.job->request.what, helper.pid, helper.since});
  return all;
}

HelperPool::HelperPool(executor control, Clock& clock, Config config)
    : impl_(std::make_unique<Impl>(std::move(control), clock, std::move(config))) {}

HelperPool::~HelperPool() = default;

task<result<json::object>> HelperPool::call(HelperRequest request, Until until) {
  expect_control_thread();
  const std::string what = request.what;
  const auto job = impl_->submit(std::move(request));
  auto future = job->promise.future();
  auto reply = co_await future.get(until, what);
  job->abandoned = true;
  co_return reply;
}

std::vector<HelperPool::Stuck> HelperPool::stuck() const { return impl_->stuck(); }

}  // namespace corbd
