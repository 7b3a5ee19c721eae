// Looks for a text in this process's memory.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corbd/core/fd.hpp"
#include "support/catch.hpp"

namespace corbd::test {

/// Texts that nobody must find are kept with every bit of them turned.
inline std::string turned(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for (const char c : text) made += static_cast<char>(~c);
  return made;
}

/// In all memory of this process that can be written.
inline bool is_in_memory(const std::string& turned_text) {
  const Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::ifstream maps("/proc/self/maps");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> areas;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx rw", &from, &to) == 2 && line.find(" rw") != line.npos &&
        to - from < 1ull << 30)
      areas.emplace_back(from, to);
  }
  REQUIRE(areas.size() > 3);
  std::string bytes;
  for (const auto& [from, to] : areas) {
    bytes.resize(to - from);
    const auto got = ::pread(memory.get(), bytes.data(), bytes.size(), static_cast<off_t>(from));
    if (got <= 0) continue;
    const auto same = [](char in_memory, char looked_for) { return in_memory == static_cast<char>(~looked_for); };
    const auto end = bytes.begin() + got;
    if (std::search(bytes.begin(), end, turned_text.begin(), turned_text.end(), same) != end) return true;
  }
  return false;
}

}  // namespace corbd::test
