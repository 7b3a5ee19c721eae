#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "agent.hpp"
#include "config.hpp"
#include "corbd/cephcsi/affinity.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/process.hpp"
#include "corbd/csi/topology.hpp"
#include "corbd/device/link_end.hpp"
#include "corbd/handover/leaves_by_signal.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/host/cgroup.hpp"

namespace corbd::agent {
namespace {

const failpoint::Places kStartPlaces({"agent.starts"});

result<> check_labels(const Options& options) {
  const auto by_hand = csi::parse_labels(options.topology);
  if (!by_hand) return by_hand.error();
  if (!options.crush_location.empty())
    if (auto checked = cephcsi::check_crush_location(options.crush_location); !checked)
      return with_context("--crush-location", checked.error());
  return csi::check_domain_labels(options.drivername, options.domainlabels);
}

result<std::optional<csi::RegistrarConfig>> registrar_config(const Options& options) {
  const csi::RegistrarWish wish{options.registers, options.kubelet_dir, options.drivername, options.endpoint,
                                options.endpoint_on_host};
  std::error_code ignored;
  return csi::registrar_config(wish, std::filesystem::is_directory(options.kubelet_dir + "/plugins_registry", ignored));
}

result<FromKeeper> take_stored(Fd keeper) {
  FromKeeper from_keeper;
  if (!keeper) return from_keeper;
  from_keeper.keeper = std::make_unique<keeper::Client>(std::move(keeper));
  auto stored = from_keeper.keeper->take();
  if (!stored) return with_context("--keeper", stored.error());
  from_keeper.stored = std::move(*stored);
  return from_keeper;
}

/// The kernel knows that these links have ended. If this process dies first, their books are empty, so the next agent
/// goes on with the end and not with the link.
void let_go(FromKeeper& from_keeper) {
  std::vector<int> sockets;
  for (const auto& held : from_keeper.stored.links) {
    if (::ftruncate(held.ledger.get(), 0) != 0)
      log::warning("keeper.ledger_not_closed", {{"volume", held.link.backend}});
    sockets.push_back(held.socket.get());
  }
  device::end_links(sockets);
  for (const auto& held : from_keeper.stored.links) static_cast<void>(from_keeper.keeper->drop(held.link.token));
  for (const auto& memory : from_keeper.stored.memory) static_cast<void>(from_keeper.keeper->drop(memory.token));
  from_keeper.stored.links.clear();
  from_keeper.stored.memory.clear();
}

lifecycle::Settings settings_of(const Options& options) {
  return {.handover = options.handover,
          .in_pod = !options.pod.empty(),
          .restart_wait = options.keeper ? keeper::kStartsAgainWithin : duration{},
          .leave_grace = std::chrono::seconds(options.leave_grace_s)};
}

/// Waits until an agent may begin here. No threads or coroutines exist yet.
class Wait {
 public:
  Wait(const Options& options, FromKeeper& from_keeper)
      : options_(options), from_keeper_(from_keeper), state_(lifecycle::start_of(settings_of(options))) {}

  result<Start> run() {
    const handover::LeavesBySignal leaves;
    const bool restarted = from_keeper_.keeper && from_keeper_.keeper->deaths().count > 0;
    auto action = advance(lifecycle::Begun{!from_keeper_.stored.links.empty(), restarted});
    while (const auto* waits = std::get_if<lifecycle::WaitingAction>(&action)) action = advance(carry_out(*waits));
    if (is(action, lifecycle::Last::refuse)) return error_;
    return Start{{std::move(state_), action}, std::move(lock_), std::move(predecessor_), {}};
  }

 private:
  lifecycle::Action advance(const lifecycle::Event& event) {
    auto [state, action] = lifecycle::next(std::move(state_), event);
    state_ = std::move(state);
    return action;
  }

  lifecycle::Event carry_out(const lifecycle::WaitingAction& action) {
    if (action.say)
      log::warning("handover.waits_for_end",
                   {{"waits_for", "the end of the agent that serves"}, {"cause", error_.text}});
    if (action.listeners_go) let_listeners_go();
    std::this_thread::sleep_for(action.pause);
    result<> done;
    switch (action.what) {
      case lifecycle::Waiting::lock:
        done = take(lock_folder(options_.state_dir));
        break;
      case lifecycle::Waiting::ask:
        done = ask();
        break;
      case lifecycle::Waiting::let_links_go:
        return let_links_go();
      case lifecycle::Waiting::wait_in_reserve:
        let_listeners_go();
        done = wait_in_reserve(action.within);
        break;
    }
    if (!done) error_ = done.error();
    return lifecycle::Done{done ? errc::ok : error_.code};
  }

  /// Another agent has the state directory, and wants to listen at these paths.
  void let_listeners_go() {
    for (const auto& one : from_keeper_.stored.listeners)
      static_cast<void>(from_keeper_.keeper->drop_listener(one.path));
    from_keeper_.stored.listeners.clear();
  }

  /// not_found: no agent serves. failed_precondition: it refuses to hand anything over.
  result<> ask() {
    auto predecessor = handover::ask(options_.runtime_dir, handover_side(options_));
    if (!predecessor) return with_context("--handover", predecessor.error());
    predecessor_ = std::move(*predecessor);
    if (!predecessor_) return Error{errc::not_found, "no agent serves"};
    let_listeners_go();
    return {};
  }

