#pragma once

#include <CLI/CLI.hpp>

#include "corbd/mounting/mounting.hpp"

namespace corbd::cli {

void add_mounts(CLI::App& app, mounting::Options& into);

}  // namespace corbd::cli
