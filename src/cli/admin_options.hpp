// The subcommands that ask a running agent.
#pragma once

#include <CLI/CLI.hpp>

#include "corbd/cli/options.hpp"

namespace corbd::cli {

/// Adds them; `into` says afterwards which one was given, Admin::What::none if none was.
void add_admin(CLI::App& app, Admin& into);

}  // namespace corbd::cli
