// Times as people, Kubernetes and logs read them.
#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>

namespace corbd {

/// "2026-11-22T12:03:04Z": whole seconds of UTC, as Kubernetes writes them.
std::string utc_text(std::chrono::system_clock::time_point at);

/// The moment that such a text names; nothing for any other text.
std::optional<std::chrono::system_clock::time_point> utc_of(const std::string& text);

/// Of a date and a time of day in UTC. Nothing outside of 1970 to 2261: the clock, which counts nanoseconds in 64 bits,
/// has no such moment.
std::optional<std::chrono::system_clock::time_point> utc_from(std::tm parts);

}  // namespace corbd
