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
#include "corbd/handover/reserve.hpp"

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

/// in_use: an agent has the lock. failed_precondition: it refuses to give anything.
result<Start> try_to_begin(const Options& options, bool asks) {
  if (asks) {
    auto before = handover::ask(options.runtime_dir, handover_side(options));
    if (!before) return with_context("--handover", before.error());
    if (*before) return Start{{}, std::move(*before), {}};
  }
  auto lock = lock_folder(options.state_dir);
  if (!lock) return lock.error();
  return Start{std::move(*lock), {}, {}};
}

/// An agent that ends beside this one may have a keeper, if this one has.
duration others_wait(const Options& options) { return options.keeper ? keeper::kStartsAgainWithin : duration{}; }

/// `again`: its keeper has started it again.
result<Start> begin(const Options& options, bool again) {
  constexpr int kTries = 100;
  // Each refusal is a line in the log of the agent that serves.
  constexpr std::chrono::milliseconds kPause{100}, kPauseWhenRefused{5000};
  if (options.handover && !options.pod.empty() && handover::pod_in_reserve(options.runtime_dir) == options.pod) {
    auto lock = handover::wait_in_reserve(options.state_dir, options.runtime_dir, options.pod, others_wait(options));
    if (!lock) return lock.error();
    if (*lock) return Start{std::move(*lock), {}, {}};
  }
  // An agent that died while it handed over shall not have it all back, as the program that it was. In a pod the note
  // of the reserve keeps it from that.
  const bool asks = options.handover && (!again || !options.pod.empty());
  // An agent that ended just now holds its lock a moment longer. One that started beside this one has the lock before
  // it can be asked.
  for (int tries = 1;; ++tries) {
    auto start = try_to_begin(options, asks);
    if (start) return start;
    const auto code = start.error().code;
    // In a pod the agent that serves may be deleted any time, or hands over to another pod and hears nobody else.
    // kubelet would let a container that ended wait for minutes.
    const bool may_wait = options.pod.empty()
                              ? code == errc::in_use && tries < kTries
                              : code == errc::in_use || code == errc::failed_precondition || code == errc::timed_out;
    if (!options.handover || !may_wait) return start;
    if (tries == (code == errc::in_use ? kTries : 1))
      log::warning("handover.waits_for_end", {{"of", "the agent that serves"}, {"why", start.error().text}});
    std::this_thread::sleep_for(code == errc::in_use ? kPause : kPauseWhenRefused);
  }
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

/// The kernel has seen the end of these links. If this process dies before, their books are empty: somebody goes on
/// with the end, and nobody with the link.
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

/// The agent whose links a keeper has is dead. With the lock of the state folder nobody else goes on with its volumes.
/// Whoever else has that lock heals them, which needs dead links.
result<Start> begin_with(const Options& options, FromKeeper& from_keeper) {
  // A helper that the dead agent forked has it until it begins its own program. An agent that was handing over has it
  // until it ends, which takes 6 s at most.
  constexpr int kTries = 120;
  constexpr std::chrono::milliseconds kPause{50};
  if (!from_keeper.stored.links.empty()) {
    auto lock = lock_folder(options.state_dir);
    for (int tries = 1; !lock && lock.error().code == errc::in_use && tries < kTries; ++tries) {
      std::this_thread::sleep_for(kPause);
      lock = lock_folder(options.state_dir);
    }
    if (lock) return Start{std::move(*lock), {}, {}};
    log::warning("keeper.links_let_go", {{"links", from_keeper.stored.links.size()}, {"why", lock.error().text}});
  }
  // Memory of which no link speaks.
  let_go(from_keeper);
  return begin(options, from_keeper.keeper && from_keeper.keeper->deaths().count > 0);
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
  for (const auto& flag : options.ignored) log::info("agent.flag_ignored", {{"flag", flag}});
  if (options.heal_without_proof)
    return refuse(
        {errc::invalid_argument,
         "--heal-without-proof is gone, because it spoke for every volume of the node: start without it, and say "
         "`corbd heal ID --without-proof` for one volume that no other node used"});
  if (auto checked = check_labels(options); !checked) return refuse(checked.error());
  if (const auto checked = filesystem_options(options); !checked) return refuse(checked.error());
  const auto registrar = registrar_config(options);
  if (!registrar) return refuse(registrar.error());
  for (const auto& spec : options.failpoints)
    if (auto armed = failpoint::arm(spec); !armed) return refuse(armed.error());
  if (auto made = make_private_folder(options.state_dir); !made) return refuse(made.error());
  if (auto made = make_private_folder(options.runtime_dir); !made) return refuse(made.error());
  if (auto memory = check_tmpfs(options.runtime_dir); !memory) return refuse(memory.error());
  // Until this process ends.
  Fd lives = options.pod.empty() ? Fd() : handover::say_pod_lives(options.runtime_dir, options.pod);
  const auto boot_id = read_boot_id();
  if (!boot_id) return refuse(boot_id.error());
  auto from_keeper = take_stored(std::move(keeper));
  if (!from_keeper) return refuse(from_keeper.error());
  auto start = begin_with(options, *from_keeper);
  if (!start) return refuse(start.error());
  if (!options.pod.empty() && start->lock) handover::leave_reserve(options.runtime_dir, options.pod);
  // From here on its control thread must run soon, or it hangs.
  if (lives) handover::note_pulse(lives.get(), "this pod's agent starts");
  static_cast<void>(failpoint::hit("agent.starts"));
  start->lives = std::move(lives);
  run_agent(options, *boot_id, *registrar, std::move(*start), std::move(*from_keeper));
}

}  // namespace corbd::agent
