#include "corbd/core/utc.hpp"

#include <array>
#include <ctime>

namespace corbd {

std::string utc_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::optional<std::chrono::system_clock::time_point> utc_of(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end == nullptr || *end != '\0' ? std::nullopt : utc_from(parts);
}

std::optional<std::chrono::system_clock::time_point> utc_from(std::tm parts) {
  if (parts.tm_year < 1970 - 1900 || parts.tm_year > 2261 - 1900) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

}  // namespace corbd
