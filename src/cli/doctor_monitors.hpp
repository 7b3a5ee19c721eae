#pragma once

#include <vector>

#include "doctor.hpp"

namespace corbd::cli {

/// Tries a TCP connection to each, 2 s each, all at once, 10 s together; fills in `answers`.
void ask_monitors(std::vector<Monitor>& monitors);

}  // namespace corbd::cli
