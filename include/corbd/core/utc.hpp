// Times in the form that people, Kubernetes and logs read.
#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>

namespace corbd {

/// Returns "2026-11-22T12:03:04Z": whole seconds of UTC, as Kubernetes writes them.
std::string utc_text(std::chrono::system_clock::time_point at);

/// Parses such a text; nothing for any other text.
std::optional<std::chrono::system_clock::time_point> utc_of(const std::string& text);

/// Converts a date and a time of day in UTC. Nothing outside of 1970 to 2261: the clock counts nanoseconds in 64 bits
/// and has no such moment.
std::optional<std::chrono::system_clock::time_point> utc_from(std::tm parts);

}  // namespace corbd
