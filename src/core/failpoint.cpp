#include "corbd/core/failpoint.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "corbd/core/log.hpp"

namespace corbd::failpoint {
namespace {

enum class Action { off, kill, stop, error, hang };
struct Point {
  std::atomic<Action> action{Action::off};
  std::atomic<long> hits_left{0};
};
std::atomic<bool> any_armed{false};

/// The map is complete before main().
std::map<std::string, Point, std::less<>>& points() {
  static std::map<std::string, Point, std::less<>> all;
  return all;
}

}  // namespace

Places::Places(std::vector<std::string> names) {
  for (auto& name : names) points().try_emplace(std::move(name));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, point] : points()) all.push_back(name);
  return all;
}

result<> arm(std::string_view spec) {
  const auto bad = [&](std::string_view why) {
    return Error{errc::invalid_argument, "failpoint '" + std::string(spec) + "': " + std::string(why)};
  };
  const auto equals = spec.find('=');
  if (equals == spec.npos) return bad("expected NAME=ACTION or NAME=ACTION@N");
  const auto place = points().find(spec.substr(0, equals));
  if (place == points().end()) return bad("no such name; see corbd run --list-failpoints");
  auto action_text = spec.substr(equals + 1);
  long nth = 1;
  if (const auto at = action_text.find('@'); at != action_text.npos) {
    const auto digits = action_text.substr(at + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), nth);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || nth < 1)
      return bad("N must be a number from 1");
    action_text = action_text.substr(0, at);
  }
  Action action;
  if (action_text == "kill")
    action = Action::kill;
  else if (action_text == "stop")
    action = Action::stop;
  else if (action_text == "error")
    action = Action::error;
  else if (action_text == "hang")
    action = Action::hang;
  else if (action_text == "off")
    action = Action::off;
  else
    return bad("the action must be off, kill, stop, error or hang");
  auto& point = place->second;
  point.hits_left = nth;
  point.action = action;
  any_armed = true;
  return {};
}

result<> hit(std::string_view name) {
  if (!any_armed.load(std::memory_order_relaxed)) return {};
  const auto place = points().find(name);
  if (place == points().end()) return Error{errc::internal, "failpoint '" + std::string(name) + "' is not in the list"};
  auto& point = place->second;
  const Action action = point.action;
  if (action == Action::off || point.hits_left.fetch_sub(1) != 1) return {};
  log::warning("failpoint.hit", {{"name", name}});
  log::drain(std::chrono::seconds(1));
  switch (action) {
    case Action::kill:
      ::kill(::getpid(), SIGKILL);
      [[fallthrough]];
    case Action::hang:
      for (;;) ::pause();
    case Action::stop:
      ::kill(::getpid(), SIGSTOP);
      break;
    case Action::error:
      return Error{errc::unavailable, "failpoint " + std::string(name)};
    case Action::off:
      break;
  }
  return {};
}

}  // namespace corbd::failpoint