  result<> take(result<Fd> lock) {
    if (!lock) return lock.error();
    lock_ = std::move(*lock);
    return {};
  }

  result<> wait_in_reserve(duration free_for) {
    auto taken = take(handover::wait_in_reserve(options_.state_dir, options_.runtime_dir, options_.pod, free_for));
    if (taken && !lock_) return Error{errc::cancelled, "this pod is called"};
    return taken;
  }

  lifecycle::LinksGone let_links_go() {
    const auto links = from_keeper_.stored.links.size();
    if (links > 0) log::warning("keeper.links_let_go", {{"links", links}, {"cause", error_.text}});
    // Memory that belongs to no link goes, too.
    let_go(from_keeper_);
    const bool noted = !options_.pod.empty() && handover::pod_in_reserve(options_.runtime_dir) == options_.pod;
    return {noted};
  }

  const Options& options_;
  FromKeeper& from_keeper_;
  lifecycle::State state_;
  Fd lock_, predecessor_;
  Error error_;  ///< the last error
};

result<> make_folders(const Options& options) {
  if (auto made = make_private_folder(options.state_dir); !made) return made;
  if (auto made = make_private_folder(options.runtime_dir); !made) return made;
  return check_tmpfs(options.runtime_dir);
}

result<> check_values(const Options& options) {
  if (auto checked = check_labels(options); !checked) return checked;
  if (const auto checked = filesystem_options(options); !checked) return checked.error();
  if (const auto checked = trim_every(options); !checked) return checked.error();
  return {};
}

void note_accepted(const Options& options, AcceptsRefused accepts) {
  if (accepts == AcceptsRefused::yes)
    log::warning("handover.accept_refused_given",
                 {{"expires", options.accept_refused},
                  {"effect",
                   "each handover until then may leave volumes unserved that neither this agent nor its predecessor "
                   "can open"},
                  {"hint", "use --accept-refused for one rollout: remove it from the flags after that"}});
  if (accepts == AcceptsRefused::over)
    log::info("handover.accept_refused_over",
              {{"expires", options.accept_refused}, {"hint", "remove --accept-refused from the flags"}});
  if (accepts == AcceptsRefused::too_far)
    log::error("handover.accept_refused_too_far",
               {{"expires", options.accept_refused},
                {"effect", "it counts for nothing"},
                {"hint", "give --accept-refused a time that is at most 7 days ahead, and check this node's clock"}});
}

}  // namespace

int start(const Options& options, Fd keeper) {
  if (options.verbose) log::set_level(log::Level::debug);
  raise_descriptor_limit();
  if (options.fencing_only) {
    if (options.addons_endpoint.empty())
      return refuse({errc::invalid_argument, "--fencing-only serves nothing without --csi-addons-endpoint: give it"});
    if (auto made = make_private_folder(options.runtime_dir); !made) return refuse(made.error());
    return run_fencing(options);
  }
  // Do this before any thread exists: the flag is per thread and inherited.
  if (auto flusher = become_io_flusher(); !flusher) log::warning("agent.io_flusher", {{"error", flusher.error().text}});
  if (const std::string why = host::may_be_swapped(""); !why.empty())
    log::warning(
        "agent.may_be_swapped",
        {{"cause", why},
         {"effect", "under memory pressure each device may wait until the agent's pages are read again"},
         {"hint",
          "write 0 into memory.swap.max of the agent's cgroup, or have no swap: docs/operations.md, \"Swap\""}});
  for (const auto& flag : options.ignored) log::info("agent.flag_ignored", {{"flag", flag}});
  const auto accepts = accepts_refused(options, std::chrono::system_clock::now());
  if (!accepts) return refuse(accepts.error());
  note_accepted(options, *accepts);
  if (options.heal_without_proof)
    return refuse(
        {errc::invalid_argument,
         "--heal-without-proof was removed, because it applied to every volume of the node: start without it, and run "
         "`corbd heal ID --without-proof` for one volume that no other node used"});
  if (auto checked = check_values(options); !checked) return refuse(checked.error());
  const auto registrar = registrar_config(options);
  if (!registrar) return refuse(registrar.error());
  for (const auto& spec : options.failpoints)
    if (auto armed = failpoint::arm(spec); !armed) return refuse(armed.error());
  if (auto made = make_folders(options); !made) return refuse(made.error());
  // Hold this until the process ends.
  Fd lives = options.pod.empty() ? Fd() : handover::say_pod_lives(options.runtime_dir, options.pod);
  const auto boot_id = read_boot_id();
  if (!boot_id) return refuse(boot_id.error());
  auto from_keeper = take_stored(std::move(keeper));
  if (!from_keeper) return refuse(from_keeper.error());
  auto start = Wait(options, *from_keeper).run();
  if (!start) return refuse(start.error());
  if (!options.pod.empty() && start->lock) handover::leave_reserve(options.runtime_dir, options.pod);
  // From here on the control thread must run soon, or it counts as hung.
  if (lives) handover::note_pulse(lives.get(), "this pod's agent starts");
  static_cast<void>(failpoint::hit("agent.starts"));
  start->lives = std::move(lives);
  start->listeners = std::move(from_keeper->stored.listeners);
  run_agent(options, *boot_id, *registrar, std::move(*start), std::move(*from_keeper));
}

}  // namespace corbd::agent
