#include "calls.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace corbd::bench {
namespace {

constexpr std::size_t kShownErrors = 5;

/// The smallest time that this part of the calls does not exceed.
double at(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

int Calls::failures() const {
  int sum = 0;
  for (const auto& [text, count] : errors) sum += count;
  return sum;
}

boost::json::object Calls::json() const {
  boost::json::object out{{"calls", ms.size() + static_cast<std::size_t>(failures())}, {"failed", failures()}};
  if (repeats > 0) out["repeats"] = repeats;
  if (!ms.empty()) {
    auto sorted = ms;
    std::ranges::sort(sorted);
    out["p50_ms"] = at(sorted, 0.5);
    out["p90_ms"] = at(sorted, 0.9);
    out["p99_ms"] = at(sorted, 0.99);
    out["longest_ms"] = sorted.back();
  }
  boost::json::object said;
  for (const auto& [text, count] : errors)
    if (said.size() < kShownErrors) said[text] = count;
  if (!said.empty()) out["errors"] = std::move(said);
  return out;
}

std::string Calls::title() {
  char line[200];
  std::snprintf(line, sizeof line, "%-16s %6s %7s %10s %10s %10s %11s", "", "calls", "failed", "p50 ms", "p90 ms",
                "p99 ms", "longest ms");
  return line;
}

std::string Calls::row(const std::string& name) const {
  const auto all = json();
  char line[200];
  const auto time = [&](const char* key) {
    char text[30] = "-";
    if (const auto* found = all.if_contains(key)) std::snprintf(text, sizeof text, "%.1f", found->as_double());
    return std::string(text);
  };
  std::snprintf(line, sizeof line, "%-16s %6zu %7d %10s %10s %10s %11s", name.c_str(),
                ms.size() + static_cast<std::size_t>(failures()), failures(), time("p50_ms").c_str(),
                time("p90_ms").c_str(), time("p99_ms").c_str(), time("longest_ms").c_str());
  std::string out = line;
  for (const auto& [text, count] : errors) out += "\n    " + std::to_string(count) + " x " + text;
  return out;
}

}  // namespace corbd::bench
