// Translates the answers of librados and librbd into our errors.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

/// The code for a negative errno. Connecting, opening and locking have tables of their own for some.
errc code_of(int negative);
/// "Connection timed out". For -108 it says what that means here.
std::string reason(int negative);
/// "<doing>: <reason>", then ": <remedy>" when there is one.
Error failure(std::string_view doing, int negative, std::string_view remedy = {});

}  // namespace corbd::rbd
