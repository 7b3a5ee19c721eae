// Formats values for people at a terminal. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace corbd {

/// Shows the two largest units that matter: "0s", "850ms", "12s", "3m20s", "5h12m", "4d3h".
std::string duration_text(std::chrono::milliseconds of);
/// Shows one decimal if the number is not whole: "512 B", "1 GiB", "1.5 TiB".
std::string size_text(std::uint64_t bytes);
/// Shows UTC: "2026-01-31T12:00:00Z".
std::string time_text(std::int64_t ms_since_1970);
/// Makes text safe for a terminal: a question mark replaces each control character.
std::string for_terminal(std::string text);
/// The text for a terminal, or "<none>" if it is empty.
std::string cell(const std::string& text);

/// The first row is the header. Columns are left-aligned, three spaces apart; no row ends in spaces.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace corbd
