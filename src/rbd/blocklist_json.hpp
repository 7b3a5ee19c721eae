// Parses the JSON of `osd blocklist ls` (docs/sources.md#blocklist). Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "corbd/image/blocklist.hpp"

namespace corbd::rbd {

/// unavailable: an entry is not understood, and a fence that is overlooked would count as none. A caller that looks
/// only for its own entries passes `unknown`, which collects the entries that are not understood.
result<std::vector<image::BlocklistEntry>> parse_blocklist(std::string_view json,
                                                           std::vector<std::string>* unknown = nullptr);

/// Returns the end of an entry that was added now, by the clock of the monitor that answers: "blocklisting
/// 10.0.0.1:0/123 until 2026-11-23T04:16:17.295187+0000 (60 sec)". Nothing: not understood.
std::optional<std::chrono::system_clock::time_point> end_in_answer(std::string_view text);

}  // namespace corbd::rbd
