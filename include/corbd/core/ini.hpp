// Ceph's configuration files: sections and `name = value` (docs/sources.md#ceph-conf).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd {

/// Without the blanks at its ends. Each run of `gaps` is one '_'.
std::string with_gaps(std::string_view text, std::string_view gaps);

/// Section and option as they stand there.
using TakeOption = std::function<void(std::string_view section, std::string_view option, std::string_view value)>;

/// Calls `take` for each option, in order. invalid_argument: a line that is none of such a file, by its number.
result<> read_ini(std::string_view text, const TakeOption& take);

/// An option (spelt with '_') as Ceph finds it in the file for client.<user>: in that user's section, else in [client],
/// else in [global]. Nothing: in none of them.
result<std::optional<std::string>> option_for(std::string_view text, std::string_view option, std::string_view user);

}  // namespace corbd
