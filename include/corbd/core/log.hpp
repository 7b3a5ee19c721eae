// One JSON object per line on stderr: ts, level, msg, then fields. Writing never blocks for long and never ends the process.
#pragma once

#include <boost/json/value.hpp>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace corbd::log {

enum class Level { debug, info, warning, error };

using Field = std::pair<std::string_view, boost::json::value>;

void set_level(Level level);
void write(Level level, std::string_view message, std::initializer_list<Field> fields = {});

inline void debug(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::debug, message, fields); }
inline void info(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::info, message, fields); }
inline void warning(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::warning, message, fields); }
inline void error(std::string_view message, std::initializer_list<Field> fields = {}) { write(Level::error, message, fields); }

}  // namespace corbd::log
