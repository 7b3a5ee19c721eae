#include "corbd/kube/informer.hpp"

#include <algorithm>
#include <set>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "fields.hpp"
#include "reflector.hpp"
#include "wire.hpp"

namespace corbd::kube {
namespace {

constexpr std::chrono::minutes kPoll{5};
constexpr std::chrono::seconds kAnswer{30};         // for a get, or a list of one object
constexpr std::chrono::seconds kAnswerOfMany{120};  // for all pages of a list
constexpr std::chrono::seconds kInitial{10};        // for the initial objects of a watch; some servers never end them

}  // namespace

Informer::Informer(executor control, Clock& clock, Api& api, Resource resource, Which which,
                   std::function<void(const std::string& name)> changed, std::chrono::milliseconds spread)
    : control_(control),
      clock_(clock),
      api_(api),
      resource_(std::move(resource)),
      which_(std::move(which)),
      selector_(only_one() ? named(which_.name) : which_.selector),
      changed_(std::move(changed)),
      spread_(spread),
      gate_(control, clock) {}

void Informer::start() { gate_.spawn(run(*this)); }

task<> Informer::stop(Until until) {
  stopping_.cancel();
  co_await gate_.close(until);
}

task<> Informer::run(Informer& self) {
  const std::chrono::milliseconds first(
      static_cast<std::int64_t>(static_cast<double>(self.spread_.count()) * uniform()));
  if (first.count() > 0 && !co_await self.pause(first)) co_return;
  co_await self.reflect();
  if (self.only_get_) co_await self.poll();
}

/// Returns false if the agent stops.
task<bool> Informer::pause(std::chrono::milliseconds time) {
  co_return co_await sleep_until(control_, clock_, clock_.now() + time, &stopping_) != Waited::cancelled;
}

/// A server without selectors sends other objects too.
bool Informer::wanted(const boost::json::object& object) const {
  return only_one() ? text(object, "metadata", "name") == which_.name : !which_.ours || which_.ours(object);
}

void Informer::note(Objects all) {
  std::set<std::string> changed;
  if (!std::exchange(known_, true) && only_one()) changed.insert(which_.name);
  failure_.reset();
  for (const auto& [name, object] : all) {
    const auto before = objects_.find(name);
    if (before == objects_.end() || before->second != object) changed.insert(name);
  }
  for (const auto& [name, object] : objects_)
    if (!all.contains(name)) changed.insert(name);
  objects_ = std::move(all);
  if (changed_) std::ranges::for_each(changed, changed_);
}

void Informer::note(const std::string& name, std::optional<boost::json::object> object) {
  const auto before = objects_.find(name);
  if (object ? before != objects_.end() && before->second == *object : before == objects_.end()) return;
  if (object)
    objects_.insert_or_assign(name, std::move(*object));
  else
    objects_.erase(before);
  if (changed_) changed_(name);
}

task<> Informer::reflect() {
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

task<> Informer::list(Reflector& reflector, std::string version) {
  auto listed = co_await api_.list(resource_, selector_, std::move(version),
                                   {clock_.now() + (only_one() ? kAnswer : kAnswerOfMany), &stopping_});
  if (listed) {
    Objects all;
    for (auto& item : listed->items)
      if (wanted(item)) all.insert_or_assign(text(item, "metadata", "name"), std::move(item));
    note(std::move(all));
    reflector.listed(std::move(listed->version));
    co_return;
  }
  if (stopping_.cancelled()) co_return;
  if (!only_one() && listed.error().error.code == errc::invalid_argument && !selector_.empty()) {
    log::info("kube.no_selector", {{"resource", resource_.rbac},
                                   {"selector", std::exchange(selector_, "")},
                                   {"error", listed.error().error.text}});
    co_return;
  }
  unknown_because(listed.error());
  reflector.list_failed(listed.error(), clock_.now());
}

void Informer::unknown_because(const ApiError& failure) {
  only_get_ = only_one() && failure.error.code == errc::permission_denied;
  if (!failure_)
    log::warning(only_get_ ? "kube.no_watch" : "kube.not_listed",
                 {{"resource", resource_.rbac}, {"name", which_.name}, {"error", failure.error.text}});
  failure_ = failure;
}

task<> Informer::watch(Reflector& reflector, std::string version, std::chrono::seconds timeout, bool initial) {
  reflector.watching(clock_.now());
  bool telling = initial;
  Objects told;
  CancelScope patience(&stopping_);
  const auto give_up = clock_.schedule(clock_.now() + kInitial, [&] {
    if (telling) patience.cancel();
  });
  auto take = [&](Change change) {
    if (telling && change.ends_initial) {
      telling = false;
      note(std::move(told));
      reflector.initial_told(std::move(change.version));
      return true;
    }
    reflector.seen(std::move(change.version));
    if (change.kind == Change::Kind::bookmark) return true;
    const auto name = text(change.object, "metadata", "name");
    const bool is_there = change.kind != Change::Kind::deleted && wanted(change.object);
    if (!telling)
      note(name, is_there ? std::optional(std::move(change.object)) : std::nullopt);
    else if (is_there)
      told.insert_or_assign(name, std::move(change.object));
    else
      told.erase(name);
    return true;
  };
  const auto ended = co_await api_.watch(resource_, selector_, std::move(version), timeout, initial, take,
                                         {time_point::max(), &patience});
  clock_.cancel(give_up);
  if (stopping_.cancelled()) co_return;
  const auto failure = ended || patience.cancelled() ? std::nullopt : std::optional(ended.error());
  if (failure && telling && failure->error.code != errc::invalid_argument) unknown_because(*failure);
  only_get_ = only_one() && failure && failure->error.code == errc::permission_denied;
  reflector.watch_ended(failure, clock_.now());
}

task<> Informer::poll() {
  const Backoff backoff;
  for (std::uint32_t failures = 0; !stopping_.cancelled();) {
    auto got = co_await api_.get(resource_, which_.name, {clock_.now() + kAnswer, &stopping_});
    const bool absent = !got && got.error().error.code == errc::not_found;
    Objects found;
    if (got) found.emplace(which_.name, std::move(*got));
    if (got || absent) note(std::move(found));
    if (!got && !absent) failure_ = got.error();
    failures = got || absent ? 0 : failures + 1;
    if (!co_await pause(failures == 0 ? std::chrono::milliseconds(kPoll) : backoff.after(failures - 1, uniform())))
      co_return;
  }
}

}  // namespace corbd::kube
