// Private entry points of the agent of a node, from its first coroutine to its last.
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

/// Descriptors that the keeper stores for this agent, and the way to store more.
struct FromKeeper {
  std::unique_ptr<keeper::Client> keeper;  ///< null: this process has no keeper
  keeper::StoredFds stored;                ///< links and memory of the agent that died
};

/// Start of an agent: it has the lock of its state directory, or a predecessor that will hand the lock over.
struct Start {
  lifecycle::Transition begins;
  Fd lock;
  Fd predecessor;  ///< from handover::ask()
  Fd lives;        ///< from handover::say_pod_lives(); invalid: this agent is in no pod
  std::vector<keeper::StoredListener> listeners = {};  ///< listeners of the agent that died
};

/// The caller has made the agent's folders. Does not return.
[[noreturn]] void run_agent(const Options& options, std::string boot_id,
                            const std::optional<csi::RegistrarConfig>& registrar, Start start, FromKeeper from_keeper);

/// Runs `--fencing-only` until a signal ends it, and returns the exit code. The caller has made its folders.
int run_fencing(const Options& options);

/// Logs why no agent can run, and returns the exit code.
int refuse(const Error& error);

}  // namespace corbd::agent
