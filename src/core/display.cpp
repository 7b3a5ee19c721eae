#include "corbd/core/display.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "corbd/core/utc.hpp"

namespace corbd {
namespace {

/// Counts characters, not bytes. Each takes one column.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string duration_text(std::chrono::milliseconds of) {
  struct Unit {
    const char* name;
    std::int64_t seconds;
  };
  constexpr std::array units{Unit{"d", 86400}, Unit{"h", 3600}, Unit{"m", 60}, Unit{"s", 1}};
  if (of.count() <= 0) return "0s";
  if (of.count() < 1000) return std::to_string(of.count()) + "ms";
  const std::int64_t seconds = of.count() / 1000;
  for (std::size_t i = 0; i + 1 < units.size(); ++i) {
    const Unit &large = units[i], &small = units[i + 1];
    if (seconds < large.seconds) continue;
    const std::int64_t rest = seconds % large.seconds / small.seconds;
    return std::to_string(seconds / large.seconds) + large.name + (rest > 0 ? std::to_string(rest) + small.name : "");
  }
  return std::to_string(seconds) + "s";
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  auto of = static_cast<double>(bytes);
  for (; of >= 1024 && unit + 1 < units.size(); ++unit) of /= 1024;
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f", of);
  std::string number = text.data();
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return number + " " + units.at(unit);
}

std::string time_text(std::int64_t ms_since_1970) {
  return utc_text(std::chrono::system_clock::time_point(std::chrono::milliseconds(ms_since_1970)));
}

std::string for_terminal(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7F) text[i] = '?';
    // U+0080 to U+009F: C1 controls, which some terminals obey.
    if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) text.replace(i, 2, "?");
  }
  return text;
}

std::string cell(const std::string& text) { return text.empty() ? "<none>" : for_terminal(text); }

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width(row[i]) + 3, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace corbd
