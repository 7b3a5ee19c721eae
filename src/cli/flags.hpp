// The flags of the agent: one table for `corbd run` and for ceph-csi's own command line (docs/sources.md#command-line).
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "corbd/cli/options.hpp"
#include "corbd/core/result.hpp"

namespace corbd::cli {

struct Flag {
  /// The kinds of values, in Go's grammar.
  enum class Kind { boolean, text, number, duration };
  using Field = std::variant<std::monostate, std::string Run::*, bool Run::*, std::optional<bool> Run::*, int Run::*,
                             std::uint16_t Run::*, std::vector<std::string> Run::*>;
  std::string_view name;  ///< without dashes
  Kind kind = Kind::text;
  Field field = {};             ///< none: a flag of ceph-csi that means nothing to an agent
  const char* help = "";        ///< empty: not shown
  const char* env = nullptr;    ///< the environment variable that can replace it
  int least = 0, most = 65535;  ///< bounds of an int
};

std::span<const Flag> flags();

/// Stores the value in its field, parsed as Go does. invalid_argument names the flag. A flag without a field is only
/// checked.
result<> assign(const Flag& flag, const std::string& value, Run& into);

/// A flag as it was given. A boolean without a value has "true".
struct Given {
  const Flag* flag;
  std::string value;
};
/// Parses by Go's grammar: -x or --x, with =value or the next argument; a boolean takes its value only with '='.
/// invalid_argument: an unknown flag (the text names the nearest one), a flag without its value, or a word that is no
/// flag.
result<std::vector<Given>> parse_go(std::span<const std::string> arguments);

/// Parses "1m30s", "300ms" or "0".
result<std::chrono::milliseconds> parse_go_duration(std::string_view text);

/// Returns the nearest word by edits, for "did you mean". Empty: none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> known);

}  // namespace corbd::cli
