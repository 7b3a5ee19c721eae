#pragma once

#include <CLI/CLI.hpp>

#include "corbd/cli/mounts.hpp"

namespace corbd::cli {

void add_mounts(CLI::App& app, Mounts& into);

}  // namespace corbd::cli
