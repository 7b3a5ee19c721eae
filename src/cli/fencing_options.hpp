// The subcommands about other clients of a cluster.
#pragma once

#include <CLI/CLI.hpp>

#include "corbd/cli/options.hpp"

namespace corbd::cli {

/// Adds them. Afterwards `into` says which one was given, or Fencing::What::none.
void add_fencing(CLI::App& app, Fencing& into);

}  // namespace corbd::cli
