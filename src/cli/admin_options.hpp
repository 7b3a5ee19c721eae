// The subcommands that ask a running agent.
#pragma once

#include <CLI/CLI.hpp>

#include "corbd/cli/options.hpp"

namespace corbd::cli {

/// Adds them. Afterwards `into` says which one was given, or Admin::What::none.
void add_admin(CLI::App& app, Admin& into);

}  // namespace corbd::cli
