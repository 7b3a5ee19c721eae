// The one binary: the agent, its helper processes, and the commands that call the agent.
#include "corbd/agent/agent.hpp"
#include "corbd/agent/program.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/core/helper_operation.hpp"
#include "corbd/core/process.hpp"
#include "corbd/handover/reserve.hpp"
#include "corbd/host/helpers.hpp"
#include "corbd/keeper/keeper.hpp"
#include "corbd/krbd/kernel_client.hpp"
#include "corbd/manager/node.hpp"
#include "corbd/mounting/mounting.hpp"
#include "corbd/nbd/devices.hpp"
#include "corbd/v1/admin.pb.h"
#include "version.hpp"

namespace corbd {
namespace {

/// A helper process's work, which belongs to four rooms.
result<boost::json::object> work(const boost::json::object& request) {
  return helper::work(request, {host::helper_operations(), krbd::helper_operations(), manager::helper_operations(),
                                nbd::helper_operations()});
}

/// A helper follows its agent, by the limit that it inherits.
bool may_dump(const cli::Command& command) {
  if (const auto* agent = std::get_if<cli::Run>(&command)) return agent->allow_core_dumps;
  return std::holds_alternative<cli::Helper>(command) && !core_dumps_forbidden();
}

// Runs before the constructors of the libraries, which open files too.
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = &fill_standard_streams;

}  // namespace
}  // namespace corbd

int main(int argc, char** argv) {
  using namespace corbd;
  install_signal_handlers();
  const auto command = cli::parse(argc, argv, std::string("corbd ") + CORBD_VERSION + " (" + CORBD_GIT_HASH + ")");
  if (const auto* stopped = std::get_if<cli::Exit>(&command)) return stopped->code;
  if (!may_dump(command)) forbid_core_dumps();
  if (const auto* watch = std::get_if<cli::Liveness>(&command)) return cli::watch_liveness(*watch);
  if (const auto* call = std::get_if<cli::Call>(&command)) return call->run();
  if (const auto* mounts = std::get_if<mounting::Options>(&command)) return mounting::run(*mounts);
  if (const auto* node = std::get_if<doctor::Options>(&command)) return doctor::diagnose(*node, agent::program());
  if (const auto* change = std::get_if<migration::Options>(&command)) return migration::check_migration(*change);
  if (std::holds_alternative<cli::Helper>(command)) return serve_helper(3, work);
  const auto& run = std::get<cli::Run>(command);
  Fd keeper = keeper::socket_of_keeper();
  if (run.keeper && !run.fencing_only && !keeper) {
    // While the keeper pauses after an agent's death, nothing else of the pod lives.
    const Fd lives = run.pod.empty() ? Fd() : handover::say_keeper_lives(run.runtime_dir, run.pod);
    return keeper::run(std::span(argv, static_cast<std::size_t>(argc)));
  }
  return agent::start(run, std::move(keeper));
}
