#include "corbd/ops/health.hpp"

#include <algorithm>
#include <utility>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::ops {
namespace {

constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::seconds kTryEvery{10};
constexpr std::chrono::seconds kTryLimit{5};
constexpr const char* kPlain = "text/plain; charset=utf-8";

}  // namespace

void LoopLag::start() {
  due_ = clock_.now() + kTick;
  timer_ = clock_.schedule(due_, [this] { tick(); });
}

void LoopLag::stop() {
  clock_.cancel(timer_);
  timer_ = 0;
  due_ = time_point::max();
}

void LoopLag::tick() {
  at_ = (at_ + 1) % last_.size();
  last_.at(at_) = std::max(clock_.now() - due_, duration::zero());
  start();
}

duration LoopLag::now() const {
  const auto at = clock_.now();
  return due_ < at ? std::max(at - due_, last_.at(at_)) : last_.at(at_);
}

duration LoopLag::worst() const { return std::max(*std::max_element(last_.begin(), last_.end()), now()); }

Writable::Writable(executor control, Clock& clock, BlockingPool& pool, std::string folder)
    : control_(control),
      clock_(clock),
      pool_(pool),
      folder_(std::move(folder)),
      gate_(control, clock),
      state_(Error{errc::unavailable, folder_ + " has not been checked yet"}) {}

void Writable::start() { gate_.spawn(watch(*this)); }

task<> Writable::watch(Writable& self) {
  while (!self.stopping_.cancelled()) {
    Promise<void> promise(self.control_, self.clock_);
    self.pool_.post([promise, folder = self.folder_] { promise.set(try_writing(folder + "/.writable")); });
    const auto tried = promise.future();
    Until until;
    until.scope = &self.stopping_;
    auto written = co_await tried.get(until.at_most(self.clock_.now() + kTryLimit), "a write into " + self.folder_);
    self.state_ = written;
    // A write that hangs holds one thread of the pool, and no second one is started.
    if (!written && written.error().code == errc::timed_out)
      self.state_ = co_await tried.get(until, "a write into " + self.folder_);
    co_await sleep_until(self.control_, self.clock_, self.clock_.now() + kTryEvery, &self.stopping_);
  }
}

task<> Writable::stop() {
  stopping_.cancel();
  co_await gate_.close({});
}

Watched::Watched(executor control, Clock& clock, std::string what, std::chrono::seconds every, Ask ask,
                 std::optional<std::string> not_missed)
    : control_(control),
      clock_(clock),
      what_(std::move(what)),
      every_(every),
      ask_(std::move(ask)),
      not_missed_(std::move(not_missed)),
      gate_(control, clock) {}

void Watched::start() { gate_.spawn(watch(*this)); }

task<> Watched::watch(Watched& self) {
  while (!self.stopping_.cancelled()) {
    const auto answer = co_await self.ask_({self.clock_.now() + kTryLimit, &self.stopping_});
    if (self.stopping_.cancelled()) co_return;
    self.heard(answer);
    co_await sleep_until(self.control_, self.clock_, self.clock_.now() + self.every_, &self.stopping_);
  }
}

Outsider Watched::judged(const result<>& answer) const {
  if (answer) return {Outsider::State::answers, {}};
  if (not_missed_) return {Outsider::State::unused, *not_missed_};
  return {Outsider::State::silent, answer.error().text};
}

void Watched::heard(const result<>& answer) {
  const auto before = std::exchange(now_, judged(answer)).state;
  if (before == now_.state) return;
  if (now_.state == Outsider::State::silent)
    log::warning("node.silent",
                 {{"what", what_}, {"code", corbd::name(answer.error().code)}, {"error", answer.error().text}});
  else if (before == Outsider::State::silent)
    log::info("node.answers", {{"what", what_}});
}

task<> Watched::stop() {
  stopping_.cancel();
  co_await gate_.close({});
}

http::Response healthz(const NodeHealth& health) {
  http::Response response{health.alive() ? 200u : 503u, kPlain, health.alive() ? "ok\n" : ""};
  for (const auto& one : health.components)
    if (one.holds == Component::Holds::living) response.body += one.name + ": " + one.text + "\n";
  return response;
}

http::Response readyz(const NodeHealth& health) {
  http::Response response{health.ready() ? 200u : 503u, kPlain, health.ready() ? "ok\n" : ""};
  for (const auto& reason : health.not_ready()) response.body += reason + "\n";
  return response;
}

}  // namespace corbd::ops
