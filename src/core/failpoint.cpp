#include "corbd/core/failpoint.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <string>

#include "corbd/core/log.hpp"

namespace corbd::failpoint {
namespace {

// There is one point before and one after each step of the planner (volume/planner.hpp), and one inside each step that
// has two effects on the cluster.
constexpr std::string_view kNames[] = {
    "step.look.before",
    "step.look.after",
    "step.write_record.before",
    "step.write_record.after",
    "step.fence.before",
    "step.fence.after",
    "step.open_image.before",
    "step.open_image.after",
    "step.lock.before",
    "step.lock.broken",
    "step.lock.after",
    "step.start_session.before",
    "step.start_session.after",
    "step.kernel_connect.before",
    "step.kernel_connect.after",
    "step.kernel_reconfigure.before",
    "step.kernel_reconfigure.after",
    "step.kernel_resize.before",
    "step.kernel_resize.after",
    "step.tune.before",
    "step.tune.after",
    "step.mark.before",
    "step.mark.after",
    "step.mkfs.before",
    "step.mkfs.after",
    "step.fsck.before",
    "step.fsck.after",
    "step.mount.before",
    "step.mount.after",
    "step.grow.before",
    "step.grow.after",
    "step.unmark.before",
    "step.unmark.after",
    "step.bind.before",
    "step.bind.after",
    "step.unbind.before",
    "step.unbind.after",
    "step.umount.before",
    "step.umount.after",
    "step.disconnect.before",
    "step.disconnect.after",
    "step.stop_session.before",
    "step.stop_session.after",
    "step.close_image.before",
    "step.close_image.after",
    "step.drop_record.before",
    "step.drop_record.after",
    "step.open_tombstone.before",
    "step.open_tombstone.after",
    "step.dismiss.before",
    "step.dismiss.after",
    "step.inherit.before",
    "step.inherit.after",
    "step.write_stash.before",
    "step.write_stash.after",
    "step.drop_stash.before",
    "step.drop_stash.after",
    "step.note.before",
    "step.note.after",
    "step.trim.before",
    "step.trim.after",
    "step.map_krbd.before",
    "step.map_krbd.after",
    "step.unmap_krbd.before",
    "step.unmap_krbd.after",
    "step.luks_format.before",
    "step.luks_format.after",
    "step.luks_note.before",
    "step.luks_note.after",
    "step.luks_open.before",
    "step.luks_open.after",
    "step.luks_resize.before",
    "step.luks_resize.after",
    "step.luks_close.before",
    "step.luks_close.after",
    "step.add_key.before",
    "step.add_key.after",
    "step.new_key.before",
    "step.new_key.added",
    "step.new_key.after",
    "step.remove_key.before",
    "step.remove_key.after",
};

enum class Action { off, kill, stop, error, hang };
struct Point {
  std::atomic<Action> action{Action::off};
  std::atomic<long> hits_left{0};
};
std::array<Point, std::size(kNames)> points;
std::atomic<bool> any_armed{false};

}  // namespace

std::span<const std::string_view> names() { return kNames; }

result<> arm(std::string_view spec) {
  const auto bad = [&](std::string_view why) {
    return Error{errc::invalid_argument, "failpoint '" + std::string(spec) + "': " + std::string(why)};
  };
  const auto equals = spec.find('=');
  if (equals == spec.npos) return bad("expected NAME=ACTION or NAME=ACTION@N");
  const auto place = std::find(std::begin(kNames), std::end(kNames), spec.substr(0, equals));
  if (place == std::end(kNames)) return bad("no such name; see corbd run --list-failpoints");
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
  auto& point = points[static_cast<std::size_t>(place - std::begin(kNames))];
  point.hits_left = nth;
  point.action = action;
  any_armed = true;
  return {};
}

result<> hit(std::string_view name) {
  if (!any_armed.load(std::memory_order_relaxed)) return {};
  const auto place = std::find(std::begin(kNames), std::end(kNames), name);
  if (place == std::end(kNames))
    return Error{errc::internal, "failpoint '" + std::string(name) + "' is not in the list"};
  auto& point = points[static_cast<std::size_t>(place - std::begin(kNames))];
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
