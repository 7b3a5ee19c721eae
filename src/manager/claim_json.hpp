// Format of a claim's file.
#pragma once

#include <string>
#include <string_view>

#include "corbd/manager/claims.hpp"
#include "corbd/manager/values.hpp"

namespace corbd::manager {

std::string encode(const Claim& claim);
/// state_corrupt: it is no claim. state_newer: a newer version wrote it.
result<Claim> decode(std::string_view text);

}  // namespace corbd::manager
