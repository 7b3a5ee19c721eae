#include "corbd/core/ini.hpp"

#include <utility>

#include "corbd/core/text.hpp"

namespace corbd {
namespace {

/// Removes a comment: the text after ';' or '#', unless that is quoted.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == ';' || c == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string_view unquoted(std::string_view value) {
  value = trimmed(value);
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
    return value.substr(1, value.size() - 2);
  return value;
}

}  // namespace

std::string with_gaps(std::string_view text, std::string_view gaps) {
  std::string name;
  bool after_gap = false;
  for (const char c : trimmed(text)) {
    const bool gap = gaps.find(c) != std::string_view::npos;
    if (!gap || !after_gap) name += gap ? '_' : c;
    after_gap = gap;
  }
  return name;
}

result<> read_ini(std::string_view text, const TakeOption& take) {
  std::string section, line;
  std::size_t number = 0;
  for (std::string_view piece : pieces(text, '\n')) {
    ++number;
    // A backslash at the end joins a line with the next one.
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    if (piece.ends_with('\\')) {
      line += piece.substr(0, piece.size() - 1);
      continue;
    }
    line += piece;
    const std::string whole = std::exchange(line, std::string());
    const std::string_view content = trimmed(without_comment(whole));
    if (content.empty()) continue;
    const std::string at = "line " + std::to_string(number);
    if (content.front() == '[') {
      if (content.back() != ']') return Error{errc::invalid_argument, at + " opens a section without a closing ]"};
      section = content.substr(1, content.size() - 2);
      continue;
    }
    const auto equals = content.find('=');
    if (equals == content.npos) return Error{errc::invalid_argument, at + " is neither a [section] nor name = value"};
    take(section, content.substr(0, equals), unquoted(content.substr(equals + 1)));
  }
  return {};
}

result<std::optional<std::string>> option_for(std::string_view text, std::string_view option, std::string_view user) {
  const std::string own = "client." + std::string(user);
  std::optional<std::string> of_user, of_clients, of_all;
  const auto read = read_ini(text, [&](std::string_view section, std::string_view name, std::string_view value) {
    auto* into = section == own        ? &of_user
                 : section == "client" ? &of_clients
                 : section == "global" ? &of_all
                                       : nullptr;
    if (into != nullptr && with_gaps(name, " \t") == option) *into = std::string(value);
  });
  if (!read) return read.error();
  return of_user ? of_user : of_clients ? of_clients : of_all;
}

}  // namespace corbd
