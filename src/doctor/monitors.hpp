#pragma once

#include <vector>

#include "inputs.hpp"

namespace corbd::doctor {

/// Tries a TCP connection to each, 2 s each, all at once, 10 s together; fills in `answers`.
void ask_monitors(std::vector<Monitor>& monitors);

}  // namespace corbd::doctor
