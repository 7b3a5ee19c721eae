#include "runner.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "agent.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/overloaded.hpp"
#include "corbd/core/process.hpp"
#include "corbd/core/utc.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/heal/wait_for_users.hpp"
#include "corbd/host/system.hpp"
#include "corbd/keeper/keeper.hpp"

namespace corbd::agent {
namespace {

constexpr std::chrono::milliseconds kAskSystem{500};
// Used while the agent serves on although it was told to end: the node may shut down later.
constexpr std::chrono::seconds kAskSystemAgain{5};
// The next agent waits for two and a half minutes, not counting its own preparation.
constexpr std::chrono::seconds kLooksWithin{30};

}  // namespace

Runner::Runner(executor control, Clock& clock, const Parts& parts, lifecycle::Transition begins)
    : control_(control),
      clock_(clock),
      parts_(parts),
      state_(std::move(begins.state)),
      action_(begins.action),
      gate_(control, clock),
      signals_(parts.io, SIGTERM, SIGINT),
      woken_(std::make_unique<Event>(std::move(control), clock)) {}

int Runner::run() {
  gate_.spawn(main());
  parts_.io.run();
  return exit_code_;
}

std::optional<ops::ToldFacts> Runner::waits_for_next() const {
  if (!state_.waits_for_next()) return std::nullopt;
  const duration since = state_.told_to_end() ? clock_.now() - state_.told_at : duration{};
  return ops::ToldFacts{since, state_.told.grace};
}

task<> Runner::main() {
  listen_to_signals();
  for (auto action = action_; !is(action, lifecycle::Beside::nothing);) {
    const auto event = co_await carry_out(action);
    if (!event) error_ = event.error();
    action = advance(event ? *event : lifecycle::Done{error_.code});
  }
}

lifecycle::Action Runner::advance(const lifecycle::Event& event) {
  auto [state, action] = lifecycle::next(std::move(state_), event);
  state_ = std::move(state);
  return action;
}

task<result<lifecycle::Event>> Runner::carry_out(lifecycle::Action action) {
  // start() carries out the actions of waiting, and hear() those beside another.
  const auto no_action = []() -> task<result<lifecycle::Event>> {
    co_return Error{errc::internal, "no action of an agent that has begun"};
  };
  return std::visit(Overloaded{
                        [&](const lifecycle::BesideAction&) { return no_action(); },
                        [&](const lifecycle::WaitingAction&) { return no_action(); },
                        [&](const lifecycle::TakingOverAction& one) { return parts_.takeover.carry_out(one); },
                        [&](const lifecycle::ServingAction& one) { return serve(one); },
                        [&](const lifecycle::HandingOverAction& one) { return parts_.shutdown.carry_out(one); },
                        [&](const lifecycle::LeavingAction& one) { return parts_.shutdown.carry_out(one); },
                        [&](const lifecycle::LastAction& one) { return end(one); },
                    },
                    action);
}

task<result<lifecycle::Event>> Runner::serve(lifecycle::ServingAction action) {
  using Do = lifecycle::Serving;
  result<> done;
  switch (action.what) {
    case Do::begin_alone:
      done = co_await parts_.begin_alone();
      break;
    case Do::serve:
      done = co_await parts_.serve();
      break;
    case Do::wait:
      co_return co_await wait(action);
    case Do::call_reserve:
      done = co_await call_reserve();
      break;
    case Do::ask_next:
      co_return co_await ask_next(action.within);
    case Do::refuse_next:
      refuse_next();
      break;
    case Do::announce:
      done = co_await announce(action);
      break;
    case Do::wait_for_users:
      co_await wait_for_users();
      break;
  }
  if (!done) co_return done.error();
  co_return lifecycle::Done{};
}

task<lifecycle::Event> Runner::wait(lifecycle::ServingAction action) {
  woken_ = std::make_unique<Event>(control_, clock_);
  if (!std::exchange(listens_, true)) gate_.spawn(hear_next());
  if (action.say)
    log::info("agent.serves_on", {{"waits_for", "the next agent's request for the devices"},
                                  {"in_use", state_.told.in_use},
                                  {"at_most_s", parts_.options.leave_grace_s}});
  static_cast<void>(
      co_await woken_->wait(action.within == duration::max() ? Until{} : Until{clock_.now() + action.within}));
  co_return lifecycle::Woken{clock_.now(), parts_.giver.has_next(), heal::served_in_use(parts_.shell).size()};
}

task<> Runner::hear_next() {
  co_await parts_.giver.run();
  listens_ = false;
  // The next agent may have asked while another event was awaited.
  if (parts_.giver.has_next()) wake();
}

task<result<>> Runner::call_reserve() {
  auto job = [folder = parts_.options.runtime_dir, pod = parts_.options.pod] {
    return handover::call_reserve(folder, pod);
  };
  const auto waits = co_await parts_.files.run(std::move(job), {}, "calling the pod in reserve");
  if (!waits) co_return waits.error();
  if (!*waits) co_return Error{errc::not_found, "no pod is in reserve"};
  co_return result<>();
}

task<lifecycle::Event> Runner::ask_next(duration within) {
  const bool ready = co_await parts_.giver.next_answers(within);
  unopened_ = parts_.shell.answering(parts_.giver.unopened_images());
  co_await parts_.shell.restore_keys(unopened_, {clock_.now() + kLooksWithin});
  auto here = co_await parts_.shell.not_again(unopened_, {clock_.now() + kLooksWithin});
  // The next agent only reads the images, which succeeds in a full pool. A request that waits there makes a volume look
  // as if it did not answer here. An agent that must go hands over all the same, for the volumes of other pools.
  std::map<std::string, std::string> full;
  if (ready && !state_.told_to_end()) full = co_await parts_.shell.in_full_pools({clock_.now() + kLooksWithin});
  for (auto& [id, why] : full) {
    if (std::ranges::find(unopened_, id) == unopened_.end()) unopened_.push_back(id);
    here.insert_or_assign(id, std::move(why));
  }
  refused_here_ = here.size();
  first_refused_ = here.empty() ? "" : here.begin()->first + ": " + here.begin()->second;
  co_return lifecycle::Answered{ready && parts_.giver.has_next(), unopened_.size(), refused_here_,
                                parts_.giver.next_accepts_refused()};
}

/// This agent could not open the volume again either, so refusing the next agent for ever would not help. The reader of
/// this log line decides.
void Runner::refuse_next() {
  const bool all = refused_here_ == unopened_.size();
  log::error("handover.images_not_opened",
             {{"cause", "the next agent could not serve all volumes that this one serves"},
              {"volumes", unopened_.size()},
              {"first", unopened_.empty() ? "" : unopened_.front()},
              {"also_refused_here", refused_here_},
              {"first_refused_here", first_refused_},
              {"hint", std::string("the next agent's log has the reasons: image.not_preopened, "
                                   "cluster.not_connected_ahead. ") +
                           (all ? "They are not the next agent's fault: this one could not serve any of these volumes "
                                  "again either (first_refused_here says why; a full pool needs room). To hand over "
                                  "without them, give the next agent --accept-refused=" +
                                      utc_text(std::chrono::system_clock::now() + std::chrono::hours(24)) +
                                      " (it counts until that time): their I/O then waits until the reason is gone"
                                : "This agent could still open the others again, so it serves on")}});
  parts_.giver.leave();
}

task<result<>> Runner::announce(lifecycle::ServingAction action) {
  if (action.say)
    log::warning("handover.accepts_refused",
                 {{"volumes", unopened_.size()},
                  {"first", first_refused_},
                  {"cause",
                   "neither the next agent nor this one could open their images again, and --accept-refused "
                   "lets the next one take over"},
                  {"effect", "their I/O waits until the reason is gone"}});
  const bool begins = co_await parts_.giver.ask_commit(action.within);
  if (!begins) co_return Error{errc::unavailable, "the next agent does not answer"};
  log::info("agent.hands_over");
  co_return result<>();
}

/// While the node goes down and our devices are in use, we serve them. A second signal stops that.
task<> Runner::wait_for_users() {
  parts_.giver.stop();
  co_await heal::wait_for_users(control_, clock_, parts_.shell, std::chrono::seconds(parts_.options.shutdown_grace_s),
                                hurry_);
}

void Runner::listen_to_signals() {
  signals_.async_wait([this](boost::system::error_code failed, int) {
    if (failed) return;
    hear(lifecycle::Signalled{clock_.now()});
    listen_to_signals();
  });
}

/// Hears an event that comes beside the action under way.
void Runner::hear(const lifecycle::Event& event) {
  const auto action = advance(event);
  if (const auto* last = std::get_if<lifecycle::LastAction>(&action)) end_process(*last);
  const auto& beside = std::get<lifecycle::BesideAction>(action);
  switch (beside.what) {
    case lifecycle::Beside::nothing:
      break;
    case lifecycle::Beside::heed_signal:
      heed_signal(beside);
      break;
    case lifecycle::Beside::drop_next:
      parts_.giver.leave();
      break;
  }
}

void Runner::heed_signal(const lifecycle::BesideAction& action) {
  if (action.first)
    gate_.spawn(watch_node());
  else
    hurry_.cancel();
  clock_.schedule(clock_.now() + action.within, [this] { hear(lifecycle::PatienceOver{}); });
  wake();
}

/// Runs until the node shuts down. Its pods may be ended before we learn of the shutdown, and long before it begins.
task<> Runner::watch_node() {
  for (bool told = false;;) {
    // The limit holds even if the bus does not answer.
    const Until until{clock_.now() + 2 * kAskSystem};
    const auto stopping = co_await parts_.names.run([] { return host::system_stopping(kAskSystem); }, until,
                                                    "asking whether the node shuts down");
    if (!stopping && !std::exchange(told, true))
      log::warning("system.unknown", {{"error", stopping.error().text},
                                      {"hint",
                                       "if the node shuts down, the agent ends before its devices' users: give it the "
                                       "system bus (/run/dbus)"}});
    const bool stops = stopping && *stopping;
    hear(lifecycle::NodeSeen{stops});
    wake();
    if (stops) co_return;
    static_cast<void>(co_await sleep_until(control_, clock_, clock_.now() + kAskSystemAgain));
  }
}

task<result<lifecycle::Event>> Runner::end(lifecycle::LastAction action) {
  switch (action.what) {
    case lifecycle::Last::refuse:
      co_await refuse_to_serve();
      break;
    case lifecycle::Last::go_to_reserve:
      log::drain(kLogEndsWithin);
      // Restart with a clean process image; under a keeper, the keeper does it.
      if (parts_.options.keeper) ::_exit(keeper::kBeginsAnew);
      begin_anew();
      [[fallthrough]];
    case lifecycle::Last::exit:
      end_process(action);
  }
  co_return lifecycle::Done{};
}

/// Devices that are served by now, after a handover for example, lose their server.
task<> Runner::refuse_to_serve() {
  exit_code_ = refuse(error_);
  parts_.takeover.leave();
  co_await parts_.shell.stop({clock_.now()});
  parts_.io.stop();
}

void Runner::end_process(const lifecycle::LastAction& action) {
  if (action.say) log::info("agent.left");
  log::drain(kLogEndsWithin);
  ::_exit(action.code);
}

}  // namespace corbd::agent
