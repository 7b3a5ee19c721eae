#include "corbd/kube/recorder.hpp"

#include <algorithm>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/utc.hpp"
#include "corbd/kube/objects.hpp"
#include "fields.hpp"

namespace corbd::kube {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxMessage = 1024;

/// Events of an object without a namespace are in "default".
Resource events_of(const Involved& about) {
  return {"/api/v1/namespaces/" + (about.name_space.empty() ? "default" : about.name_space) + "/events", "events"};
}

bool may_pass(const ApiError& failure) {
  const auto code = failure.error.code;
  return failure.kind == ApiError::Kind::throttled || code == errc::unavailable || code == errc::timed_out;
}

}  // namespace

Recorder::Recorder(executor control, Clock& clock, Api& api, Config config)
    : control_(control),
      clock_(clock),
      api_(api),
      config_(std::move(config)),
      tokens_(config_.burst),
      filled_(clock.now()),
      gate_(control, clock) {}

void Recorder::tell(Involved about, Notice notice) {
  if (waiting_.size() >= config_.waiting) waiting_.pop_front();
  notice.message.resize(std::min(notice.message.size(), kMaxMessage));
  waiting_.push_back({std::move(about), std::move(notice), clock_.wall()});
  if (!std::exchange(sending_, true) && !gate_.spawn(send())) sending_ = false;
}

task<> Recorder::send() {
  while (!waiting_.empty() && !stopping_.cancelled()) {
    const auto earned = static_cast<std::size_t>((clock_.now() - filled_) / config_.every);
    filled_ += config_.every * static_cast<std::int64_t>(earned);
    tokens_ = std::min(config_.burst, tokens_ + earned);
    if (tokens_ == 0) {
      co_await sleep_until(control_, clock_, filled_ + config_.every, &stopping_);
      continue;
    }
    --tokens_;
    const Waiting one = std::move(waiting_.front());
    waiting_.pop_front();
    const auto sent = co_await send_again(one);
    if (!sent && !stopping_.cancelled() && !std::exchange(refused_, true))
      log::warning("event.notify_failed",
                   {{"reason", one.notice.reason}, {"about", one.about.name}, {"error", sent.error().error.text}});
    if (sent) refused_ = false;
  }
  sending_ = false;
}

/// Tries again, because a server that is busy or silent may take it later. Newer events wait meanwhile, up to a limit.
task<answer<>> Recorder::send_again(const Waiting& one) {
  const Backoff backoff{std::chrono::seconds(1), std::chrono::seconds(30)};
  for (std::uint32_t failures = 0;; ++failures) {
    auto sent = co_await send(one);
    if (sent || failures + 1 >= config_.tries || !may_pass(sent.error())) co_return sent;
    auto pause = std::chrono::milliseconds(backoff.after(failures, 0.5));
    if (sent.error().retry_after) pause = std::max<std::chrono::milliseconds>(pause, *sent.error().retry_after);
    if (co_await sleep_until(control_, clock_, clock_.now() + pause, &stopping_) == Waited::cancelled) co_return sent;
  }
}

task<answer<>> Recorder::send(const Waiting& one) {
  forget_old();
  const Until until{clock_.now() + config_.answer_within, &stopping_};
  const auto place = told_.find({one.about, one.notice.reason});
  if (place != told_.end()) {
    Told& told = place->second;
    const json::object again{
        {"count", ++told.count}, {"lastTimestamp", utc_text(one.at)}, {"message", one.notice.message}};
    const std::string name = told.name;
    const auto patched = co_await api_.patch(events_of(one.about), name, again, until);
    if (patched) co_return answer<>();
    if (patched.error().error.code != errc::not_found) co_return patched.error();
  }
  const json::object event{{"metadata",
                            {{"generateName", one.about.name + "."},
                             {"namespace", one.about.name_space.empty() ? "default" : one.about.name_space}}},
                           {"involvedObject",
                            {{"apiVersion", "v1"},
                             {"kind", one.about.kind},
                             {"namespace", one.about.name_space},
                             {"name", one.about.name},
                             {"uid", one.about.uid}}},
                           {"reason", one.notice.reason},
                           {"message", one.notice.message},
                           {"type", one.notice.warning ? "Warning" : "Normal"},
                           {"source", {{"component", config_.component}, {"host", config_.host}}},
                           {"firstTimestamp", utc_text(one.at)},
                           {"lastTimestamp", utc_text(one.at)},
                           {"count", 1}};
  const auto made = co_await api_.create(events_of(one.about), event, until);
  if (!made) co_return made.error();
  told_[{one.about, one.notice.reason}] = {text(*made, "metadata", "name"), 1, clock_.now()};
  co_return answer<>();
}

void Recorder::forget_old() {
  std::erase_if(told_, [&](const auto& entry) {
    return entry.second.name.empty() || clock_.now() - entry.second.at > config_.same_for;
  });
}

task<> Recorder::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

}  // namespace corbd::kube
