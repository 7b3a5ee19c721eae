#pragma once

#include <CLI/CLI.hpp>

#include "corbd/mounting/mounting.hpp"

namespace corbd::cli {

/// The subcommand that Nomad calls. Nomad's folder of plugins links to it by this name after "corbd-".
inline constexpr const char* kHostVolume = "host-volume";

void add_mounts(CLI::App& app, mounting::Options& into);

}  // namespace corbd::cli
