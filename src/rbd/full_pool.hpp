// Judges from the JSON of `osd pool ls detail` whether a pool is full (docs/sources.md#full-pools). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

struct FullPool {
  std::string name;
  bool by_quota = false;  ///< false: an OSD of the pool is full
  bool operator==(const FullPool&) const = default;
};

/// Nothing: the pool is not full. unavailable: the answer is not understood, or lacks the pool.
result<std::optional<FullPool>> find_full_pool(std::string_view json, std::int64_t pool_id);

/// Names the pool, the cause and the remedy.
std::string text_of(const FullPool& pool);

}  // namespace corbd::rbd
