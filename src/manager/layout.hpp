// Names of our folders. Pure.
#pragma once

#include <string>
#include <string_view>

#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// Returns one component of a path: the name itself if it is harmless, otherwise its harmless part and a hash. No two
/// names give the same.
std::string folder_name(std::string_view name);
/// Returns Nomad's form, "rw-file-system-single-node-writer", and a hash if a type or options are given.
std::string folder_name(const Usage& usage);

}  // namespace corbd::manager
