// The agent of a node: all rooms together, from its first coroutine to its last.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/agent/agent.hpp"
#include "corbd/core/result.hpp"
#include "corbd/csi/registrar.hpp"
#include "corbd/handover/handover.hpp"
#include "corbd/keeper/keeper.hpp"
#include "corbd/lifecycle/lifecycle.hpp"

namespace corbd::agent {

/// What the keeper has for this agent, and how to tell it more.
struct FromKeeper {
  std::unique_ptr<keeper::Client> keeper;  ///< nothing: this process has none
  keeper::StoredFds stored;                ///< of the agent that died
};

/// What an agent begins with: the lock of its state directory, or the agent that serves and will give it.
struct Start {
  lifecycle::Transition begins;
  Fd lock;
  Fd predecessor;  ///< as handover::ask() gave it
  Fd lives;        ///< of handover::say_pod_lives(); invalid: this agent is in no pod
  std::vector<keeper::StoredListener> listeners = {};  ///< of the agent that died
};

/// Its folders are the caller's. Does not return.
[[noreturn]] void run_agent(const Options& options, std::string boot_id,
                            const std::optional<csi::RegistrarConfig>& registrar, Start start, FromKeeper from_keeper);

/// `--fencing-only`: serves until a signal ends it; the exit code. Its folders are the caller's.
int run_fencing(const Options& options);

/// Logs why there is no agent; the exit code.
int refuse(const Error& error);

}  // namespace corbd::agent
