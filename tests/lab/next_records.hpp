// Included before each file that says or reads a record's version: a build that writes the next version.
#pragma once

#include "corbd/plan/record.hpp"

namespace corbd::plan {
inline constexpr int next_record_version = record_version + 1;
inline constexpr int next_plain_record_version = next_record_version;
}  // namespace corbd::plan
#define plain_record_version next_plain_record_version
#define record_version next_record_version
