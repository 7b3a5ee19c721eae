// Names of our folders. Pure.
#pragma once

#include <string>
#include <string_view>

#include "corbd/manager/values.hpp"

namespace corbd::manager {

/// One component of a path: the name itself if it is harmless, otherwise what is harmless of it and a hash. No two
/// names give the same.
std::string folder_name(std::string_view name);
/// Nomad's form, "rw-file-system-single-node-writer", and a hash where a type or options are given.
std::string folder_name(const Usage& usage);

}  // namespace corbd::manager
