// Translates the answers of librados and librbd into our errors.
#pragma once

#include <string>
#include <string_view>

#include "corbd/core/result.hpp"

namespace corbd::rbd {

/// Returns the code for a negative errno. Connecting, opening and locking have tables of their own for some.
errc code_of(int negative);
/// Returns "Connection timed out", for example. For -108 it explains the meaning here.
std::string reason(int negative);
/// Makes "<doing>: <reason>", then ": <remedy>" if there is one.
Error failure(std::string_view doing, int negative, std::string_view remedy = {});

}  // namespace corbd::rbd
