// One JSON object per line on stderr: ts, level, msg, then fields. Writing a line never waits for whoever reads stderr,
// and never ends the process. Lines that had to be dropped are counted, and the next line that is written says how
// many.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

namespace corbd::log {

enum class Level { debug, info, warning, error };

/// A name and a value that JSON can hold: text, number, bool. It refers to the text, so it is valid for one call only.
struct Field {
  template <class Value>
  Field(std::string_view field_name, const Value& field_value) : name(field_name), value(held(field_value)) {}
  std::string_view name;
  std::variant<std::string_view, bool, std::int64_t, std::uint64_t, double> value;

 private:
  template <class Value>
  static auto held(const Value& from) {
    if constexpr (std::is_convertible_v<const Value&, std::string_view>)
      return std::string_view(from);
    else if constexpr (std::is_same_v<Value, bool>)
      return from;
    else if constexpr (std::is_floating_point_v<Value>)
      return static_cast<double>(from);
    else if constexpr (std::is_signed_v<Value>)
      return std::int64_t{from};
    else
      return std::uint64_t{from};
  }
};

/// Parses "debug", "info", "warning" or "error".
std::optional<Level> level_of(std::string_view text);

/// Callable from any thread, at any time.
void set_level(Level level);

/// Starts a thread that writes from then on: the last 2048 lines wait for a slow reader, older ones are dropped. A
/// crash loses lines that are not written yet. Before the call, a line that stderr does not take at once is dropped.
/// Call it once, before other threads log.
void start_thread();

/// Waits until all lines so far are on stderr, or until the time is up.
void drain(std::chrono::milliseconds at_most);

void write(Level level, std::string_view message, std::initializer_list<Field> fields = {});

inline void debug(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::debug, message, fields);
}
inline void info(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::info, message, fields);
}
inline void warning(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::warning, message, fields);
}
inline void error(std::string_view message, std::initializer_list<Field> fields = {}) {
  write(Level::error, message, fields);
}

}  // namespace corbd::log
