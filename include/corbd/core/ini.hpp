// Reads Ceph's configuration files: sections and `name = value` (docs/sources.md#ceph-conf).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd {

/// Strips blanks from both ends, and turns each run of `gaps` into one '_'.
std::string with_gaps(std::string_view text, std::string_view gaps);

/// Receives section and option as they stand in the file.
using TakeOption = std::function<void(std::string_view section, std::string_view option, std::string_view value)>;

/// Calls `take` for each option, in order. invalid_argument names the number of a line that does not belong in such a
/// file.
result<> read_ini(std::string_view text, const TakeOption& take);

/// Returns an option (spelt with '_') as Ceph finds it for client.<user>: in that user's section, else in [client],
/// else in [global]. Nothing: none of them has it.
result<std::optional<std::string>> option_for(std::string_view text, std::string_view option, std::string_view user);

}  // namespace corbd
