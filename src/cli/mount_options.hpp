#pragma once

#include <CLI/CLI.hpp>

#include "corbd/mounting/mounting.hpp"

namespace corbd::cli {

/// The subcommand that Nomad calls. A file of its folder of plugins has this name after "corbd-".
inline constexpr const char* kHostVolume = "host-volume";

void add_mounts(CLI::App& app, mounting::Options& into);

}  // namespace corbd::cli
