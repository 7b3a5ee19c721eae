// A subcommand that calls an agent has its options, its call and its view in a file of its own. This is the table of
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "corbd/cli/options.hpp"

namespace corbd::cli {

/// The end of a command's --help (docs/serving.md#exit-codes): its own codes, and the one that all have.
inline std::string exit_codes(const std::string& own) {
  return "Exit code: " + own + ", " + std::to_string(kWrongUsage) + " wrong command line.";
}

/// A type has its kName and kDescription, and a constructor that adds its options.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  /// Makes the call and returns the exit code. Answers go to stdout, problems to stderr.
  virtual int run() = 0;
};

/// The subcommand that the command line names; null: none of these.
using Chosen = std::shared_ptr<Subcommand>;

template <class One>
void add(CLI::App& app, Chosen& chosen) {
  auto* command = app.add_subcommand(One::kName, One::kDescription);
  command->callback([one = std::make_shared<One>(*command), &chosen] { chosen = one; });
}

using Add = void(CLI::App& app, Chosen& chosen);
Add add_status, add_volumes, add_volume, add_keys, add_heal, add_fail, add_fsck, add_drain, add_log_level, add_events,
    add_top, add_handover, add_alive, add_fencing, add_csi, add_version;

/// Subcommands that use the admin socket, in the order of --help.
inline constexpr Add* kQuestions[] = {add_status, add_volumes,  add_volume, add_keys,      add_heal,
                                      add_fail,   add_fsck,     add_drain,  add_log_level, add_events,
                                      add_top,    add_handover, add_alive,  add_fencing};

}  // namespace corbd::cli
