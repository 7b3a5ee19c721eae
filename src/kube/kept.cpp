#include "corbd/kube/kept.hpp"

#include <algorithm>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "corbd/kube/reflector.hpp"
#include "wire.hpp"

namespace corbd::kube {
namespace {

constexpr std::chrono::minutes kPoll{5};
constexpr std::chrono::seconds kAnswer{30};  // for a get, or a list of one
constexpr std::chrono::seconds kInitial{10}; // until a watch has told what there is: a server that does not know of that goes on without a word

}  // namespace

Kept::Kept(executor control, Clock& clock, Api& api, Resource resource, std::string name, std::function<void()> changed,
           std::chrono::milliseconds spread)
    : control_(control), clock_(clock), api_(api), resource_(std::move(resource)), name_(std::move(name)), changed_(std::move(changed)),
      spread_(spread), gate_(control, clock) {}

void Kept::start() { gate_.spawn(run(*this)); }

task<> Kept::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

task<> Kept::run(Kept& self) {
  const std::chrono::milliseconds first(static_cast<std::int64_t>(static_cast<double>(self.spread_.count()) * uniform()));
  if (first.count() > 0 && !co_await self.pause(first)) co_return;
  co_await self.reflect();
  if (self.only_get_) co_await self.poll();
}

/// False: the agent stops.
task<bool> Kept::pause(std::chrono::milliseconds time) {
  co_return co_await sleep_until(control_, clock_, clock_.now() + time, &stopping_) != Waited::cancelled;
}

void Kept::note(std::optional<boost::json::object> object) {
  const bool same = known_ && object == object_;
  known_ = true;
  failure_.reset();
  object_ = std::move(object);
  if (!same && changed_) changed_();
}

task<> Kept::reflect() {
  Reflector reflector;
  while (!stopping_.cancelled() && !only_get_) {
    const auto action = reflector.next(uniform());
    if (const auto* sleep = std::get_if<Reflector::Sleep>(&action)) {
      if (!co_await pause(sleep->time)) co_return;
    } else if (const auto* from = std::get_if<Reflector::List>(&action)) {
      co_await list(reflector, from->version);
    } else {
      const auto& begin = std::get<Reflector::Watch>(action);
      co_await watch(reflector, begin.version, begin.timeout, begin.initial);
    }
  }
}

task<> Kept::list(Reflector& reflector, std::string version) {
  auto listed = co_await api_.list(resource_, name_, std::move(version), {clock_.now() + kAnswer, &stopping_});
  if (listed) {
    // Whatever else a server sends that knows no selectors.
    const auto place = std::ranges::find(listed->items, name_, [](const auto& item) { return metadata_at(item, "name"); });
    note(place == listed->items.end() ? std::nullopt : std::optional(std::move(*place)));
    reflector.listed(std::move(listed->version));
    co_return;
  }
  if (stopping_.cancelled()) co_return;
  unknown_because(listed.error());
  reflector.list_failed(listed.error(), clock_.now());
}

void Kept::unknown_because(const Failure& failure) {
  only_get_ = failure.error.code == errc::permission_denied;
  if (!failure_) log::warning(only_get_ ? "kube.no_watch" : "kube.not_listed", {{"resource", resource_.rbac}, {"name", name_}, {"error", failure.error.text}});
  failure_ = failure;
}

task<> Kept::watch(Reflector& reflector, std::string version, std::chrono::seconds timeout, bool initial) {
  reflector.watching(clock_.now());
  bool telling = initial, came = false;
  CancelScope patience(&stopping_);
  const auto give_up = clock_.schedule(clock_.now() + kInitial, [&] {
    if (telling) patience.cancel();
  });
  auto take = [&](Change change) {
    if (telling && change.ends_initial) {
      telling = false;
      if (!came) note(std::nullopt);
      reflector.initial_told(std::move(change.version));
      return true;
    }
    reflector.seen(std::move(change.version));
    if (change.kind == Change::Kind::bookmark || metadata_at(change.object, "name") != name_) return true;
    came = true;
    note(change.kind == Change::Kind::deleted ? std::nullopt : std::optional(std::move(change.object)));
    return true;
  };
  const auto ended = co_await api_.watch(resource_, name_, std::move(version), timeout, initial, take, {time_point::max(), &patience});
  clock_.cancel(give_up);
  if (stopping_.cancelled()) co_return;
  const auto failure = ended || patience.cancelled() ? std::nullopt : std::optional(ended.error());
  if (failure && telling && failure->error.code != errc::invalid_argument) unknown_because(*failure);
  only_get_ = failure && failure->error.code == errc::permission_denied;
  reflector.watch_ended(failure, clock_.now());
}

task<> Kept::poll() {
  const Backoff backoff;
  for (std::uint32_t failures = 0; !stopping_.cancelled();) {
    auto got = co_await api_.get(resource_, name_, {clock_.now() + kAnswer, &stopping_});
    const bool absent = !got && got.error().error.code == errc::not_found;
    if (got) note(std::move(*got));
    if (absent) note(std::nullopt);
    if (!got && !absent) failure_ = got.error();
    failures = got || absent ? 0 : failures + 1;
    if (!co_await pause(failures == 0 ? std::chrono::milliseconds(kPoll) : backoff.after(failures - 1, uniform()))) co_return;
  }
}

}  // namespace corbd::kube
