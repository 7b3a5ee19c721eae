// What librados and librbd answer, in our words.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

/// The code of a negative errno. Connecting, opening and locking know better for some: see their own tables.
errc code_of(int negative);
/// "Connection timed out"; -108 says what it means here.
std::string reason(int negative);
/// "<doing>: <reason>", then ": <way_out>" when there is one.
Error failure(std::string_view doing, int negative, std::string_view way_out = {});

}  // namespace corbd::rbd
